"""`dshpc detect`: its ratios to the least that could be done, and its lateness where things hang.

    python benchmarks/detect.py

NVML is the stand-in of the tests, compiled here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from side_by_side import arguments, compare, limited, program

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.integration.stuck import Stuck, build_nvml, eight_gpus, nvml_env, scenarios

MOST_GPUS = 3.0
MOST_WHOLE = 20.0
DEADLINE_S = 2.0
MOST_LATE_S = 0.3

BARE = """
import json, os
import pynvml as n
n.nvmlInit()
def ask(f, *a):
    try:
        value = f(*a)
        return value if isinstance(value, (int, str, list)) else str(value)
    except (n.NVMLError, AttributeError):
        return None
found = [ask(n.nvmlSystemGetDriverVersion), ask(n.nvmlSystemGetNVMLVersion),
         ask(n.nvmlSystemGetCudaDriverVersion)]
words = 1 + os.cpu_count() // 64
for i in range(n.nvmlDeviceGetCount()):
    h = n.nvmlDeviceGetHandleByIndex(i)
    row = [ask(f, h) for f in (
        n.nvmlDeviceGetName, n.nvmlDeviceGetUUID, n.nvmlDeviceGetPciInfo,
        n.nvmlDeviceGetMemoryInfo, n.nvmlDeviceGetMinorNumber,
        n.nvmlDeviceGetCudaComputeCapability, n.nvmlDeviceGetNumaNodeId, n.nvmlDeviceGetMigMode,
        n.nvmlDeviceGetPersistenceMode, n.nvmlDeviceGetComputeMode, n.nvmlDeviceGetEccMode,
        n.nvmlDeviceGetVirtualizationMode)]
    row.append(list(ask(n.nvmlDeviceGetCpuAffinity, h, words) or ()))
    row.append(ask(n.nvmlDeviceGetGpuFabricInfoV, h, n.byref(n.c_nvmlGpuFabricInfoV_t())))
    for link in range(36):
        up = ask(n.nvmlDeviceGetNvLinkState, h, link)
        if up is None:
            break
        if up:
            row.append([ask(n.nvmlDeviceGetNvLinkRemoteDeviceType, h, link),
                        ask(n.nvmlDeviceGetNvLinkRemotePciInfo, h, link)])
    found.append(row)
print(json.dumps(found, indent=2))
"""


def late_by(name: str, stuck: Stuck, rounds: int) -> bool:
    """Whether the worst of the rounds is over the limit, or a fact is missing."""
    command = [program(), "detect", "--json", "--deadline", str(DEADLINE_S), *stuck.arguments]
    worst, complete = -DEADLINE_S, True
    for _ in range(rounds):
        began = time.perf_counter()
        done = subprocess.run(
            command,
            env={**os.environ, **stuck.env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
        )
        worst = max(worst, time.perf_counter() - began - DEADLINE_S)
        found = json.loads(done.stdout)
        states = {(item["probe"], item["state"]) for item in found["evidence"]}
        complete &= done.returncode == 3 and (stuck.probe, stuck.state) in states
        complete &= stuck.known(found)
    if not complete:
        sys.exit(f"{name} hangs: facts are missing that do not come from it")
    return limited(f"detect, {name} hangs: after the deadline", worst, "s", most=MOST_LATE_S)


def main() -> int:
    options = arguments(__doc__, 20)
    os.chdir("/")  # a project's settings would count
    nothing = [sys.executable, "-c", "pass"]
    worse = []
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        build_nvml(folder)
        (folder / "bare.py").write_text(BARE)
        worse.append(
            compare(
                "dshpc detect --only gpus --json, 8 GPUs, against a bare script",
                [program(), "detect", "--only", "gpus", "--json"],
                [sys.executable, str(folder / "bare.py")],
                most=MOST_GPUS,
                rounds=options.rounds,
                env={**os.environ, **nvml_env(folder, folder / "nvml.txt", eight_gpus())},
            )
        )
        for title, env in (
            ("with this machine's engine", {}),
            ("with no engine", {"DOCKER_HOST": f"unix://{folder}/none.sock"}),
        ):
            worse.append(
                compare(
                    f"dshpc detect --json {title}, no GPU, against python -c pass",
                    [program(), "detect", "--json"],
                    nothing,
                    most=MOST_WHOLE,
                    rounds=options.rounds,
                    env={**os.environ, **env},
                )
            )
        (folder / "stuck").mkdir()
        with scenarios(folder / "stuck") as found:
            rounds = max(1, options.rounds // 5)
            worse += [late_by(name, stuck, rounds) for name, stuck in found.items()]
        _clean(folder / "stuck" / "stub-pids")
    return int(any(worse))


def _clean(pids: Path) -> None:
    """What the stub left behind, should anything of it be left."""
    for pid in pids.read_text().split() if pids.exists() else ():
        with open("/dev/null", "wb") as null:
            subprocess.run(["kill", "-9", pid], stderr=null, check=False)


if __name__ == "__main__":
    sys.exit(main())
