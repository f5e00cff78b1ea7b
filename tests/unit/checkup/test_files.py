"""The project folder as doctor sees it: owners, what cannot be used, what would be written now."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup import passthrough, probes, resources
from dshpc_setup.apply import apply
from dshpc_setup.apply.apply import Wanted
from dshpc_setup.checkup import files, renderings
from dshpc_setup.checkup.files import FolderSeen, project_files
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import HostFacts
from dshpc_setup.machine.recorded import RecordedMachine
from dshpc_setup.observed.model import Observed, ProjectFile
from dshpc_setup.passthrough import Passthrough, proof_key
from dshpc_setup.passthrough.handover import Handover
from dshpc_setup.plan import ClusterPlan, plan_cluster
from dshpc_setup.project.folder import PROOF, RENDERED, Project
from dshpc_setup.render import configuration, gpu_part, stanza
from dshpc_setup.settings import Settings
from dshpc_setup.setup import written
from dshpc_setup.slurm import slurm_conf

MACHINES = Path(__file__).parents[2] / "machines"
SETTINGS = Settings()


def facts_of(name: str) -> HostFacts:
    return probes.gather(RecordedMachine(MACHINES / name))


RTX = facts_of("workstation-rtx4090")
MI210 = facts_of("mi210x4-xgmi")
NO_GPU = facts_of("vm-no-gpu")


def seen(project: Project, facts: HostFacts = RTX, settings: Settings = SETTINGS) -> FolderSeen:
    return project_files(project, facts, settings, plan_cluster(facts, settings))


def file(found: FolderSeen, path: str) -> ProjectFile:
    return Observed(files=found.files).file(path) or pytest.fail(f"{path} was not looked at")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A folder as configure-environment leaves it on the workstation, by the first way."""
    made = Project(tmp_path)
    write(made, RTX)
    return made


def write(project: Project, facts: HostFacts, settings: Settings = SETTINGS) -> None:
    project.prepare()
    now = renderings.made_now(project, facts, settings, plan_cluster(facts, settings))
    wanted = {
        path: Wanted(texts[0], 0o600 if path == ".env" else 0o644)
        for path, texts in now.texts.items()
    }
    apply.write(project, apply.compare(project, wanted))


def test_what_was_just_written_is_ours_and_up_to_date(project: Project) -> None:
    found = seen(project)
    written = [item for item in found.files if item.path != "dshpc.yaml"]
    assert {item.owner for item in written} == {"ours"}
    assert {item.state for item in written} == {"good"}
    assert {item.stale for item in written if item.path != "config/manifest.json"} == {False}
    assert not any(item.offered for item in found.files)
    assert file(found, ".env").mode == 0o600
    assert file(found, ".env").text is None, "it may hold passwords"
    assert file(found, ".env").sha256 is None, "nor can one be guessed"
    slurm_conf = file(found, "config/slurm.conf")
    assert slurm_conf.sha256 == project.manifest["config/slurm.conf"]
    assert slurm_conf.text == (project.folder / "config/slurm.conf").read_text()
    assert file(found, "dshpc.yaml").owner == "missing"
    assert found.wanted_gpus == found.written_gpus == ("cdi nvidia.com/gpu=all",)
    assert found.leftovers == ()


def test_an_empty_folder(tmp_path: Path) -> None:
    found = seen(Project(tmp_path))
    assert {item.owner for item in found.files} == {"missing"}
    assert found.written_gpus is None


# --- Texts that are known without being rendered


@pytest.fixture
def noted(tmp_path: Path) -> Project:
    """A folder with the note of what its files were rendered from."""
    made = Project(tmp_path)
    write(made, NO_GPU)
    plan = plan_cluster(NO_GPU, SETTINGS)
    proof = passthrough.without_test(plan, ())
    assert proof is not None
    tag = stanza.image_tag(SETTINGS, plan.gpu_type)
    file = stanza.compose_file(made.folder, SETTINGS, NO_GPU, plan, proof, tag, None)
    changes = written.compared(made, plan, stanza.text_of(file))
    note = written.rendered(configuration.inputs(plan, file), changes)
    apply.write(made, changes, {RENDERED: note})
    return made


@pytest.fixture
def rendered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are rendered."""
    names: list[str] = []

    def render_slurm(plan: ClusterPlan, wanted: Sequence[str]) -> dict[str, str]:
        names.extend(wanted)
        return configuration.render_slurm(plan, wanted)

    monkeypatch.setattr(renderings, "render_slurm", render_slurm)
    return names


def stale(found: FolderSeen) -> set[str]:
    return {item.path for item in found.files if item.stale}


def test_the_same_inputs_are_not_rendered_again(noted: Project, rendered: list[str]) -> None:
    found = seen(noted, NO_GPU)
    assert rendered == []
    (noted.folder / RENDERED).unlink()
    assert seen(noted, NO_GPU) == found
    assert rendered, "without the note"
    assert stale(found) == set()
    assert {item.stale for item in found.files} == {False, None}


def test_other_inputs_are_rendered(noted: Project, rendered: list[str]) -> None:
    smaller = replace(NO_GPU, memory=replace(NO_GPU.memory, limit_mib=1500))
    assert stale(seen(noted, smaller)) == {"config/slurm.conf"}
    assert stale(seen(noted, NO_GPU, Settings(shm_size="9g"))) == {"docker-compose.yml"}
    assert len(rendered) == 6


def test_other_templates_are_rendered(
    noted: Project, rendered: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "other"
    shutil.copytree(resources.templates(), here)
    conf = here / "cgroup.conf.j2"
    conf.write_text(conf.read_text() + "AllowedSwapSpace=1\n")
    monkeypatch.setattr(resources, "templates", lambda: here)
    configuration._environment.cache_clear()
    try:
        assert stale(seen(noted, NO_GPU)) == {"config/cgroup.conf"}
    finally:
        configuration._environment.cache_clear()
    assert rendered


def test_an_edited_file_is_told_and_compared(noted: Project, rendered: list[str]) -> None:
    conf = noted.folder / "config/slurm.conf"
    conf.write_text(conf.read_text().replace("SlurmctldPort", "#SlurmctldPort"))
    found = file(seen(noted, NO_GPU), "config/slurm.conf")
    assert (found.owner, found.stale) == ("edited", True)
    assert rendered


@pytest.mark.parametrize("note", ["", "[]", '{"files": 3}', '{"files": {}, "inputs": 1}'])
def test_a_damaged_note_is_none(noted: Project, rendered: list[str], note: str) -> None:
    (noted.folder / RENDERED).write_text(note)
    assert stale(seen(noted, NO_GPU)) == set()
    assert rendered


def test_without_a_plan_it_is_not_known_what_would_be_written(project: Project) -> None:
    found = project_files(project, RTX, SETTINGS, None)
    assert {item.stale for item in found.files} == {None}
    assert found.wanted_gpus is None
    assert found.written_gpus == ("cdi nvidia.com/gpu=all",)


def test_owners_and_offered_texts(project: Project) -> None:
    conf = project.folder / "config/slurm.conf"
    conf.write_text(conf.read_text() + "# mine\n")
    gres = project.folder / "config/gres.conf"
    gres.write_text("# USER_CUSTOMIZED=true\n" + gres.read_text())
    (project.folder / "config/slurm.conf.dshpc-new").write_text("x")
    found = seen(project)
    assert file(found, "config/slurm.conf").owner == "edited"
    assert file(found, "config/slurm.conf").offered
    assert file(found, "config/gres.conf").owner == "custom"
    assert not file(found, "config/gres.conf").offered


def test_the_memory_of_the_machine_has_changed(project: Project) -> None:
    smaller = replace(RTX, memory=replace(RTX.memory, limit_mib=8000))
    found = seen(project, smaller)
    assert file(found, "config/slurm.conf").stale
    assert file(found, "config/gres.conf").stale is False
    assert file(found, "docker-compose.yml").stale is False


def test_the_size_of_tmp_counts_for_nothing(project: Project) -> None:
    other = replace(RTX, engine=replace(RTX.engine, disk_mib=471100))
    assert (
        "TmpDisk=471040"
        in renderings.made_now(project, other, SETTINGS, plan_cluster(other, SETTINGS)).texts[
            "config/slurm.conf"
        ][0]
    )
    assert file(seen(project, other), "config/slurm.conf").stale is False


@pytest.mark.parametrize(
    ("size", "driver"),
    [("", "json-file"), ("", "local"), ("", "journald"), ("20m", "json-file"), ("20m", "local")],
)
def test_an_engine_that_is_stopped_makes_no_file_stale(
    tmp_path: Path, size: str, driver: str
) -> None:
    """How it keeps logs is not known then, and the file says it."""
    settings = Settings(log_size=size)
    project = Project(tmp_path)
    write(project, replace(RTX, engine=replace(RTX.engine, log_driver=driver)), settings)
    silent = replace(RTX, engine=replace(RTX.engine, log_driver=None))
    assert file(seen(project, silent, settings), "docker-compose.yml").stale is False


def test_a_setting_of_the_compose_file(project: Project) -> None:
    found = seen(project, settings=Settings(shm_size="9g"))
    assert file(found, "docker-compose.yml").stale
    assert file(found, ".env").stale is False


def test_the_build_section_needs_the_image_and_is_not_compared(project: Project) -> None:
    path = project.folder / "docker-compose.yml"
    text = path.read_text()
    image = '    image: "dshpc-slurm:nvidia"\n'
    assert image in text
    path.write_text(text.replace(image, image + '    build: {"context": ".dshpc/build"}\n'))
    assert file(seen(project), "docker-compose.yml").stale is False


def test_the_folder_was_moved_to_a_machine_with_other_gpus(project: Project) -> None:
    found = seen(project, MI210)
    assert found.written_gpus == ("cdi nvidia.com/gpu=all",)
    assert found.wanted_gpus is not None
    assert "/dev/kfd" in found.wanted_gpus
    assert file(found, "docker-compose.yml").stale
    assert file(found, "config/gres.conf").stale


def test_the_gpu_is_gone(project: Project) -> None:
    assert seen(project, NO_GPU).wanted_gpus == ()


def test_a_gpu_has_come(tmp_path: Path) -> None:
    project = Project(tmp_path)
    write(project, NO_GPU)
    assert seen(project, NO_GPU).wanted_gpus == ()
    found = seen(project, RTX)
    assert found.written_gpus == ()
    assert found.wanted_gpus == ("cdi nvidia.com/gpu=all",)


def test_any_way_that_may_work_would_do_before_the_test(tmp_path: Path) -> None:
    """A driver update makes the proof void; that alone does not make the file a wrong one."""
    project = Project(tmp_path)
    plan = plan_cluster(RTX, SETTINGS)
    now = renderings.made_now(project, RTX, SETTINGS, plan)
    assert len(now.gpus) > 1
    project.prepare()
    second = now.texts["docker-compose.yml"][1]
    apply.write(project, apply.compare(project, {"docker-compose.yml": Wanted(second)}))
    found = seen(project)
    assert found.written_gpus == found.wanted_gpus == now.gpus[1]
    assert file(found, "docker-compose.yml").stale is False


@pytest.mark.parametrize(("mechanism", "wanted"), [
    ("runtime", ("runtime nvidia all",)), ("none", ()),
])  # fmt: skip
def test_a_proof_of_this_machine_decides(
    project: Project, mechanism: str, wanted: tuple[str, ...]
) -> None:
    plan = plan_cluster(RTX, SETTINGS)
    handover = Handover("runtime") if mechanism == "runtime" else Handover("none")
    proof = Passthrough(handover, "Proven.", key=proof_key(RTX, plan, True))
    project.write_json(PROOF, proof.to_json())
    found = seen(project)
    assert found.wanted_gpus == wanted
    assert file(found, "docker-compose.yml").stale
    assert bool(file(found, "config/gres.conf").stale) == (mechanism == "none")


def test_what_cannot_be_had_is_not_compared(project: Project) -> None:
    rootless = replace(RTX, engine=replace(RTX.engine, rootless=True))
    settings = Settings(isolation="enforced")
    found = seen(project, rootless, settings)
    assert file(found, "docker-compose.yml").stale is None
    assert found.wanted_gpus is None


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("path", "spoil", "says"),
    [
        ("config/slurm.conf", lambda p: p.write_bytes(b"A=b\nC\0=d\n"), "line 2: it holds a NUL"),
        ("config/gres.conf", lambda p: p.write_text("Name\n"), "line 1: Slurm expects KEY=VALUE"),
        ("config/cgroup.conf", _folder, "it is a folder"),
        ("config/slurm.conf", lambda p: p.write_bytes(b"#" * ((4 << 20) + 1)), "larger than 4 MiB"),
        ("docker-compose.yml", lambda p: p.write_text("services:\n  - {\n"), "it is not YAML: line"),
        ("docker-compose.yml", lambda p: p.write_text("a: b\n"), "it names no services"),
        ("docker-compose.yml", lambda p: p.write_bytes(b"a: b\n\xff: c\n"), "line 2: it is not UTF-8"),
        ("dshpc.yaml", lambda p: p.write_text("gpu: [\n"), "it is not YAML: line"),
        ("config/manifest.json", lambda p: p.write_text("{"), "it is not JSON"),
        ("config/manifest.json", lambda p: p.write_text("[" * 9000), "it is not JSON"),
        ("config/manifest.json", lambda p: p.write_text('{"files": []}'), "it names no files"),
    ],
)  # fmt: skip
def test_files_that_cannot_be_used(
    project: Project, path: str, spoil: Callable[[Path], object], says: str
) -> None:
    spoil(project.folder / path)
    found = file(seen(project), path)
    assert found.state == "invalid"
    assert says in (found.detail or "")


def test_a_text_that_no_report_can_hold_is_still_told_from_another(project: Project) -> None:
    path = project.folder / "config/slurm.conf"
    path.write_bytes(b"A=b # caf\xe9\n")
    latin = file(seen(project), "config/slurm.conf")
    path.write_text("#" * (65 << 10))
    long = file(seen(project), "config/slurm.conf")
    assert (latin.text, long.text, latin.state) == (None, None, "good")
    assert latin.sha256 != long.sha256
    assert None not in (latin.sha256, long.sha256)


def test_files_that_can(project: Project) -> None:
    (project.folder / "dshpc.yaml").write_text("gpu: auto\n")
    found = seen(project)
    assert {item.state for item in found.files} == {"good"}
    assert file(found, "dshpc.yaml").owner == "custom"


def test_with_a_broken_manifest_nobody_knows_whose_the_files_are(project: Project) -> None:
    (project.folder / "config/manifest.json").write_text("{")
    assert file(seen(project), "config/slurm.conf").owner == "edited"


def test_a_file_that_may_not_be_read(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may read all, and the tests may run as root: the refusal is made up."""
    real = Path.read_bytes

    def read_bytes(path: Path) -> bytes:
        if path.name == "gres.conf":
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    found = files._written(project.folder, "config/gres.conf", None, None)
    assert (found.state, found.detail) == ("unreadable", "Permission denied")


def test_what_an_interrupted_run_left(project: Project) -> None:
    (project.folder / "config/.slurm.conf.dshpc-tmp").write_text("x")
    (project.folder / "notes.dshpc-tmp").write_text("not ours")
    (project.folder / ".dshpc/journal.json").write_text(json.dumps({"renames": []}))
    assert seen(project).leftovers == (".dshpc/journal.json", "config/.slurm.conf.dshpc-tmp")


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (b"A=b\n\n# comment\nInclude other.conf\ninclude x\nNodeName=a \\\n  CPUs=4\n", None),
        (b"# caf\xe9\nA=b\n", None),
        (b"A=caf\xe9\n", "line 1: it is not UTF-8 text"),
        (b"A=b\nEmpty file for user customizations.\n", "line 2: Slurm expects KEY=VALUE"),
        (b"A=b\n<<<<<<< HEAD\n", "line 2: Slurm expects KEY=VALUE"),
        (b"SuspendExcNodes =\n", "line 1: there is no value behind SuspendExcNodes ="),
        (b"NodeName=a \\\nCPUs\\\n\nx\n", "line 4: Slurm expects"),
        (b"\xff\xfeA\0=\0", "line 1: it holds a NUL"),
    ],
)
def test_lines_that_no_slurm_reads(text: bytes, wrong: str | None) -> None:
    found = slurm_conf.wrong(text)
    assert found is None if wrong is None else (found or "").startswith(wrong)


@given(st.binary(max_size=300))
def test_no_bytes_make_the_reader_fail(data: bytes) -> None:
    found = slurm_conf.wrong(data)
    assert found is None or found.startswith("line ")
    assert found is not None or b"\0" not in data


WORDS = {
    "gpus: all": ("nvidia all by device request",),
    "gpus: [{driver: nvidia, count: all}]": ("nvidia all by device request",),
    "gpus: [{count: -1}]": ("nvidia all by device request",),
    "gpus: [{driver: nvidia, device_ids: ['0', '1']}]": ("nvidia 0,1 by device request",),
    "deploy: {resources: {reservations: {devices: [{driver: nvidia, count: all, "
    "capabilities: [gpu]}]}}}": ("nvidia all by device request",),
    "deploy: {resources: {reservations: {devices: [{driver: cdi, device_ids: [a/b=1, a/b=0]}]}}}": (
        "cdi a/b=0", "cdi a/b=1",
    ),
    "devices: [nvidia.com/gpu=all]": ("cdi nvidia.com/gpu=all",),
    "devices: ['/dev/kfd:/dev/kfd', /dev/dri/renderD128]\n    group_add: ['44', 109]": (
        "/dev/dri/renderD128", "/dev/kfd", "group 109", "group 44",
    ),
    "devices: ['/dev/null:/dev/nvidia0']": ("simulated /dev/nvidia0",),
    "devices: [{source: /dev/kfd, target: /dev/kfd}]": ("/dev/kfd",),
    "runtime: nvidia\n    environment: {NVIDIA_VISIBLE_DEVICES: all}": ("runtime nvidia all",),
    "runtime: nvidia\n    environment: [NVIDIA_VISIBLE_DEVICES=0]": ("runtime nvidia 0",),
    "runtime: runc": (),
    "group_add: ['44']": (),
    "image: x": (),
}  # fmt: skip


@pytest.mark.parametrize("keys", WORDS)
def test_the_gpu_part_in_words(keys: str) -> None:
    text = f"services:\n  other: {{gpus: all}}\n  slurm:\n    {keys}\n"
    assert gpu_part.words(gpu_part.parsed(text.encode())) == WORDS[keys]


@given(
    st.recursive(
        st.none() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(("services", "slurm", "gpus", "deploy", "devices", "driver", "runtime",
                             "resources", "reservations", "environment", "device_ids")),
            inner, max_size=4,
        ),
        max_leaves=20,
    )
)  # fmt: skip
def test_any_document_has_words(document: object) -> None:
    found = gpu_part.words(document)
    assert found == tuple(sorted(set(found)))


def test_every_machine_that_was_just_set_up_is_up_to_date(tmp_path: Path) -> None:
    """What is compared comes out the same for every kind of engine, compose and GPU."""
    looked = 0
    for name in sorted(path.name for path in MACHINES.iterdir() if (path / "docker.json").exists()):
        facts = facts_of(name)
        if facts.engine.state != "present" or facts.engine.compose is None:
            continue
        project = Project(tmp_path / name)
        try:
            write(project, facts)
        except DshpcError:
            continue
        found = seen(project, facts)
        assert not [item.path for item in found.files if item.stale], name
        assert found.wanted_gpus == found.written_gpus, name
        looked += 1
    assert looked > 60
