"""A report tells what the machine told: the same findings, for the same reasons."""

from __future__ import annotations

import json
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from dshpc_setup.bundle import archive, contents
from dshpc_setup.bundle.replay import machine_of, stored_of
from dshpc_setup.cli.seen import seen_machine
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.machine.recorded import RecordedMachine
from dshpc_setup.observed import stored
from dshpc_setup.observed.model import Observed
from dshpc_setup.passthrough import Attempt, Passthrough, proof_key
from dshpc_setup.passthrough.handover import Handover
from dshpc_setup.settings import Settings, load
from tests.unit.bundle import made
from tests.unit.diagnose import known as cases

NAMES = (
    "a100x2", "a100x2-version-mismatch", "amd-smi-only", "arc-b580-xe", "container-h100-two-of-eight",
    "engine-never-answers", "engine-remote-smaller", "h100-mixed-mig", "h100x8-nvlink", "macos-arm-colima",
    "mi210x4-xgmi", "mi300x-cpx", "orin-jetpack6", "rtx4090-cdi-broken", "rtx4090-rootless",
    "rtx4090-off-the-bus", "selinux-enforcing", "vm-docker-denied", "vm-no-docker", "vm-no-gpu",
    "vm-remote-engine", "workstation-rtx4090", "workstation-rtx4090-no-driver", "wsl2-rtx3080-engine-cdi",
)  # fmt: skip
OBSERVED = sorted(
    f"{path.parents[1].name}/{path.stem}" for path in made.MACHINES.glob("*/observed/*.json")
)


def written(folder: Path, data: bytes) -> Path:
    path = folder / "report.tar.gz"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("name", NAMES)
def test_a_machine_has_the_same_findings(name: str, tmp_path: Path) -> None:
    machine, log = made.captured(name)
    known = made.known_on(machine, Settings(), made.empty())
    path = written(tmp_path, made.packed(machine, made.report(machine, log, known)))
    before, after = made.same(known, path)
    assert after == before


@pytest.mark.parametrize("name", OBSERVED)
def test_a_cluster_has_the_same_findings(name: str, tmp_path: Path) -> None:
    """The words of findings are for people and take longest to scrub: only healthy cases report them."""
    where, _, case = name.partition("/")
    machine, log = made.captured(where)
    observed = cases.observed(made.MACHINES / where, case)
    known = made.known_on(machine, Settings(), observed)
    sources = made.report(machine, log, known, Settings())
    if case != "healthy":
        sources = replace(sources, findings=())
    path = written(tmp_path, made.packed(machine, sources))
    before, after = made.same(known, path)
    assert after == before
    assert stored_of(path).observed not in (None, Observed())


def test_the_cases_are_enough() -> None:
    assert len(NAMES) + len(OBSERVED) >= 24
    assert OBSERVED


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("a100x2", {"devices": "1", "prefix": "zeta-lab"}),
        ("vm-no-gpu", {"simulate": "h100:2"}),
        (
            "workstation-rtx4090",
            {"prefix": "node", "slurm_conf_extra": "SchedulerParameters=defer"},
        ),
    ],
)
def test_the_settings_are_those_of_the_report(
    name: str, flags: dict[str, str], tmp_path: Path
) -> None:
    machine, log = made.captured(name)
    settings = load(flags=flags)
    known = made.known_on(machine, settings, made.empty())
    path = written(tmp_path, made.packed(machine, made.report(machine, log, known, settings)))
    before, after = made.same(known, path)
    assert after == before
    again = made.replayed(path)
    assert again.whole == (not settings.devices)
    assert again.plan is not None
    assert known.plan is not None
    assert len(again.plan.gpus) == len(known.plan.gpus)
    assert again.facts.gpus.simulated == known.facts.gpus.simulated


def test_a_gpu_chosen_by_its_uuid_is_chosen_by_the_uuid_of_the_report(tmp_path: Path) -> None:
    machine, log = made.captured("a100x2")
    first = made.known_on(machine, Settings(), made.empty())
    chosen = first.facts.gpus.devices[1]
    assert chosen.uuid is not None
    settings = load(flags={"devices": chosen.uuid})
    known = made.known_on(machine, settings, made.empty())
    path = written(tmp_path, made.packed(machine, made.report(machine, log, known, settings)))
    again = made.replayed(path)
    assert again.plan is not None
    assert [gpu.pci_bus_id for gpu in again.plan.gpus] == [chosen.pci_bus_id]
    assert again.plan.gpus[0].uuid != chosen.uuid


@pytest.mark.parametrize(("fits", "works"), [(True, True), (True, False), (False, True)])
def test_the_test_run_counts_as_it_did(fits: bool, works: bool, tmp_path: Path) -> None:
    machine, log = made.captured("workstation-rtx4090")
    known = made.known_on(machine, Settings(), made.empty())
    assert known.plan is not None
    key = proof_key(known.facts, known.plan, known.whole) if fits else "0" * 32
    handover = Handover("device-request" if works else "none")
    proof = Passthrough(
        handover,
        "seen",
        (Attempt("device-request", "works" if works else "fails", "seen", handover=handover),),
        key,
        user=(61234, 61234),
    )
    known = replace(known, proof=proof)
    path = written(tmp_path, made.packed(machine, made.report(machine, log, known, Settings())))
    before, after = made.same(known, path)
    assert after == before
    again = made.replayed(path).proof
    assert again is not None
    assert again.works == works
    assert again.user is not None
    assert again.user[0] != 61234
    assert (before["DSH-PT-001"][0] == "ok") == (fits and works)


# What --machine may name


@pytest.fixture
def report(tmp_path: Path) -> Path:
    machine, log = made.captured("workstation-rtx4090")
    observed = cases.observed(made.MACHINES / "workstation-rtx4090", "healthy")
    known = made.known_on(machine, Settings(), observed)
    return written(tmp_path, made.packed(machine, made.report(machine, log, known, Settings())))


def test_the_archive_its_folder_and_the_machine_in_it_are_the_same(
    report: Path, tmp_path: Path
) -> None:
    with tarfile.open(report) as tar:
        for member in tar:
            target = tmp_path / "out" / member.name
            target.parent.mkdir(parents=True, exist_ok=True)
            file = tar.extractfile(member)
            assert file is not None
            target.write_bytes(file.read())
    folder = tmp_path / "out/dshpc-report"
    for path in (report, folder, folder / "machine"):
        machine = seen_machine("/", path, "")
        assert isinstance(machine, RecordedMachine)
        assert machine.nvml(1).state == "present"
        assert stored_of(path).observed == stored_of(report).observed
        assert stored_of(machine.folder).observed == stored_of(report).observed
    found = stored_of(report).observed
    assert found is not None
    assert found.cluster is not None


def test_a_recorded_machine_tells_nothing_of_a_cluster() -> None:
    told = stored_of(made.MACHINES / "a100x2")
    assert told.observed is None
    assert told.settings is None


def test_nothing_is_left_of_reading(
    report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "room").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "room"))
    machine_of(report)
    assert list((tmp_path / "room").iterdir()) == []


def test_an_error_in_the_machine_names_the_archive(report: Path, tmp_path: Path) -> None:
    files = archive.unpack(report.read_bytes())
    files["machine/machine.yaml"] = "format: 1\n"
    path = tmp_path / "broken.tar.gz"
    path.write_bytes(archive.pack("top", files))
    with pytest.raises(DshpcError) as caught:
        seen_machine("/", path, "")
    assert "broken.tar.gz: machine/machine.yaml" in caught.value.brief
    assert "dshpc-report-" not in str(caught.value.to_json())


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("observed.json", "{", "observed.json cannot be read"),
        ("observed.json", '{"schema": "dshpc.facts/1"}', "observed.json cannot be read"),
        ("observed.json", json.dumps({"schema": "dshpc.observed/1", "disks": 3}), "cannot be read"),
        ("settings/settings.json", "[]", "settings.json cannot be read"),
        ("settings/settings.json", json.dumps({"schema": "dshpc.settings/1", "texts": {"gpu": "x"}}),
         "settings.json cannot be read"),
        ("proof.json", json.dumps({"schema": "dshpc.proof/1", "proof": {}}), "proof.json cannot"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_named(report: Path, name: str, text: str, word: str) -> None:
    files = archive.unpack(report.read_bytes())
    report.write_bytes(archive.pack("top", {**files, name: text}))
    with pytest.raises(DshpcError) as caught:
        stored_of(report)
    assert word in caught.value.brief
    assert f"{report}: {name}" in caught.value.brief
    assert caught.value.exit_code == Exit.USAGE
    assert caught.value.resolution


@pytest.mark.parametrize(
    "data", [b"", b"no archive", b"\x1f\x8b\x08", archive.pack("top", {"a": "b"})]
)
def test_a_file_that_is_no_report_is_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.tar.gz"
    path.write_bytes(data)
    with pytest.raises(DshpcError, match="is no report") as caught:
        seen_machine("/", path, "")
    assert caught.value.exit_code == Exit.USAGE
    assert caught.value.details.endswith(".")


def test_what_an_older_report_does_not_hold_is_not_known(report: Path) -> None:
    files = archive.unpack(report.read_bytes())
    kept = {name: text for name, text in files.items() if name.startswith("machine/")}
    report.write_bytes(archive.pack("top", kept))
    assert stored_of(report).observed is None
    seen_machine("/", report, "")


def test_a_part_of_the_machine_that_was_taken_out_is_not_absent(report: Path) -> None:
    files = archive.unpack(report.read_bytes())
    for name in ("machine/root.txtar", "machine/nvml.json", "machine/commands.yaml"):
        report.write_bytes(archive.pack("top", {k: v for k, v in files.items() if k != name}))
        with pytest.raises(DshpcError, match=f"{name} was taken out") as caught:
            machine_of(report)
        assert caught.value.exit_code == Exit.USAGE
    rest = {name: text for name, text in files.items() if not name.startswith("log/")}
    report.write_bytes(archive.pack("top", rest))
    assert machine_of(report).nvml(1).state == "present"


def test_contents_are_told_first(report: Path) -> None:
    with tarfile.open(report) as tar:
        names = [member.name for member in tar]
    assert names[0] == f"dshpc-report/{contents.NAME}"
    assert names[1:] == sorted(names[1:])
    listed = archive.unpack(report.read_bytes())[contents.NAME]
    for name in names[1:]:
        line = next(line for line in listed.splitlines() if line.startswith(name.partition("/")[2]))
        assert re_size(line)
        assert line.endswith(".")


def re_size(line: str) -> bool:
    return any(unit in line.split() for unit in ("B", "KiB"))


def test_what_was_observed_is_whole(report: Path) -> None:
    text = archive.unpack(report.read_bytes())["observed.json"]
    found = stored.from_json(text, "observed.json")
    assert [disk.what for disk in found.disks] == ["engine", "project"]
    assert found.inside is not None
    assert found.inside.host_name == "cluster", "a name that tells nothing stays one name"
    assert found.cluster is not None
    assert found.cluster.nodes[0].name == "cluster"
