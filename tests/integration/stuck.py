"""Things that never answer, as `dshpc detect` meets them: a driver, a tool, a file, an engine."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NVML_SOURCE = Path(__file__).parents[1] / "standins" / "nvml" / "nvml.c"
LIBRARY = "libnvidia-ml.so.1"

STUB = """#!/bin/sh
trap '' TERM HUP INT
sleep 600 &
echo $! >> "$STUB_PIDS"
while :; do sleep 600; done
"""


@dataclass(frozen=True)
class Stuck:
    """How to run `dshpc detect --json` so that one thing hangs, and what must be known still."""

    probe: str  # whose evidence tells it
    state: str = "timeout"
    arguments: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    known: Callable[[dict[str, Any]], bool] = lambda found: bool(
        found["cpu"]["logical"] and found["memory"]["total_mib"] and found["platform"]["kernel"]
    )


def build_nvml(folder: Path) -> None:
    """Compile the stand-in for NVML into the folder."""
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra"]
    target = folder / LIBRARY
    subprocess.run(["cc", *flags, "-o", str(target), str(NVML_SOURCE)], check=True, timeout=120)


def eight_gpus(more: str = "") -> str:
    """The description of eight H100, for the stand-in."""
    cards = [
        f"gpu minor={n} bus=00000000:{0x1A + n:02x}:00 memory=81559 compute=9.0 cpus=0-1 mig=0 "
        f"persistence=1 compute_mode=0 ecc=1 virtualization=0 fabric=3/0 "
        f"uuid=GPU-{n:08x} name=NVIDIA H100 80GB HBM3\nnvlink links=0-17 kind=switch"
        for n in range(8)
    ]
    return "\n".join(["driver 550.163.01", "cuda 12040", *cards, more, ""])


def nvml_env(library: Path, description: Path, text: str) -> dict[str, str]:
    """The environment in which the stand-in is NVML and says what the text describes."""
    description.write_text(text)
    return {"LD_LIBRARY_PATH": str(library), "DSHPC_STANDIN_NVML": str(description)}


@contextlib.contextmanager
def scenarios(folder: Path) -> Iterator[dict[str, Stuck]]:
    """All of them by name; what they need lies in the folder and lives as long as the context."""
    library = folder / "nvml"
    library.mkdir()
    build_nvml(library)
    found = {
        "NVML": Stuck(
            "nvml",
            env=nvml_env(library, folder / "hang.txt", eight_gpus("hang nvmlInitWithFlags")),
        ),
        "NVML at the fifth card": Stuck(
            "nvml",
            env=nvml_env(library, folder / "fifth.txt", eight_gpus("hang nvmlDeviceGetName 4")),
        ),
        "nvidia-smi": _nvidia_smi(folder),
        "a pipe in a file's place": _pipe(folder),
    }
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "docker.sock"))
        listener.listen()
        host = f"unix://{folder}/docker.sock"
        found["the engine"] = Stuck("engine", env={"DOCKER_HOST": host})
        yield found


def _nvidia_smi(folder: Path) -> Stuck:
    """A library that is none, so that the tool is asked; it ignores signals and has a child."""
    broken, tools = folder / "broken", folder / "tools"
    broken.mkdir()
    (broken / LIBRARY).write_text("no library\n")
    tools.mkdir()
    (tools / "nvidia-smi").write_text(STUB)
    (tools / "nvidia-smi").chmod(0o755)
    env = {
        "LD_LIBRARY_PATH": str(broken),
        "PATH": f"{tools}:{os.environ['PATH']}",
        "STUB_PIDS": str(folder / "stub-pids"),
    }
    return Stuck("nvidia-smi", env=env)


def _pipe(folder: Path) -> Stuck:
    root = folder / "root"
    for path, text in {
        "etc/os-release": 'ID=debian\nVERSION_ID="13"\n',
        "sys/devices/system/cpu/online": "0-3\n",
        "proc/cpuinfo": "".join(f"processor : {n}\n\n" for n in range(4)),
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    os.mkfifo(root / "proc/meminfo")
    return Stuck(
        "memory",
        "error",
        ("--root", str(root)),
        known=lambda found: bool(
            found["cpu"]["logical"] == 4
            and found["platform"]["os_id"] == "debian"
            and found["memory"]["state"] == "error"
        ),
    )
