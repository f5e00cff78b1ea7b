"""`dshpc passthrough`: the whole matrix, against one container for each mechanism started by hand.

    python benchmarks/passthrough.py [--rounds N]

The machine is the tests' bench: two made-up cards behind the stand-in NVML, Debian's newest Docker with
CDI, the hook and the runtime, so that three mechanisms work. Both are measured in turns: the command,
and `docker run ... true` by each mechanism. Needs root, an engine and a C compiler.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from side_by_side import arguments, limited
from start import docker

sys.path.insert(0, str(Path(__file__).parents[1]))
from dshpc_setup.engine.site import gather_site
from dshpc_setup.image.base import ensure_base
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.probes import gather
from dshpc_setup.settings import Settings
from dshpc_setup.terminal.reporter import Silent
from tests.integration.bench import cdi, hardware, roots
from tests.integration.bench.engines import Bench, bench

MOST_MORE_S = 3.0
BY_HAND = (
    ("--device", "nvidia.com/gpu=all"),
    ("--gpus", "all"),
    ("--runtime", "nvidia", "--env", "NVIDIA_VISIBLE_DEVICES=all"),
)


def main() -> int:
    asked = arguments(__doc__, rounds=5)
    os.chdir("/")  # a project's settings would count
    with (
        tempfile.TemporaryDirectory(prefix="dshpc-bench-") as folder,
        _machine(Path(folder)) as machine,
    ):
        pairs = [(_matrix(machine), _by_hand(machine)) for _ in range(asked.rounds + 1)][1:]
    ours, theirs = (median(side) for side in zip(*pairs, strict=True))
    print(
        f"dshpc passthrough, {len(BY_HAND)} mechanisms: {ours:.2f} s against {theirs:.2f} s for "
        f"{len(BY_HAND)} x docker run, median of {asked.rounds}"
    )
    print(f"ratio {ours / theirs:.2f}")
    return int(limited("passthrough, more than by hand", ours - theirs, "s", most=MOST_MORE_S))


@contextlib.contextmanager
def _machine(folder: Path) -> Iterator[Bench]:
    """The bench with all installed, its engine running and the base image loaded."""
    here = LocalMachine()
    base = ensure_base(here, gather(here), Settings(), Silent(answer=True))
    archive = folder / "base.tar"
    docker("save", "--output", str(archive), base.ref)
    (folder / "built").mkdir()
    stand_ins = hardware.build(folder / "built")
    packages = ("docker.io", "docker-cli")
    with (
        roots.root_with(packages, "sid", base, gather_site(here), folder) as root,
        bench("newest", folder / "machine", root) as made,
    ):
        hardware.add_nvidia(made, stand_ins)
        hardware.add_hook(made)
        hardware.add_runtime(made)
        cdi.write_spec(made, cdi.nvidia_spec())
        made.start()
        made.docker("load", "--input", str(archive), deadline_s=120)
        made.image = base.ref
        yield made


def _matrix(machine: Bench) -> float:
    began = time.perf_counter()
    done = machine.dshpc("passthrough", "--json", "--image", machine.image)
    took = time.perf_counter() - began
    attempts = json.loads(done.stdout)["attempts"] if done.returncode == 0 else []
    if [each["state"] for each in attempts].count("works") != len(BY_HAND):
        raise SystemExit(f"not all mechanisms work:\n{done.stdout}{done.stderr}")
    return took


def _by_hand(machine: Bench) -> float:
    began = time.perf_counter()
    for flags in BY_HAND:
        done = machine.container(*flags)
        if done.returncode != 0:
            raise SystemExit(f"docker run {' '.join(flags)}: {done.stderr}")
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
