"""What must be true of the facts of every machine in tests/machines, whatever it is like."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, get_args

import pytest

from dshpc_setup import gpu_vendors
from dshpc_setup.cli.facts import lines
from dshpc_setup.facts import (
    ComputeMode,
    DisagreementCode,
    EngineKind,
    FabricFault,
    FabricState,
    GpuDevice,
    GpusCause,
    MigMode,
    ModuleKind,
    PlatformKind,
    State,
    UnusedCode,
    Virtualization,
    explain,
)
from dshpc_setup.machine.recorded import RecordedMachine
from dshpc_setup.probes import ranges
from dshpc_setup.probes.nvidia import devices as nvidia_devices
from dshpc_setup.probes.nvidia import health as nvidia_health
from dshpc_setup.problems import NO_NODE, RAS_BROKEN, WORDS
from tests.unit.machine.test_machines import FOLDER, NAMES, look

ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_INVARIANTS: list[Callable[[str], None]] = []

# dshpc.facts/1: a type, a tuple of the words that are allowed, or a list of one of them; "?" after
# a key for what may be null, "*" for what is there only where it says something.
_LIMIT = ("cpuset", "cgroup quota", "affinity", "engine", "cgroup")
_BECAUSE: dict[str, Any] = {"source": str, "says": str, "key*": ("own-rootless-engine",)}
SCHEMA: dict[str, Any] = {
    "schema": ("dshpc.facts/1",),
    "simulated": bool,
    "platform": {
        "kind": get_args(PlatformKind),
        "in_container": bool,
        "container?": str,
        "virtual_machine?": str,
        "os_id?": str,
        "os_version?": str,
        "os_like": [str],
        "kernel?": str,
        "arch?": str,
        "selinux?": ("enforcing", "permissive", "disabled"),
        "state": get_args(State),
        "tmp_disk_mib?": int,
        "raises_limits?": bool,
    },
    "cpu": {
        "logical?": int,
        "sockets?": int,
        "cores_per_socket?": int,
        "threads_per_core?": int,
        "usable?": int,
        "limited_by?": _LIMIT,
        "state": get_args(State),
        "socket_cpus": [str],
    },
    "memory": {
        "total_mib?": int,
        "limit_mib?": int,
        "limited_by?": _LIMIT,
        "state": get_args(State),
        "usable_mib?": int,
    },
    "gpus": {
        "state": get_args(State),
        "devices": [
            {
                "index": int,
                "vendor": gpu_vendors.names(),
                "name?": str,
                "uuid?": str,
                "pci_bus_id?": str,
                "memory_mib?": int,
                "driver_version?": str,
                "compute?": str,
                "slurm_type": str,
                "device_files": [str],
                "numa_node?": int,
                "cores?": str,
                "mig_mode": get_args(MigMode),
                "mig": [
                    {"profile": str, "uuid?": str, "memory_mib?": int, "device_files": [str]},
                ],
                "partition_of?": str,
                "problems": [str],
                "minor?": int,
                "driver?": str,
                "group_ids": [int],
                "unified_memory?": bool,
                "links": [
                    {
                        "kind": ("nvlink", "xgmi"),
                        "count": int,
                        "peer?": str,
                        "peer_kind?": ("gpu", "switch", "cpu"),
                    }
                ],
                "persistence?": bool,
                "compute_mode?": get_args(ComputeMode),
                "ecc?": bool,
                "virtualization?": get_args(Virtualization),
                "fabric?": {"state": get_args(FabricState), "status?": int},
                "partition_mode?": str,
                "health?": {
                    "volatile_dram?": int,
                    "volatile_sram?": int,
                    "aggregate_dram?": int,
                    "aggregate_sram?": int,
                    "sram_over_threshold?": bool,
                    "remap_pending?": bool,
                    "remap_failed?": bool,
                    "retirement_pending?": bool,
                    "mig_pending?": get_args(MigMode),
                    "fabric": [get_args(FabricFault)],
                    "ras": [{"block": str, "count": int}],
                },
            }
        ],
        "simulated": bool,
        "driver_version?": str,
        "cuda_version?": str,
        "detail?": str,
        "complete": bool,
        "unused": [
            {
                "vendor": gpu_vendors.names(),
                "reason": str,
                "pci_bus_id?": str,
                "name?": str,
                "driver?": str,
                "code?": get_args(UnusedCode),
            }
        ],
        "disagreements": [
            {
                "about": str,
                "layers": [_BECAUSE],
                "meaning": str,
                "finding?": str,
                "packages": [str],
                "code?": get_args(DisagreementCode),
            },
        ],
        "vendor": (*gpu_vendors.names(), "mixed", "none"),
        "causes*": [get_args(GpusCause)],
    },
    "docker": {
        "state": get_args(State),
        "server_version?": str,
        "api_version?": str,
        "kind?": get_args(EngineKind),
        "rootless?": bool,
        "cgroup_driver?": str,
        "cgroup_version?": int,
        "runtimes": [str],
        "default_runtime?": str,
        "cdi_devices": [str],
        "cdi_folders": [str],
        "compose?": str,
        "composes": [{"version": str, "argv": [str]}],
        "buildx?": str,
        "context?": str,
        "host?": str,
        "name?": str,
        "os_type?": str,
        "arch?": str,
        "cpus?": int,
        "memory_mib?": int,
        "security_options": [str],
        "root_dir?": str,
        "disk_mib?": int,
        "storage_driver?": str,
        "log_driver?": str,
        "engine_id?": str,
        "detail?": str,
        "toolkits": [
            {
                "vendor": tuple(each.name for each in gpu_vendors.with_toolkit()),
                "state": ("present", "absent"),
                "version?": str,
                "hook?": str,
                "runtime?": str,
                "ctk?": str,
                "cdi_hook?": str,
                "no_cgroups?": bool,
                "mode?": ("auto", "legacy", "cdi", "csv", "jit-cdi"),
                "capabilities": [str],
                "detail?": str,
            }
        ],
        "cdi_specs": [
            {
                "path": str,
                "state": ("present", "denied", "error"),
                "kind?": str,
                "devices": [{"name": str, "nodes": [str], "group_ids": [int]}],
                "nodes": [str],
                "missing": [str],
                "driver_version?": str,
                "detail?": str,
                "version?": str,
            }
        ],
        "registered": [str],
        "newer": [str],
        "log_max_size?": str,
        "product?": str,
    },
    "evidence": [
        {
            "probe": str,
            "state": get_args(State),
            "source": str,
            "ms": float,
            "detail?": str,
            "code?": int,
            "module*": get_args(ModuleKind),
        }
    ],
    "conclusions": [{"about": str, "says": str, "because": [_BECAUSE], "instead": [_BECAUSE]}],
}


def invariant(holds: Callable[[str], None]) -> Callable[[str], None]:
    """One of those that `test_each_machine` asks for; its name stands in the traceback of a failure."""
    _INVARIANTS.append(holds)
    return holds


@pytest.mark.parametrize("name", NAMES)
def test_each_machine(name: str) -> None:
    """A case a machine, and not one an invariant as well: of those there would be thousands."""
    for holds in _INVARIANTS:
        holds(name)


@cache
def machine(name: str) -> RecordedMachine:
    return RecordedMachine(FOLDER / name)


def wrong(value: Any, schema: Any, where: str) -> Iterator[str]:
    """What of a JSON value is not as the schema says, and where; an empty text is never right."""
    if isinstance(schema, dict):
        if not isinstance(value, dict):
            yield f"{where} is no object: {value!r}"
            return
        keys = {
            key.rstrip("?*"): key for key in schema
        }  # "?": may be null; "*": only where there is one
        left_out = {key for key in keys.keys() - value.keys() if keys[key].endswith("*")}
        yield from (f"{where}: {key}" for key in (value.keys() ^ keys.keys()) - left_out)
        for key in value.keys() & keys.keys():
            if value[key] is not None or not keys[key].endswith("?"):
                yield from wrong(value[key], schema[keys[key]], f"{where}.{key}")
    elif isinstance(schema, list):
        if not isinstance(value, list):
            yield f"{where} is no list: {value!r}"
            return
        for place, item in enumerate(value):
            yield from wrong(item, schema[0], f"{where}[{place}]")
    elif isinstance(schema, tuple):
        if value not in schema:
            yield f"{where}: {value!r}"
    elif type(value) is not schema or value == "":
        yield f"{where}: {value!r}"


@invariant
def the_json_is_as_the_schema_says(name: str) -> None:
    found = json.loads(json.dumps(look(name).to_json(explain=True)))
    assert list(wrong(found, SCHEMA, "facts")) == [], "what may stand there is listed in SCHEMA"


def test_the_schema_is_a_sieve() -> None:
    found = json.loads(json.dumps(look("h100-mig").to_json(explain=True)))
    found["gpus"]["devices"][0].update(memory_mib=0.5, uuid="", vendor="NVIDIA", more=1)
    found["cpu"]["state"] = None
    assert {text.split(":")[0] for text in wrong(found, SCHEMA, "")} == {
        ".cpu.state",
        ".gpus.devices[0]",
        ".gpus.devices[0].memory_mib",
        ".gpus.devices[0].uuid",
        ".gpus.devices[0].vendor",
    }


def about(device: GpuDevice) -> str:
    return f"gpu {device.pci_bus_id or device.uuid or device.index}"


@invariant
def all_that_is_said_has_a_reason(name: str) -> None:
    facts = look(name)
    told = Counter(item.about for item in facts.conclusions)
    assert {about(device) for device in facts.gpus.devices} <= set(told)
    assert max(told.values()) == 1, "no two conclusions are about the same"
    sections = {re.split(r"[. ]", item)[0] for item in told}
    asked = {"docker"} if (FOLDER / name / "docker.json").exists() else set()
    assert sections - {"gpu"} == {"platform", "cpu", "memory", "gpus", *asked}
    for item in facts.conclusions:
        assert item.because, item.about
        assert all(reason.says for reason in (*item.because, *item.instead)), item.about


@invariant
def each_layer_left_its_evidence(name: str) -> None:
    facts = look(name)
    seen = {item.probe for item in facts.evidence}
    assert {"platform", "virtual machine", "cpu", "memory"} <= seen
    nvidia = {"nvidia-pci", "nvidia-module", "nvidia-nodes", "nvml"}
    assert nvidia <= seen or "nvidia" in seen
    assert {"kfd", "intel"} <= seen
    for item in facts.evidence:
        assert item.source
        assert item.detail or item.state in ("present", "absent"), item


@invariant
def a_state_says_why(name: str) -> None:
    facts = look(name)
    assert (facts.gpus.state == "present") == bool(facts.gpus.devices)
    assert facts.gpus.devices or facts.gpus.detail
    assert facts.gpus.complete or facts.gpus.detail
    assert facts.engine.state == "present" or facts.engine.detail
    failed = [facts.gpus.state, facts.engine.state, facts.cpu.state, facts.memory.state]
    open_ = not facts.gpus.complete or {"denied", "error", "timeout"} & set(failed)
    assert bool(facts.unanswered()) == bool(open_), "what makes the exit code 3"


@invariant
def numbers_fit_each_other(name: str) -> None:
    facts = look(name)
    cpu, memory = facts.cpu, facts.memory
    assert cpu.usable
    assert cpu.logical
    assert 0 < cpu.usable <= cpu.logical
    assert cpu.limited_by or cpu.usable == cpu.logical
    if cpu.sockets and cpu.cores_per_socket and cpu.threads_per_core:
        assert cpu.sockets * cpu.cores_per_socket * cpu.threads_per_core == cpu.logical
    sockets = [ranges.parse(text) for text in cpu.socket_cpus]
    assert len(sockets) in (0, cpu.sockets)
    assert sum(map(len, sockets)) in (0, cpu.logical)
    assert sockets == sorted(sockets, key=min)
    assert memory.limit_mib
    assert memory.total_mib
    assert 512 < memory.limit_mib <= memory.total_mib < 1 << 24
    assert (memory.limited_by is None) == (memory.limit_mib == memory.total_mib)
    for device in facts.gpus.devices:
        assert device.memory_mib is None or 1024 < device.memory_mib < 1 << 19, device
        parts = sum(item.memory_mib or 0 for item in device.mig)
        assert parts <= (device.memory_mib or 1 << 19)
        assert 0 <= (device.numa_node or 0) < 1024
        assert all(0 < link.count <= 64 for link in device.links)


@invariant
def devices_are_told_apart(name: str) -> None:
    devices = look(name).gpus.devices
    uuids = [item.uuid for item in devices if item.uuid]
    uuids += [part.uuid for item in devices for part in item.mig if part.uuid]
    assert len(uuids) == len(set(uuids))
    whole = [item.pci_bus_id for item in devices if item.pci_bus_id and not item.partition_of]
    assert len(whole) == len(set(whole))
    files = [item.device_files for item in devices if item.device_files]
    assert len(files) == len(set(files)) or name.startswith("wsl2"), "all of WSL's are /dev/dxg"
    for item in devices:
        assert not item.pci_bus_id or ADDRESS.fullmatch(item.pci_bus_id)
        assert not item.partition_of or ADDRESS.fullmatch(item.partition_of)
        assert re.fullmatch(r"[a-z0-9][a-z0-9_.]*", item.slurm_type)
        assert not item.slurm_type.isdigit(), "Slurm refuses a type that is a number"


@invariant
def device_files_are_there_or_a_disagreement_says_so(name: str) -> None:
    facts = look(name)
    told = {item.about for item in facts.gpus.disagreements}
    for device in facts.gpus.devices:
        files = [*device.device_files, *(path for part in device.mig for path in part.device_files)]
        for path in files:
            assert machine(name).is_device(path) or path in told, path
        alone = "AMD driver" in told or "NVIDIA driver" in told  # a tool's list, and nothing else
        assert files or device.problems or alone, "nothing to give to a job, and no reason"


@invariant
def unused_cards_are_on_the_bus_and_not_in_the_list(name: str) -> None:
    facts = look(name)
    counted = {item.pci_bus_id for item in facts.gpus.devices}
    for card in facts.gpus.unused:
        assert card.pci_bus_id
        assert card.pci_bus_id not in counted
        folder = f"/sys/bus/pci/devices/{card.pci_bus_id}"
        assert machine(name).exists(folder)
        link = machine(name).readlink(f"{folder}/driver")
        assert card.driver == (link.rsplit("/", 1)[-1] if link else None)


@invariant
def every_card_on_the_bus_is_accounted_for(name: str) -> None:
    """Listed, unused or contradicted; where all failed, the state says so."""
    facts = look(name)
    if facts.platform.in_container or facts.gpus.state not in ("present", "absent"):
        return
    vendors = {f"0x{vendor.pci:04x}": vendor.name for vendor in gpu_vendors.all_of_them()}
    found = {item.pci_bus_id for item in facts.gpus.devices}
    found |= {item.pci_bus_id for item in facts.gpus.unused}
    found |= {item.about for item in facts.gpus.disagreements}
    for path in machine(name).listdir("/sys/bus/pci/devices"):
        folder = f"/sys/bus/pci/devices/{path}"
        vendor = (machine(name).read(f"{folder}/vendor").text or "").strip()
        kind = (machine(name).read(f"{folder}/class").text or "").strip()
        if vendor in vendors and kind.startswith("0x03"):
            assert path in found, f"{path} of {vendors[vendor]}"


@invariant
def texts_are_for_people(name: str) -> None:
    """No value of the program's own in a sentence, nothing empty, nothing half said."""
    facts = look(name)
    gpus = facts.gpus
    told = [gpus.detail or "", *(item.reason for item in gpus.unused)]
    for item in gpus.disagreements:
        told += [item.about, item.meaning, *(f"{one.source}: {one.says}" for one in item.layers)]
    for conclusion in facts.conclusions:
        reasons = (*conclusion.because, *conclusion.instead)
        told += [f"{conclusion.about}: {conclusion.says}"]
        told += [f"{one.source}: {one.says}" for one in reasons]
    told += [" ".join(line.strip() for line in lines(facts))]
    for text in told:
        words = r"\bNone\b|\bnull\b|\bTrue\b|\bFalse\b|\(s\)|\[\]|\{\}|\(\)"
        assert not re.search(words, text), text
        assert not re.search(r": $|: :|;;|, ,|\.\.(?:$| )", text), text
        assert not re.search(r"\b1 (?:GPUs|cards|CPUs|partitions|nodes)\b", text), text
    assert explain.lines(facts)[0] == "Why"


@invariant
def a_finding_is_an_id(name: str) -> None:
    gpus = look(name).gpus
    found = [item.finding for item in gpus.disagreements if item.finding]
    found += [problem for device in gpus.devices for problem in device.problems]
    assert all(re.fullmatch(r"DSH-(?:NV|AM|GP)-\d{3}", item) for item in found)
    assert all(problem in WORDS for device in gpus.devices for problem in device.problems)


def test_every_problem_has_words() -> None:
    named = (*vars(nvidia_devices).values(), *vars(nvidia_health).values())
    ids = {item for item in named if str(item).startswith("DSH-")}
    assert ids | {NO_NODE, RAS_BROKEN} == set(WORDS)


@invariant
def its_folder_is_whole(name: str) -> None:
    remark = json.loads(
        re.search(r"(?m)^remark: (\".*\")$", (FOLDER / name / "machine.yaml").read_text())[1]  # type: ignore[index]
    )
    assert remark.endswith(".")
    found = {path.name for path in (FOLDER / name / "expected").iterdir()} - {"etc-slurm"}
    assert {"facts.json", "explain.txt"} < found, "run --rewrite-machines once more, and read them"
    assert len(found & {"plan.json", "error.txt"}) == 1
    assert len(found) == 3
