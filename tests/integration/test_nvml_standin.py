"""nvidia-ml-py against a real shared library: what it says, and that its faults stay its own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dshpc_setup import probes
from dshpc_setup.machine import Reply
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.probes.nvidia import health
from dshpc_setup.probes.nvidia import layers as nvidia_layers
from dshpc_setup.probes.nvidia import probe as nvidia
from dshpc_setup.problems import BROKEN

SOURCE = Path(__file__).parents[1] / "standins" / "nvml" / "nvml.c"

TWO_CARDS = """\
driver 550.163.01
cuda 12040
gpu minor=0 bus=00000000:1a:00 memory=81559 compute=9.0 cpus=0-1 mig=1 uuid=GPU-0a name=NVIDIA H100 80GB HBM3
instance gi=1 ci=0 memory=40448 slices=3/3 uuid=MIG-01 profile=3g.40gb
instance gi=9 ci=0 memory=9728 slices=1/1 uuid=MIG-02 profile=1g.10gb
gpu minor=3 bus=00000000:3b:00 memory=15360 compute=7.5 cpus=0-1,64-65 uuid=GPU-0b name=Tesla T4
"""

# Two linked cards behind a switch, as a server has them: all that NVML may be asked.
LINKED = """\
driver 570.124.06
cuda 12080
gpu minor=0 bus=00000000:1a:00 memory=81559 compute=9.0 mig=0 uuid=GPU-0a persistence=1 compute_mode=3 ecc=1 \
virtualization=1 fabric=3/0 health=426/1 dram=3/14 sram=0/2 threshold=0 rows=9/1/1 retired=0 recovery=2 \
mig_pending=1 used=512 utilization=37 temperature=41 power=98500 \
power_limit=700000 sm_clock=1980 memory_clock=2619 energy=77 name=NVIDIA H100 80GB HBM3
nvlink links=0-1 peer=00000000:83:00 kind=switch
nvlink links=2 peer=00000000:84:00 kind=switch up=0
nvlink links=3 peer=00000000:3b:00 kind=gpu
process pid=4711 memory=400
process pid=4712 memory=12 kind=graphics
gpu minor=1 bus=00000000:3b:00 memory=81559 compute=9.0 mig=1 uuid=GPU-0b fabric=2 name=NVIDIA H100 80GB HBM3
instance gi=9 ci=0 memory=9984 used=13 slices=1/1 uuid=MIG-01 profile=1g.10gb
"""

Describe = Callable[[str], LocalMachine]


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nvml")
    target = folder / "libnvidia-ml.so.1"
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra"]
    subprocess.run(["gcc", *flags, "-o", str(target), str(SOURCE)], check=True, timeout=120)
    return folder


@pytest.fixture
def describe(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Describe:
    """A machine whose loader finds the stand-in, which reads the text given."""

    def make(text: str) -> LocalMachine:
        path = tmp_path / "nvml.txt"
        path.write_text(text)
        monkeypatch.setenv("DSHPC_STANDIN_NVML", str(path))
        monkeypatch.setenv("LD_LIBRARY_PATH", str(library))
        return LocalMachine()

    return make


def test_every_field_of_every_card(describe: Describe) -> None:
    reply = describe(TWO_CARDS).nvml(60)
    assert (reply.state, reply.detail) == ("present", None)
    assert (reply.value["driver_version"], reply.value["cuda_version"]) == ("550.163.01", 12040)
    first, second = reply.value["devices"]
    assert (first["name"], first["uuid"], first["minor"]) == ("NVIDIA H100 80GB HBM3", "GPU-0a", 0)
    assert first["memory_bytes"] == 81559 << 20
    assert (first["compute"], first["mig_mode"]) == ([9, 0], 1)
    assert [(part["gi"], part["uuid"], part["slices"]) for part in first["mig"]] == [
        (1, "MIG-01", [3, 3, 40448]),
        (9, "MIG-02", [1, 1, 9728]),
    ]
    assert second["errors"]["mig_mode"] == 3
    assert "mig_mode" not in second
    assert second["pci_bus_id"].lower() == "00000000:3b:00.0"


def test_modes_fabric_and_links(describe: Describe) -> None:
    first, second = describe(LINKED).nvml(60).value["devices"]
    modes = ("persistence", "compute_mode", "ecc", "virtualization")
    assert [first[key] for key in modes] == [1, 3, 1, 1]
    assert first["fabric"] == {"state": 3, "status": 0, "health_mask": 426, "health_summary": 1}
    assert first["nvlinks"] == [
        {"link": 0, "kind": "switch", "peer": "0000:83:00.0"},
        {"link": 1, "kind": "switch", "peer": "0000:83:00.0"},
        {"link": 3, "kind": "gpu", "peer": "0000:3b:00.0"},
    ]
    assert first["errors"] == {}
    assert second["fabric"] == {"state": 2, "status": 0}
    assert second["errors"] == dict.fromkeys((*modes, "nvlinks", "recovery_action"), 3)
    assert first["recovery_action"] == 2


def test_what_a_card_counts_of_its_own_faults(describe: Describe) -> None:
    machine = describe(LINKED)
    first, second = machine.nvml(60).value["devices"]
    assert first["ecc_errors"] == {
        "volatile_dram": 3, "volatile_sram": 0, "aggregate_dram": 14, "aggregate_sram": 2,
        "sram_threshold": 0,
    }  # fmt: skip
    assert first["remapped"] == {"uncorrectable": 9, "pending": 1, "failed": 1}
    assert (first["mig_mode"], first["mig_pending"], first["retired_pending"]) == (0, 1, 0)
    assert not {"ecc_errors", "remapped", "retired_pending"} & set(second), (
        "without ECC nothing is asked"
    )
    told = health.of(first)
    assert health.problems(told, fabric=True) == (BROKEN,)


def test_what_a_card_measures(describe: Describe) -> None:
    first, second = describe(LINKED).nvml_readings(60).value["devices"]
    assert (first["memory_used_bytes"], first["memory_total_bytes"]) == (512 << 20, 81559 << 20)
    assert (first["utilization"], first["temperature_c"]) == (37, 41)
    assert (first["power_mw"], first["power_limit_mw"]) == (98500, 700000)
    part = second["mig"][0]
    assert (part["uuid"], part["memory_used_bytes"]) == ("MIG-01", 13 << 20)
    assert (first["sm_clock_mhz"], first["memory_clock_mhz"], first["energy_mj"]) == (
        1980,
        2619,
        77,
    )
    assert first["ecc_uncorrected"] == 3
    unknown = ("utilization", "temperature_c", "power_mw", "power_limit_mw", "sm_clock_mhz",
               "memory_clock_mhz", "energy_mj", "ecc_corrected", "ecc_uncorrected")  # fmt: skip
    assert second["errors"] == dict.fromkeys(unknown, 3)


def test_a_driver_that_knows_fewer_functions_hides_nothing_else(describe: Describe) -> None:
    unknown = ("GetGpuFabricInfoV", "GetPersistenceMode", "GetNvLinkRemoteDeviceType")
    rules = "".join(f"fail nvmlDevice{name} 13\n" for name in unknown)
    first, _ = describe(LINKED + rules).nvml(60).value["devices"]
    assert first["errors"] == {"persistence": 13}
    assert first["fabric"] == {"state": 3, "status": 0}  # by the call without a version
    assert first["nvlinks"][0] == {"link": 0, "peer": "0000:83:00.0"}


def test_a_card_is_asked_for_links_until_it_says_that_there_are_none(describe: Describe) -> None:
    for rule, code in (("3", 3), ("2", 2), ("15", 15)):
        text = f"{LINKED}fail nvmlDeviceGetNvLinkState {rule} 0\n"
        first, _ = describe(text).nvml(60).value["devices"]
        assert "nvlinks" not in first
        assert first["errors"] == {"nvlinks": code}


def test_links_whose_peer_is_not_told(describe: Describe) -> None:
    text = LINKED.replace("peer=00000000:83:00", "peer=00000000:00:00")
    first, _ = describe(text).nvml(60).value["devices"]
    assert first["nvlinks"][0] == {"link": 0, "kind": "switch"}


def test_processes_of_a_card(describe: Describe, library: Path) -> None:
    script = (
        "import pynvml as n; n.nvmlInit(); h = n.nvmlDeviceGetHandleByIndex(0);"
        "print([(p.pid, p.usedGpuMemory >> 20) for p in n.nvmlDeviceGetComputeRunningProcesses(h)],"
        "[p.pid for p in n.nvmlDeviceGetGraphicsRunningProcesses(h)],"
        "n.nvmlDeviceGetTemperatureV(h, 0), n.nvmlDeviceGetMemoryInfo(h, version=n.nvmlMemory_v2).used)"
    )
    describe(LINKED)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == f"[(4711, 400)] [4712] 41 {512 << 20}"


def test_the_probe_makes_devices_of_it(describe: Describe, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = describe(TWO_CARDS)
    # This test may itself run in a container, which sees only nodes that it was given.
    monkeypatch.setattr(nvidia_layers, "in_container", lambda _: False)
    found = nvidia.probe(machine, 60)
    gpus = found.fact
    assert gpus.state == "present", gpus.detail
    assert [device.slurm_type for device in gpus.devices] == ["h100", "t4"]
    assert [device.device_files for device in gpus.devices] == [
        ("/dev/nvidia0",),
        ("/dev/nvidia3",),
    ]
    assert [part.profile for part in gpus.devices[0].mig] == ["3g.40gb", "1g.10gb"]
    assert ("nvml", "present") in [(item.probe, item.state) for item in found.evidence]


@pytest.mark.parametrize(
    ("rule", "state", "code"),
    [
        ("fail nvmlInitWithFlags 4", "denied", 4),
        ("fail nvmlInitWithFlags 9", "error", 9),
        ("fail nvmlInitWithFlags 18", "error", 18),
        ("fail nvmlInitWithFlags 999", "error", 999),
    ],
)
def test_a_refusal_keeps_its_code(describe: Describe, rule: str, state: str, code: int) -> None:
    reply = describe(f"{TWO_CARDS}{rule}\n").nvml(60)
    assert (reply.state, reply.code) == (state, code)
    assert reply.detail


def test_one_lost_card_and_one_refused_field_hide_nothing(describe: Describe) -> None:
    rules = "fail nvmlDeviceGetHandleByIndex_v2 15 0\nfail nvmlDeviceGetMemoryInfo 3 1\n"
    reply = describe(TWO_CARDS + rules).nvml(60)
    lost, healthy = reply.value["devices"]
    assert (reply.state, lost["error"]) == ("present", 15)
    assert healthy["name"] == "Tesla T4"
    assert healthy["errors"]["memory_bytes"] == 3


def test_a_hang_ends_at_the_deadline(describe: Describe) -> None:
    machine = describe(f"{TWO_CARDS}hang nvmlDeviceGetUUID\n")
    started = time.monotonic()
    reply = machine.nvml(1.0)
    assert time.monotonic() - started < 30
    assert reply.state == "timeout"


def test_a_hang_does_not_delay_the_other_probes(
    describe: Describe, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = describe(f"{TWO_CARDS}hang nvmlInitWithFlags\n")
    monkeypatch.setattr(nvidia_layers, "in_container", lambda _: False)
    started = time.monotonic()
    facts = probes.gather(machine, engine=False, deadline_s=1.0)
    if not (facts.memory.total_mib and facts.cpu.logical):  # on a very busy machine
        facts = probes.gather(machine, engine=False, deadline_s=15.0)
    assert time.monotonic() - started < 50
    assert facts.gpus.state == "timeout", facts.gpus.detail
    assert facts.memory.total_mib
    assert facts.cpu.logical


@pytest.mark.usefixtures("no_crash_dump")
def test_a_crash_is_an_error_with_its_signal(describe: Describe) -> None:
    reply: Reply = describe(f"{TWO_CARDS}crash nvmlDeviceGetCount_v2\n").nvml(60)
    assert reply.state == "error"
    assert "SIGSEGV" in (reply.detail or "")


def test_what_the_library_prints_is_not_taken_for_an_answer(describe: Describe) -> None:
    reply = describe(f'{TWO_CARDS}say nvmlInitWithFlags {{"end": true}}\n').nvml(60)
    assert reply.state == "present"
    assert len(reply.value["devices"]) == 2


def test_no_library_is_absent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    reply = LocalMachine().nvml(60)
    if reply.state == "present":
        pytest.fail("this machine has an NVML of its own; run the tests where there is none")
    assert (reply.state, reply.code) == ("absent", 12)
