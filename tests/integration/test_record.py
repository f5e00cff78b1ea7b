"""`dshpc record` with real processes, tools and libraries: what they said is what is replayed."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup import probes
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.machine.recorded import RecordedMachine
from dshpc_setup.record import recorder as recording
from dshpc_setup.terminal.reporter import Silent
from tests.integration.cluster import command, wait_until
from tests.integration.stuck import LIBRARY, STUB, build_nvml, nvml_env

REPOSITORY = Path(__file__).parents[2]
UUID = "GPU-8a5c1b2d-1111-4222-8333-444455556666"
CARD = (
    "driver 550.163.01\ncuda 12040\n"
    "gpu minor=0 bus=00000000:1a:00 memory=81559 compute=9.0 cpus=0-1 mig=0 used=512 utilization=37 "
    f"temperature=41 power=98500 power_limit=700000 uuid={UUID} name=NVIDIA H100 80GB HBM3\n"
)
ROCM = {
    "card0": {
        "Unique ID": "0x5e17ab0c93d2846f",
        "Card Series": "AMD Instinct MI300X",
        "PCI Bus": "0000:83:00.0",
        "VRAM Total Memory (B)": "206141652992",
        "Serial Number": "692239001234",
    }
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nvml")
    build_nvml(folder)
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree with a card of NVIDIA and one of AMD, laid out as sysfs is: folders full of links."""
    root = tmp_path / "root"
    nvidia = "sys/devices/pci0000:00/0000:00:01.0/0000:1a:00.0"
    amd = "sys/devices/pci0000:80/0000:83:00.0"
    kfd = "sys/devices/virtual/kfd/kfd/topology/nodes"
    for path, text in {
        "etc/os-release": 'ID=debian\nVERSION_ID="13"\n',
        "proc/meminfo": "MemTotal:       16281600 kB\n",
        "proc/cpuinfo": "processor : 0\n\nprocessor : 1\n",
        "proc/self/status": "Name: x\nCpus_allowed_list: 0-1\n",
        "proc/self/cgroup": "0::/\n",
        "proc/sys/kernel/osrelease": "6.8.0-60-generic\n",
        "proc/sys/kernel/arch": "x86_64\n",
        "proc/sys/kernel/hostname": "rack4-n3\n",
        "proc/version": "Linux version 6.8.0-60-generic (b@rack4-n3) (gcc)\n",
        "sys/devices/system/cpu/online": "0-1\n",
        "sys/module/nvidia/version": "550.163.01\n",
        f"{nvidia}/vendor": "0x10de\n",
        f"{nvidia}/device": "0x2330\n",
        f"{nvidia}/class": "0x030200\n",
        f"{nvidia}/numa_node": "0\n",
        f"{amd}/vendor": "0x1002\n",
        f"{amd}/device": "0x74a1\n",
        f"{amd}/class": "0x120000\n",
        f"{amd}/unique_id": "5e17ab0c93d2846f\n",
        "sys/bus/pci/drivers/nvidia/new_id": "",
        "sys/bus/pci/drivers/amdgpu/new_id": "",
        f"{kfd}/0/properties": "cpu_cores_count 2\nsimd_count 0\n",
        f"{kfd}/1/properties": "simd_count 1216\ngfx_target_version 90402\nlocation_id 33536\n"
        "domain 0\ndrm_render_minor 128\nvendor_id 4098\ndevice_id 29857\n"
        f"unique_id {0x79CCD55167A2124A}\n",
        f"{kfd}/1/mem_banks/0/properties": "heap_type 1\nsize_in_bytes 206141652992\n",
        "sys/firmware/devicetree/base/compatible": "some,board\0other,board\0",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    for link, target in {
        "sys/bus/pci/devices/0000:1a:00.0": f"../../../{nvidia.removeprefix('sys/')}",
        "sys/bus/pci/devices/0000:83:00.0": f"../../../{amd.removeprefix('sys/')}",
        f"{nvidia}/driver": "../../../../bus/pci/drivers/nvidia",
        f"{amd}/driver": "../../../bus/pci/drivers/amdgpu",
        "sys/class/kfd/kfd": "../../devices/virtual/kfd/kfd",
    }.items():
        (root / link).parent.mkdir(parents=True, exist_ok=True)
        (root / link).symlink_to(target)
    (root / "dev/dri").mkdir(parents=True)
    return root


Dshpc = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def dshpc(tmp_path: Path) -> Dshpc:
    """Run a command line in a process of its own: (exit code, its JSON object)."""

    def run(*arguments: str, **env: str) -> tuple[int, dict[str, Any]]:
        done = subprocess.run(
            command("dshpc", *arguments, "--json"),
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=120,
            check=False,
            cwd=tmp_path,
        )
        return done.returncode, json.loads(done.stdout)

    return run


def tools(tmp_path: Path, **scripts: str) -> str:
    """A PATH with these programs on it."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for name, script in scripts.items():
        path = folder / name.replace("_", "-")
        path.write_text(script)
        path.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def test_what_is_replayed_is_what_was_seen(
    root: Path, library: Path, tmp_path: Path, dshpc: Dshpc
) -> None:
    env = {
        **nvml_env(library, tmp_path / "nvml.txt", CARD),
        "DOCKER_HOST": f"unix://{tmp_path}/docker.sock",
        "PATH": tools(
            tmp_path,
            rocm_smi=f"#!/bin/sh\ncat <<'X'\n{json.dumps(ROCM)}\nX\n",
            nvidia_smi=f"#!/bin/sh\n[ \"$1\" = -L ] && echo 'GPU 0: H100 (UUID: {UUID})'\nexit 0\n",
            docker="#!/bin/sh\n[ $1 = compose ] && echo 2.38.2\nexit 0\n",
        ),
    }
    code, told = dshpc("record", "r", "--root", str(root), **env)
    assert (code, told["differs"], told["timeouts"]) == (0, [], [])
    was, found = (
        dshpc("detect", "--root", str(root), **env)[1],
        dshpc("detect", "--machine", "r")[1],
    )
    for section in ("platform", "cpu", "memory"):
        assert found[section] == was[section]
    assert [(item["probe"], item["state"]) for item in found["evidence"]] == [
        (item["probe"], item["state"]) for item in was["evidence"]
    ]
    for before, after in zip(was["gpus"]["devices"], found["gpus"]["devices"], strict=True):
        assert before["uuid"] != after["uuid"]
        assert {**before, "uuid": None} == {**after, "uuid": None}
    nvidia, amd = found["gpus"]["devices"]
    assert (nvidia["name"], nvidia["pci_bus_id"]) == ("NVIDIA H100 80GB HBM3", "0000:1a:00.0")
    assert (amd["pci_bus_id"], amd["memory_mib"]) == ("0000:83:00.0", 206141652992 >> 20)
    assert found["docker"]["compose"] == "2.38.2"
    text = "".join(path.read_text() for path in (tmp_path / "r").iterdir())
    for secret in (UUID[4:], "79ccd551", str(0x79CCD55167A2124A), "692239001234", "rack4"):
        assert secret.lower() not in text.lower()
    replayed = RecordedMachine(tmp_path / "r")
    listed = replayed.run([replayed.which("nvidia-smi") or "", "-L"], deadline_s=1).stdout
    assert nvidia["uuid"] in listed
    assert replayed.nvml_readings(1).value["devices"][0]["utilization"] == 37
    assert replayed.read("/sys/firmware/devicetree/base/compatible").text == (
        "some,board\0other,board\0"
    )
    assert replayed.readlink("/sys/bus/pci/devices/0000:1a:00.0") is not None
    assert (replayed.readlink("/sys/bus/pci/devices/0000:1a:00.0/driver") or "").endswith("/nvidia")


def test_a_hang_is_recorded_and_replayed_at_once(
    root: Path, library: Path, tmp_path: Path, dshpc: Dshpc
) -> None:
    pids = tmp_path / "pids"
    env = {
        **nvml_env(library, tmp_path / "nvml.txt", f"{CARD}hang nvmlInitWithFlags\n"),
        "STUB_PIDS": str(pids),
        "PATH": tools(tmp_path, nvidia_smi=STUB),
    }
    code, told = dshpc("record", "r", "--root", str(root), **env)
    assert (code, told["differs"]) == (0, [])
    assert LIBRARY in told["timeouts"]
    assert any(item.endswith("nvidia-smi -L") for item in told["timeouts"])
    machine = RecordedMachine(tmp_path / "r")
    started = time.monotonic()
    facts = probes.gather(machine)
    assert time.monotonic() - started < 9  # NVML itself was waited for as long as 10 s
    assert [item.state for item in facts.evidence if item.probe == "nvml"] == ["timeout"]
    assert machine.nvml(1).state == machine.nvml_readings(1).state == "timeout"
    assert "0000:83:00.0" in {device.pci_bus_id for device in facts.gpus.devices}
    for pid in pids.read_text().split():
        wait_until(lambda pid=pid: not command_line(pid), "no tool is left behind")  # type: ignore[misc]


def command_line(pid: str) -> bytes:
    """Empty of a process that has ended, also where nobody has reaped it."""
    try:
        return Path("/proc", pid, "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def test_odd_files_and_folders(root: Path, tmp_path: Path, dshpc: Dshpc) -> None:
    os.mkfifo(root / "proc/modules")
    (root / "etc/os-release").unlink()
    (root / "etc/os-release").mkdir()
    code, told = dshpc("record", "r", "--root", str(root))
    assert (code, told["differs"]) == (0, [])
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".r")] == []
    assert RecordedMachine(tmp_path / "r").read("/proc/modules").state == "error"
    assert dshpc("record", "r", "--root", str(root))[0] == 64
    assert dshpc("detect", "--machine", str(root))[0] == 64


def test_this_machine_itself(docker_engine: str, tmp_path: Path) -> None:
    done = recording.record(LocalMachine(), tmp_path / "r", Silent())
    assert done.differs == ()
    facts = probes.gather(RecordedMachine(tmp_path / "r"))
    assert (facts.engine.state, facts.engine.server_version) == ("present", docker_engine)
