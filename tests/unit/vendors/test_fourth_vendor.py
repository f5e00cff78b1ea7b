"""A vendor that is one folder more, from detection to a job's variables, with no line elsewhere.

`tests/vendors/acme` is laid beside ours before anything is imported, as it would lie there.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parents[2] / "vendors"
PLACES = (TESTS / "gpu-places").read_text()


@pytest.fixture(scope="module", autouse=True)
def acme() -> Iterator[None]:
    """The package imported anew with the folder in it; afterwards the modules of before are back."""
    before = _ours()
    for name in before:
        del sys.modules[name]
    try:
        from dshpc_setup import vendors

        vendors.__path__.append(str(TESTS))
        yield
    finally:
        for name in _ours():
            del sys.modules[name]
        sys.modules.update(before)


def _ours() -> dict[str, Any]:
    return {name: each for name, each in sys.modules.items() if _is_ours(name)}


def _is_ours(name: str) -> bool:
    return name.partition(".")[0] == "dshpc_setup"


@pytest.fixture(scope="module")
def machine(acme: None) -> Any:
    from dshpc_setup.machine.recorded import RecordedMachine

    return RecordedMachine(TESTS / "machine")


@pytest.fixture(scope="module")
def facts(machine: Any) -> Any:
    from dshpc_setup import probes

    return probes.gather(machine)


@pytest.fixture(scope="module")
def plan(facts: Any) -> Any:
    from dshpc_setup.plan import plan_cluster
    from dshpc_setup.settings import Settings

    return plan_cluster(facts, replace(Settings(), gpu="acme"))


def test_it_is_detected(facts: Any) -> None:
    assert (facts.gpus.state, facts.gpus.vendor) == ("present", "acme")
    assert [(gpu.uuid, gpu.device_files) for gpu in facts.gpus.devices] == [
        ("A0", ("/dev/acme1",)),
        ("A1", ("/dev/acme0",)),
    ]
    assert ("acme-toolkit", "absent") in [(item.probe, item.state) for item in facts.evidence]
    said = {item.about: item.says for item in facts.conclusions}
    assert said["gpus"] == "2 GPUs of Acme"
    assert said["docker.toolkit acme"].startswith(
        "the Acme Container Kit is not installed, and not"
    )


def test_where_there_is_none_it_is_named() -> None:
    from dshpc_setup.probes import gpus

    detail = gpus.merge((), simulated=False).detail
    assert detail == "there is no GPU of NVIDIA, AMD, Intel or Acme", "say each vendor's label here"


def test_it_can_be_chosen() -> None:
    from dshpc_setup.settings import load

    assert load(env={"DSHPC_GPU": "acme"}).gpu == "acme"


def test_plan_and_slurms_files(plan: Any) -> None:
    from dshpc_setup.render.configuration import render_slurm

    assert (plan.vendor, plan.gpu_type) == ("acme", "acme")
    assert plan.features == ("acme", "anvil", "gpumem16g", "acme7")
    assert plan.aliases["acme"] == ("anvil",)
    gres = render_slurm(plan, ["gres.conf"])["gres.conf"]
    lines = re.findall(r"^.*Name=gpu .*$", gres, re.MULTILINE)
    assert [re.findall(r"(?:Type|File|Flags)=\S+", line) for line in lines] == [
        ["Type=anvil", f"File=/dev/acme{minor}", "Flags=no_gpu_env"] for minor in (1, 0)
    ]


def test_mps_is_not_its_own(facts: Any) -> None:
    from dshpc_setup.plan import plan_cluster
    from dshpc_setup.settings import Settings

    shared = plan_cluster(facts, replace(Settings(), gpu_sharing="mps"))
    assert shared.sharing is None
    assert "it is NVIDIA's, and there are GPUs of acme" in shared.left_out[-1]


def test_the_image(facts: Any) -> None:
    from dshpc_setup.container.hardware import image_note
    from dshpc_setup.image import context

    assert "acme libacme1\n" in context._packages()
    assert image_note("acme", facts) is None
    assert image_note("all", facts) is None
    assert "was built for AMD GPUs, but Acme GPUs are visible" in (image_note("amd", facts) or "")


def test_ways_into_a_container(facts: Any, plan: Any) -> None:
    from dshpc_setup.passthrough.candidates import candidates

    rows = {row.mechanism: row for row in candidates(facts, plan)}
    handover = rows["devices"].handover
    assert handover is not None
    nodes = ["/dev/acmectl", "/dev/acme1", "/dev/acme0"]
    assert handover.devices == tuple(f"{node}:{node}" for node in nodes)
    assert handover.group_add == (109,)
    assert rows["device-request"].reason == "--gpus hands over GPUs of NVIDIA and AMD alone"
    assert rows["runtime"].reason == "the Acme Container Kit is not installed"
    assert "https://acme.example/kit" in str(rows["runtime"].fix[0])
    steps = [str(fix) for fix in rows["cdi"].fix]
    assert any("sudo acme-ctk cdi generate" in step for step in steps), steps


def test_by_a_name_of_cdi_or_by_the_runtime(facts: Any, plan: Any) -> None:
    from dshpc_setup.passthrough.candidates import candidates
    from dshpc_setup.render.gpu_stanza import gpu_stanza

    engine = replace(facts.engine, cdi_devices=("acme.com/gpu=all",), runtimes=("runc", "acme"))
    rows: Any = {row.mechanism: row for row in candidates(replace(facts, engine=engine), plan)}
    assert rows["cdi"].handover.ids == ("acme.com/gpu=all",)
    stanza = gpu_stanza(rows["cdi"].handover, "2.38.2")
    assert stanza.environment == {"ACME_CAPABILITIES": "compute"}
    chosen = gpu_stanza(rows["runtime"].handover, "2.38.2")
    assert (chosen.runtime, chosen.environment["ACME_VISIBLE_DEVICES"]) == ("acme", "all")


def test_the_built_in_engine_hands_over_its_nodes(machine: Any, facts: Any, plan: Any) -> None:
    from dshpc_setup.passthrough.candidates import candidates
    from dshpc_setup.passthrough.driver_files import driver_files

    by_us = replace(facts, engine=replace(facts.engine, kind="builtin"))
    files = driver_files(machine, by_us)
    assert (files.files, files.missing) == ((), ())
    handed = [row.handover for row in candidates(by_us, plan, True, files) if row.handover]
    nodes = ("/dev/acmectl", "/dev/acme1", "/dev/acme0")
    assert [each.devices for each in handed] == [tuple(f"{node}:{node}" for node in nodes)]


def test_its_driver_has_files_where_its_descriptor_says_so(
    facts: Any, plan: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dshpc_setup import gpu_vendors
    from dshpc_setup.machine.recorded import RecordedMachine
    from dshpc_setup.passthrough.driver_files import driver_files

    named = gpu_vendors.DriverFiles(
        modules=("acme",), versions={"/proc/acme": r"(\d+\.\d+)"}, numbered=r"\.so\.(\d+\.\d+)$",
        libraries=("libacme.so.2",), needed=("libacme.so.2",), folders=("/opt/acme",),
    )  # fmt: skip
    every = tuple(
        replace(each, driver_files=named) if each.name == "acme" else each
        for each in gpu_vendors.all_of_them()
    )
    monkeypatch.setattr(gpu_vendors, "all_of_them", lambda: every)
    (tmp_path / "machine.yaml").write_text(
        "format: 1\nsystem: Linux\nrelease: r\nmachine: x86_64\n"
    )
    tree = (
        "-- proc/acme --\nacme 1.7\n-- opt/acme/libacme.so.2 -> {0} --\n-- opt/acme/{0} there --\n"
    )
    for name, codes in (("libacme.so.1.7", []), ("libacme.so.1.6", ["version-mismatch"])):
        (tmp_path / "root.txtar").write_text(tree.format(name))
        files = driver_files(RecordedMachine(tmp_path), facts)
        assert [lack.code for lack in files.missing] == codes
        assert bool(files.files) == (not codes)


def test_what_a_container_must_show(facts: Any, plan: Any) -> None:
    from dshpc_setup.passthrough.expected import expect
    from dshpc_setup.passthrough.look import SCRIPT

    expected = expect(facts, plan, True, {"/dev/acme0": (510, 0)})
    assert [node.path for node in expected.nodes] == ["/dev/acmectl", "/dev/acme1", "/dev/acme0"]
    assert expected.nodes[2].number == "510:0"
    assert "/dev/acme[0-9]*" in SCRIPT
    one = replace(plan, gres=plan.gres[:1])
    assert expect(facts, one, False, {}).foreign == {"/dev/acme0"}


def test_the_compose_file(facts: Any, plan: Any, tmp_path: Path) -> None:
    from dshpc_setup.passthrough import Passthrough
    from dshpc_setup.passthrough.candidates import candidates
    from dshpc_setup.render.gpu_part import parsed, words
    from dshpc_setup.render.stanza import compose_text
    from dshpc_setup.settings import Settings

    handover = next(row.handover for row in candidates(facts, plan) if row.handover is not None)
    proof = Passthrough(handover, "it was not tested")
    text = compose_text(tmp_path, Settings(), facts, plan, proof, "image", None)
    assert set(words(parsed(text.encode()))) == {
        "/dev/acme0", "/dev/acme1", "/dev/acmectl", "group 109"
    }  # fmt: skip


def test_a_file_of_the_users_own() -> None:
    from dshpc_setup.compose_patch.patch import patched
    from dshpc_setup.errors import DshpcError
    from dshpc_setup.passthrough.handover import GpuStanza

    stanza = GpuStanza("GPUs", devices=("/dev/acme0:/dev/acme0",))
    text = "services:\n  work:\n    image: x\n    devices:\n      - /dev/acme1:/dev/acme1\n"
    with pytest.raises(DshpcError, match="a GPU stanza of its own: the device /dev/acme1"):
        patched(text, "work", stanza)
    free = patched("services:\n  work:\n    image: x\n", "work", stanza)
    assert "/dev/acme0:/dev/acme0" in free.text


def test_jobs_users_are_in_the_groups_of_its_nodes(tmp_path: Path) -> None:
    from dshpc_setup.container.users import gpu_gids
    from dshpc_setup.slurm.paths import Paths

    node = tmp_path / "dev/acme0"
    node.parent.mkdir()
    node.touch()
    gid = node.stat().st_gid
    assert gpu_gids(Paths(str(tmp_path))) == ((gid,) if gid else ())
    assert _looks_at(tmp_path, "acme0")


def _looks_at(root: Path, name: str) -> bool:
    """Also for root, whose group does not count."""
    from dshpc_setup import gpu_vendors

    patterns = gpu_vendors.of("acme").nodes.files
    return any(re.fullmatch(patterns["/dev"], each.name) for each in (root / "dev").glob(name))


def test_doctor(machine: Any, facts: Any) -> None:
    from dshpc_setup.checkup import kernel, known_of
    from dshpc_setup.diagnose import diagnose
    from dshpc_setup.observed.model import KernelLog, Observed
    from dshpc_setup.settings import Settings

    log = kernel.parse("[ 9.1] acme0: stalled at 0x17\n[ 9.2] usb 1-1: new device\n")
    assert log == ("acme0: stalled at 0x17",)
    observed = Observed(kernel=KernelLog("present", log))
    found = {item.id: item for item in diagnose(known_of(machine, facts, Settings(), observed))}
    assert not [item.id for item in found.values() if item.state == "crashed"]
    assert (found["DSH-AC-001"].state, found["DSH-GP-001"].state) == ("warn", "ok")
    assert found["DSH-AC-001"].fix[0].command == "sudo acme-smi wake"
    packages = replace(observed, packages=("torch 2.9.0+cpu",))
    lacking = {item.id: item for item in diagnose(known_of(machine, facts, Settings(), packages))}
    assert lacking["DSH-PT-060"].state == "warn"
    matching = replace(observed, packages=("torch 2.9.0+acme7",))
    found = {item.id: item for item in diagnose(known_of(machine, facts, Settings(), matching))}
    assert found["DSH-PT-060"].state == "ok"


def test_a_message_of_its_programs_is_explained() -> None:
    from dshpc_setup import pasted

    told = pasted.told("RuntimeError: ACME_ERROR_STALLED")
    assert told is not None
    assert told.finding == "DSH-AC-001"


def test_a_run_without_its_gpu_tells_of_it_alone() -> None:
    from dshpc_setup.setup import without_gpu

    assert without_gpu._vendor_of("DSH-AC-001") == "acme"


def test_what_its_gpus_measure(machine: Any, facts: Any) -> None:
    from dshpc_setup.cluster import gpus

    now = gpus.look(machine, None)
    assert [(card.device.uuid, card.reading.memory_used_mib) for card in now.cards()] == [
        ("A0", 1024),
        ("A1", 0),
    ]
    assert now.readings.states == (("acme", "present"),)


def test_the_table_of_the_task_prolog(facts: Any) -> None:
    """What the prolog makes of it: tests/integration/test_task_prolog.py."""
    from dshpc_setup.container import gpu_places
    from dshpc_setup.slurm.gpus import SlurmGpu

    listed = [SlurmGpu("anvil", (f"/dev/acme{minor}",)) for minor in (0, 1)]
    assert gpu_places.table(listed, facts.gpus.devices) == PLACES


def test_a_jobs_variables(tmp_path: Path, facts: Any) -> None:
    from dshpc_setup import gpu_vendors
    from dshpc_setup.cluster import verify
    from dshpc_setup.jobs import gpu_variables, results
    from dshpc_setup.jobs.allocated_gpus import Places, parse_table
    from dshpc_setup.jobs.offer import OfferedGpu

    table = tmp_path / "gpu-places"
    table.write_text(PLACES)
    seen = {"ACME_VISIBLE": "1", "ACME_UUIDS": "A1", "SLURM_JOB_GPUS": "0", "PATH": "/bin"}
    kept = {name: seen[name] for name in gpu_variables.names(seen, str(table))}
    assert kept == {name: value for name, value in seen.items() if name != "PATH"}
    checked = results.checked({"gpus": kept})
    assert checked["gpus"] == {"ACME_UUIDS": "A1", "SLURM_JOB_GPUS": "0"}
    offered = tuple(
        OfferedGpu(gpu.index, gpu.uuid, "anvil", "anvil", gpu.name or "", "acme", 16384, None)
        for gpu in facts.gpus.devices
    )
    places = Places(parse_table(PLACES.splitlines()), offered)
    assert [gpu.index for gpu in places.of_variables(checked["gpus"])] == [1]
    assert [gpu.index for gpu in places.of_gres("gpu:anvil:1(IDX:1)")] == [0]
    assert "$ACME_VISIBLE" in verify._first_of(["A", "ACME_VISIBLE"])
    assert "ACME_VISIBLE" in gpu_vendors.variables()


def test_what_a_recording_asks_for() -> None:
    from dshpc_setup.record import capture

    assert "acme-smi" in capture.PROGRAMS
    assert "ACME_VISIBLE" in capture.ENVIRONMENT
    assert capture._GPU_NODE.match("acme0")


def test_a_recording_keeps_its_words(facts: Any, tmp_path: Path) -> None:
    """Those of the descriptor: the lists of record/vocabulary know of no Acme."""
    from dshpc_setup import probes
    from dshpc_setup.machine import CommandResult
    from dshpc_setup.machine.recorded import RecordedMachine, Unrecorded
    from dshpc_setup.record import recorder, vocabulary
    from dshpc_setup.terminal.reporter import Silent

    class Made(RecordedMachine):
        """What its folder does not hold is not there."""

        def run(self, argv: Any, **more: Any) -> CommandResult:
            with contextlib.suppress(Unrecorded):
                return super().run(argv, **more)
            return CommandResult(tuple(argv), "absent", None, "", "not there", 1.0)

        def which(self, program: str) -> str | None:
            with contextlib.suppress(Unrecorded):
                return super().which(program)
            return None

    for word in ("Acme", "acme-smi", "acmectl", "acme0", "anvil"):
        assert all(map(vocabulary.is_listed, word.split("-"))), word
    assert not vocabulary.is_listed("acme1234")  # a number of somebody's
    recorder.record(Made(TESTS / "machine"), tmp_path / "recorded", Silent())
    again = probes.gather(RecordedMachine(tmp_path / "recorded"))
    wanted = facts.gpus.devices
    assert [(gpu.name, gpu.device_files, gpu.driver) for gpu in again.gpus.devices] == [
        (gpu.name, gpu.device_files, gpu.driver) for gpu in wanted
    ]


def test_made_up_gpus_hide_its_own() -> None:
    from dshpc_setup.machine.recorded import RecordedMachine
    from dshpc_setup.machine.simulated import SimulatedMachine

    made_up = SimulatedMachine(RecordedMachine(TESTS / "machine"), "t4:1", devices_exist=True)
    assert not made_up.is_device("/dev/acme0")
