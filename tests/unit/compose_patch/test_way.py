"""By which mechanism: the one that is named, for machines of every maker; the one remembered."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dshpc_setup import passthrough, probes
from dshpc_setup.compose_patch import way
from dshpc_setup.compose_patch.command import ChosenHandover
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.facts import Engine
from dshpc_setup.machine.recorded import RecordedMachine
from dshpc_setup.passthrough import Passthrough
from dshpc_setup.passthrough.handover import Handover, Mechanism
from dshpc_setup.plan import plan_cluster
from dshpc_setup.settings import Settings
from dshpc_setup.terminal.reporter import Silent
from tests.unit.compose_patch.expected import refused

MACHINES = Path(__file__).parents[2] / "machines"


def named(machine: str, mechanism: Mechanism, *ids: str) -> Handover:
    return way.named(RecordedMachine(str(MACHINES / machine)), mechanism, ids).handover


def test_names_of_cdi_by_maker() -> None:
    assert named("h100x8", "cdi").ids == ("nvidia.com/gpu=all",)
    assert named("h100x8", "cdi", "0", "MIG-1").ids == ("nvidia.com/gpu=0", "nvidia.com/gpu=MIG-1")
    assert named("h100x8", "cdi", "nvidia.com/gpu=3").ids == ("nvidia.com/gpu=3",)
    assert named("arc-b580-xe", "cdi").ids == ("intel.com/gpu=all",)
    amd = named("mi210x4-xgmi", "cdi", "1")
    assert (amd.ids, amd.group_add) == (("amd.com/gpu=1",), (109,))


@pytest.mark.parametrize("mechanism", ["cdi", "device-request", "runtime"])
def test_a_machine_without_gpu_or_engine_prepares_for_nvidia(mechanism: Mechanism) -> None:
    found = named("vm-no-docker", mechanism)
    assert (found.mechanism, found.driver, found.group_add) == (mechanism, "nvidia", ())


def test_requests_and_runtimes_by_maker() -> None:
    assert named("h100x8", "device-request", "0", "2").ids == ("0", "2")
    assert named("mi210x4-xgmi", "device-request").driver == "amd"
    assert named("mi210x4-xgmi", "runtime", "0").ids == ("0",)
    for mechanism in ("device-request", "runtime"):
        with pytest.raises(DshpcError) as caught:
            named("arc-b580-xe", mechanism)
        assert caught.value.exit_code == Exit.USAGE


def test_device_nodes_of_the_machine() -> None:
    found = named("mi210x4-xgmi", "devices", "0")
    assert len(found.devices) == 2
    assert found.devices[0] == "/dev/kfd:/dev/kfd"
    assert found.group_add == (109,)
    assert named("wsl2-rtx3080", "devices").devices == ("/dev/dxg:/dev/dxg",)


def test_device_nodes_need_a_machine_that_has_them() -> None:
    assert "--machine DIR" in refused(named, "vm-no-gpu", "devices").resolution[1]
    assert "driver" in refused(named, "h100x8", "devices").brief
    assert refused(named, "mi210x4-xgmi", "devices", "9").exit_code == Exit.USAGE


def test_what_is_named_wrongly() -> None:
    assert way.mechanism_of("cdi") == "cdi"
    assert refused(way.mechanism_of, "gpus").exit_code == Exit.USAGE
    assert refused(way.mechanism_of, "none").exit_code == Exit.USAGE
    assert way.devices_of(None) == ()
    assert way.devices_of("0, 2,0") == ("0", "2")
    for text in ("", ",", "0,$x", "a b", "-1"):
        assert refused(way.devices_of, text).exit_code == Exit.USAGE


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".dshpc").mkdir()
    return tmp_path


def proven(machine: str, beside: Path, *ids: str) -> ChosenHandover:
    seen = RecordedMachine(str(MACHINES / machine))
    return way.proven(seen, way.project_at((beside,), {}), ids, Silent(), replayed=True)


def test_a_proof_that_still_holds_is_taken(project: Path) -> None:
    seen = RecordedMachine(str(MACHINES / "h100x8"))
    facts = probes.gather(seen)
    key = passthrough.proof_key(facts, plan_cluster(facts, Settings()), True)
    proof = Passthrough(Handover("cdi", ids=("nvidia.com/gpu=all",)), "Proven: 8 GPUs.", key=key)
    (project / ".dshpc/passthrough.json").write_text(json.dumps(proof.to_json()))
    found = proven("h100x8", project)
    assert (found.handover.mechanism, found.known) == ("cdi", "Proven: 8 GPUs.")
    # of other GPUs it says nothing
    assert proven("h100x8", project, "0").known != "Proven: 8 GPUs."


def test_of_a_recorded_machine_nothing_is_proven(project: Path) -> None:
    found = proven("h100x8", project)
    assert found.handover.mechanism != "none"
    assert "ot tested" in found.known
    assert found.compose


def test_the_form_is_for_the_oldest_compose_that_is_installed(project: Path) -> None:
    seen = RecordedMachine(str(MACHINES / "compose-v1-and-v2"))
    versions = [each.version for each in probes.gather(seen).engine.composes]
    assert len(versions) == 2
    assert way._oldest(probes.gather(seen).engine) == "1.29.2"
    assert way._oldest(Engine("absent")) is None


def test_the_project_is_looked_for_here_and_then_beside_the_file(project: Path) -> None:
    elsewhere = project.parent / f"{project.name}-elsewhere"
    elsewhere.mkdir()
    assert way.project_at((elsewhere, project / "sub"), {}).folder == project
    assert way.project_at((elsewhere,), {}).folder == elsewhere
    assert way.project_at((elsewhere,), {"DSHPC_DIR": str(project)}).folder == project


def test_without_a_gpu_there_is_nothing_to_hand_over(project: Path) -> None:
    error = refused(proven, "vm-no-gpu", project)
    assert "no GPU" in error.brief
    assert any("--mechanism" in step for step in error.resolution)
