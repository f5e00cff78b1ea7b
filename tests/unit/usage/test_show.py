"""`dshpc job show` of a job whose use was written down: what docs/how-to/usage.md shows."""

from __future__ import annotations

import time

import pytest

from dshpc_setup.jobs import queries, view
from dshpc_setup.jobs.allocated_gpus import Gpu
from dshpc_setup.jobs.view import View
from dshpc_setup.usage.records import GpuUse, HeldGpu, JobUse
from tests.integration.shown import documented

UUIDS = tuple(f"GPU-{each}-0000-0000-0000-000000000000" for each in ("5a3c9f4e", "0b7e1d22"))
BEGAN = 1_795_687_200.0  # 2026-11-26 10:00, UTC
BUSY, IDLE = GpuUse(3600.0, 80.0, 100, 40960, 61440, 3.6e6), GpuUse(3600.0, 0.0, 0, 0, 0)
USED = JobUse(
    "12", 12, 0, "ada", 1000, "train", "COMPLETED", BEGAN + 3600, BEGAN, log="/lab/slurm-12.out",
    gpus=tuple(HeldGpu(at, uuid, "h100", "node", use)
               for at, (uuid, use) in enumerate(zip(UUIDS, (BUSY, IDLE), strict=True))),
    cpus=4, cpu_s=7200.0, memory_mib=65536, peak_memory_mib=3072,
)  # fmt: skip
SEEN = View("12", 12, None, "train", "ada", "COMPLETED", submitted=BEGAN, started=BEGAN,
            ended=BEGAN + 3600, exit_code=0)  # fmt: skip
CARDS = tuple(Gpu(at, uuid, "NVIDIA H100 80GB HBM3", 81559) for at, uuid in enumerate(UUIDS))


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSHPC_UTC_OFFSET_S", "0")


def test_the_page_shows_it() -> None:
    one = view.with_use(View(**{**vars(SEEN), "gpus": CARDS}), USED)
    said = queries.lines(one, {"request": None, "sbatch": None})
    assert said == list(documented("docs/how-to/usage.md", "dshpc job show 12").lines)


def test_what_slurm_has_forgotten_is_there() -> None:
    """The GPUs and the log of a job of which nothing else is known; what is known comes first."""
    one = view.with_use(SEEN, USED)
    assert [(gpu.index, gpu.uuid, gpu.type, gpu.node) for gpu in one.gpus] == [
        (0, UUIDS[0], "h100", "node"), (1, UUIDS[1], "h100", "node"),
    ]  # fmt: skip
    assert one.log == "/lab/slurm-12.out"
    told = one.to_json(time.time())
    assert (told["use"]["gpu_seconds"], told["use"]["gpu_used_seconds"]) == (7200.0, 2880.0)
    known = view.with_use(View(**{**vars(SEEN), "log": "/lab/own.log"}), USED)
    assert known.log == "/lab/own.log"
    assert SEEN.to_json(time.time())["use"] is None
