"""What it costs to watch a job with 8 GPUs: CPU time of the service `use`, as a share of a core.

    python benchmarks/use.py

The tests' stand-in for NVML answers, and a bare interpreter is started where squeue would be.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from side_by_side import arguments, limited

from dshpc_setup.container.use_sampler import SAMPLE_S, Sampler
from dshpc_setup.facts import GpuDevice, Gpus
from dshpc_setup.jobs.allocated_gpus import Places, parse_table
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.settings import Settings
from dshpc_setup.slurm.client import Slurm

GPUS = 8
MOST_PERCENT = 0.5
SOURCE = Path(__file__).parents[1] / "tests/standins/nvml/nvml.c"
CARD = (
    "gpu minor={0} bus=00000000:0{0}:00 memory=81559 uuid=GPU-{0} used=40000 utilization=90 power=500000 "
    "power_limit=700000 temperature=60 name=NVIDIA H100 80GB HBM3\n"
)


def main() -> int:
    rounds = arguments(__doc__, 20).rounds
    with tempfile.TemporaryDirectory() as folder:
        sampler = made(Path(folder))
        began = time.time()
        took = [
            cpu(lambda at=at: sampler.pass_once(at * SAMPLE_S, began)) for at in range(rounds + 1)
        ]
        if len(sampler.jobs) != 1 or any(not job.gauges for job in sampler.jobs.values()):
            sys.exit("nothing was measured")
    each = median(took[1:])
    print(f"a sample of {GPUS} GPUs: {each * 1000:.1f} ms of CPU time, every {SAMPLE_S:.0f} s")
    return int(limited("of a core", each / SAMPLE_S * 100, "%", most=MOST_PERCENT))


def cpu(work: object) -> float:
    before = spent()
    work()  # type: ignore[operator]
    return spent() - before


def spent() -> float:
    """CPU seconds of this process and of its children that have ended."""
    parts = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(part.ru_utime + part.ru_stime for part in parts)


def made(folder: Path) -> Sampler:
    library = folder / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, SOURCE], check=True)
    text = folder / "nvml.txt"
    text.write_text("driver 550.163.01\n" + "".join(map(CARD.format, range(GPUS))))
    os.environ.update(LD_LIBRARY_PATH=str(folder), DSHPC_STANDIN_NVML=str(text))
    machine = LocalMachine()
    bare = [sys.executable, "-S", "-c", "pass"]
    Slurm.run = lambda *_, **__: machine.run(bare, deadline_s=10)  # type: ignore[method-assign]
    devices = tuple(
        GpuDevice(at, "nvidia", "H100", f"GPU-{at}", f"0000:0{at}:00.0") for at in range(GPUS)
    )
    table = parse_table([f"gpu {at} nvidia {at} GPU-{at}" for at in range(GPUS)])
    sampler = Sampler(machine, Settings(), "node", Gpus("present", devices=devices), Places(table),
                      str(folder / "use"))  # fmt: skip
    sampler.begin()
    held = ",".join(f"GPU-{at}" for at in range(GPUS))
    places = ",".join(map(str, range(GPUS)))
    line = f"start 0 {int(time.time())} 0 {places} {held} -\n"
    (folder / "use/run/1.0").write_text(line)
    return sampler


if __name__ == "__main__":
    sys.exit(main())
