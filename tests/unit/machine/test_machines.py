"""Every machine in tests/machines, replayed: what is concluded from it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from dshpc_setup import probes
from dshpc_setup.facts import HostFacts, explain
from dshpc_setup.machine.recorded import RecordedMachine, Unrecorded

FOLDER = Path(__file__).parents[2] / "machines"
NAMES = sorted(path.parent.name for path in FOLDER.glob("*/machine.yaml"))


@cache
def conclusion(name: str) -> dict[str, Any]:
    """What a human wrote down of the machine: conclusion.yaml, never rewritten by a program."""
    found: dict[str, Any] = yaml.safe_load((FOLDER / name / "conclusion.yaml").read_text())
    return found


@cache
def look(name: str) -> HostFacts:
    machine = RecordedMachine(FOLDER / name)
    return probes.gather(machine, engine=(FOLDER / name / "docker.json").exists())


def as_json(facts: HostFacts) -> dict[str, Any]:
    """Without the times, which differ from run to run."""
    found = facts.to_json()
    for item in found["evidence"]:
        del item["ms"]
    return found


@pytest.mark.parametrize("name", NAMES)
def test_facts_are_as_expected(name: str, rewrite: bool) -> None:
    found = json.loads(json.dumps(as_json(look(name))))
    path = FOLDER / name / "expected" / "facts.json"
    if rewrite:
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(found, indent=1) + "\n")
    assert found == json.loads(path.read_text())


@pytest.mark.parametrize("name", NAMES)
def test_reasons_are_as_expected(name: str, rewrite: bool) -> None:
    found = "\n".join(explain.lines(look(name), times=False)) + "\n"
    path = FOLDER / name / "expected" / "explain.txt"
    if rewrite:
        path.parent.mkdir(exist_ok=True)
        path.write_text(found)
    assert path.exists(), "write it with --rewrite-machines, and read it"
    assert found == path.read_text()


@pytest.mark.parametrize("name", NAMES)
def test_conclusion(name: str) -> None:
    expected, gpus = conclusion(name), look(name).gpus
    assert gpus.state == expected["gpus"], gpus.detail
    assert [device.slurm_type for device in gpus.devices] == expected["types"]
    assert expected.get("reason", "") in (gpus.detail or "")
    assert [device.index for device in gpus.devices] == list(range(len(gpus.devices)))
    assert gpus.state == "present" or gpus.detail, "why there is none must be said"


@pytest.mark.parametrize("name", [name for name in NAMES if "engine" in conclusion(name)])
def test_engine(name: str) -> None:
    engine = look(name).engine
    seen = {
        "state": engine.state,
        "kind": engine.kind,
        "rootless": engine.rootless,
        "compose": engine.compose.version if engine.compose else None,
    }
    assert seen == conclusion(name)["engine"]


WRITTEN_DOWN = [
    (name, section)
    for name in NAMES
    for section in ("platform", "cpus", "memory", "docker")
    if section in conclusion(name)
]


@pytest.mark.parametrize(("name", "section"), WRITTEN_DOWN)
def test_what_else_was_written_down(name: str, section: str) -> None:
    """Any fields of these sections, where conclusion.yaml names some."""
    facts = json.loads(json.dumps(look(name).to_json()))
    found = facts["cpu" if section == "cpus" else section]
    expected = conclusion(name)[section]
    assert expected
    assert {key: found[key] for key in expected} == expected


def test_what_was_written_down_is_looked_at() -> None:
    """A section of another name would be compared with nothing."""
    known = {"gpus", "types", "reason", "engine"} | {section for _, section in WRITTEN_DOWN}
    assert {key for name in NAMES for key in conclusion(name)} == known
    assert len(WRITTEN_DOWN) >= 100


def test_only_surely_nothing_is_zero_gpus() -> None:
    """Each machine with an NVIDIA or AMD card that nobody has taken away says so."""
    for name in NAMES:
        texts = RecordedMachine(FOLDER / name).tree.texts
        cards = {
            path.split("/")[-2]
            for path, text in texts.items()
            if path.endswith("/vendor")
            and text.strip() in ("0x10de", "0x1002")
            and texts.get(path.replace("/vendor", "/class"), "").startswith(("0x03", "0x12"))
        }
        found = look(name)
        if cards and found.gpus.state == "absent" and not found.platform.in_container:
            assert {item.pci_bus_id for item in found.gpus.unused} >= cards, name


def test_a_lost_card_does_not_hide_the_others() -> None:
    devices = look("h100x8-one-lost").gpus.devices
    assert [device.index for device in devices if device.problems] == [3]
    assert devices[3].problems == ("DSH-NV-020",)
    assert devices[3].pci_bus_id == "0000:66:00.0", "the only card that NVML does not name"


def test_mig_instances_have_the_card_and_both_capabilities() -> None:
    card, whole = look("h100-mig").gpus.devices
    assert [item.profile for item in card.mig] == ["3g.40gb", "1g.10gb", "1g.10gb.me"]
    assert card.mig[1].device_files == (
        "/dev/nvidia0",
        "/dev/nvidia-caps/nvidia-cap84",
        "/dev/nvidia-caps/nvidia-cap85",
    )
    assert (whole.mig_mode, whole.mig, whole.problems) == ("disabled", (), ())


def test_an_instance_whose_capability_is_not_known_has_no_files() -> None:
    card = look("h100-mig-minors-table").gpus.devices[0]
    assert [bool(item.device_files) for item in card.mig] == [True, True, False]
    assert card.mig[1].profile == "1g.10gb", "of the slices, since there was no name"


def test_partitions_name_their_card_and_share_no_uuid() -> None:
    devices = look("mi300x-cpx").gpus.devices
    assert [device.partition_of for device in devices] == ["0000:05:00.0"] * 8 + [None]
    assert [device.uuid for device in devices[:8]] == [None] * 8
    assert devices[8].uuid == f"GPU-{9876543210123456789:016x}"
    files = [device.device_files for device in devices]
    assert files == [(f"/dev/dri/renderD{128 + number}",) for number in range(9)]


def test_an_unrecorded_command_is_no_fact() -> None:
    machine = RecordedMachine(FOLDER / "vm-no-gpu")
    with pytest.raises(Unrecorded, match="uname"):
        machine.run(["uname", "-r"], deadline_s=1)
    assert not issubclass(Unrecorded, Exception)
