"""python -m tests.fuzz [--seconds N] [--seed S] [--first N] [--rounds N] [--only machines|readers]

Damages what recorded machines and the tools on them answer, and looks at them; and the JSON and YAML
that users, jobs, containers and other programs write, and reads it (readers.py). Each round is its
seed and its number: what is found is printed with the command that finds it again.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import sys
import time
import traceback

from tests.fuzz import rounds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--only", choices=("machines", "readers"))
    options = parser.parse_args()
    one = {"machines": rounds.machine, "readers": rounds.reader}.get(options.only, rounds.one)
    until = time.monotonic() + options.seconds
    tried: collections.Counter[str] = collections.Counter()
    numbers = itertools.count(options.first)
    for number in itertools.islice(numbers, options.rounds):
        if time.monotonic() > until:
            break
        try:
            tried[one(options.seed, number)] += 1
        except AssertionError as error:
            print(error)
            traceback.print_exception(error.__cause__)
            return 1
    print(
        f"{sum(tried.values())} rounds on {len(tried)} machines and readers, seed {options.seed}: clean"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
