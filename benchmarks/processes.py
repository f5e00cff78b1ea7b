"""A question to a forked child, as every probe is asked, against interpreters of their own.

    python benchmarks/processes.py

What docs/decisions/0004-docker-client.md, 0009-probes-in-forked-processes.md and 0037-distribution.md
weighed. The parent has loaded what the probes need, as dshpc has. Without limits but one: a fork is to
cost no more than a bare interpreter.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from statistics import median

from side_by_side import arguments, limited, timed

import dshpc_setup.probes
from dshpc_setup.machine import Say, workers

SEVERAL = 7
PROBES = dshpc_setup.probes.__name__
MOST = 1.0


def main() -> int:
    rounds = arguments(__doc__, 30).rounds
    ways: Mapping[str, Callable[[], float]] = {
        "one fork that answers": lambda: forks(1),
        f"{SEVERAL} forks at once": lambda: forks(SEVERAL),
        "a bare interpreter": lambda: timed([sys.executable, "-c", "pass"]),
        "one that imports what probes need": lambda: timed(
            [sys.executable, "-c", f"import {PROBES}"]
        ),
        "one that imports distro": lambda: timed([sys.executable, "-c", "import distro"]),
        "one that imports Docker's SDK": lambda: timed([sys.executable, "-c", "import docker"]),
    }
    times: dict[str, list[float]] = {title: [] for title in ways}
    for _ in range(rounds + 1):
        for title, way in ways.items():
            times[title].append(way())
    medians = {
        title: median(each[1:]) for title, each in times.items()
    }  # the first fills the caches
    bare = medians["a bare interpreter"]
    for title, took in medians.items():
        print(f"{title}: {took * 1000:.1f} ms, {took / bare:.1f} of a bare interpreter's")
    fork = medians["one fork that answers"]
    return int(limited("a fork against a bare interpreter, ratio", fork / bare, most=MOST))


def forks(number: int) -> float:
    questions = {str(each): answer for each in range(number)}
    began = time.perf_counter()
    ended = workers.ask(questions, 10)
    took = time.perf_counter() - began
    if any(each.items != ("yes",) for each in ended.values()):
        sys.exit(f"not all forks answered: {ended}")
    return took


def answer(say: Say) -> None:
    say("yes")


if __name__ == "__main__":
    sys.exit(main())
