"""A scrape of 64 GPUs and 5,000 jobs: what slurmctld said read, written in both formats, and fetched.

python benchmarks/metrics.py
"""

from __future__ import annotations

import sys
import threading
import time
import urllib.request
from statistics import median

from side_by_side import arguments, limited

from dshpc_setup.cluster.gpu_jobs import ClusterGpus, Job
from dshpc_setup.cluster.gpus import GpusNow
from dshpc_setup.container import metrics_answer
from dshpc_setup.facts import GpuDevice, Gpus
from dshpc_setup.metrics import families, served
from dshpc_setup.metrics.look import Seen
from dshpc_setup.probes.readings import Reading, Readings
from dshpc_setup.slurm.gpus import SlurmGpu

GPUS, JOBS = 64, 5_000
MOST_MS = 150.0
READING = Reading(40000, 81559, 93, 60, 512.5, 700.0, (), 1980, 2619, 123456789, 0, 0)


def main() -> int:
    rounds = arguments(__doc__, 20).rounds
    queue = "".join(
        f"{'RUNNING' if at < GPUS else 'PENDING'}|debug|user{at % 40}|4|Resources\n"
        for at in range(JOBS)
    )
    devices = tuple(
        GpuDevice(at, "nvidia", "NVIDIA H100", f"GPU-{at}", f"0000:{at:02x}:00.0", 81559,
                  slurm_type="h100", device_files=(f"/dev/nvidia{at}",))
        for at in range(GPUS)
    )  # fmt: skip
    listed = tuple(SlurmGpu("h100", gpu.device_files, gpu.uuid) for gpu in devices)
    held = tuple(Job(str(at), "ada", "train", 1, (at,)) for at in range(GPUS))
    cluster = ClusterGpus("c", "ready", node="node", simulated=False, jobs=held, listed=listed)
    now = GpusNow(Gpus("present", devices=devices), Readings((READING,) * GPUS), cluster)
    pages = served.Pages()
    server = served.opened(("127.0.0.1", 0), served.handler(pages, None))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}/metrics"
    took: list[tuple[float, float]] = []
    text = ""
    for _ in range(rounds + 1):
        began = time.perf_counter()
        told = {"controller_up": True, "queue": metrics_answer.queue(queue)}
        pages.show(families.Snapshot(Seen(now, "c", True, time.time(), 0.1, told)))
        written = time.perf_counter()
        with urllib.request.urlopen(address, timeout=10) as answer:
            text = answer.read().decode()
        took.append((written - began, time.perf_counter() - written))
    if f"slurm_jobs {JOBS}.0" not in text or text.count("DCGM_FI_DEV_GPU_UTIL{") != GPUS:
        sys.exit("not all was told")
    writing, fetching = (median(each) * 1000 for each in zip(*took[1:], strict=True))
    print(f"written in {writing:.0f} ms, which no client waits for; fetched in {fetching:.0f} ms")
    return int(limited("written and fetched", writing + fetching, "ms", most=MOST_MS))


if __name__ == "__main__":
    sys.exit(main())
