"""10,000 random hand edits of the four files: never overwritten, never a traceback, on both sides."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from dshpc_setup import probes
from dshpc_setup.apply import apply
from dshpc_setup.apply.apply import Wanted
from dshpc_setup.container import check, config, hardware_fit
from dshpc_setup.container.complaints import explain
from dshpc_setup.container.config import Candidate
from dshpc_setup.container.look import Seen
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import Compose, Cpu, HostFacts, Memory
from dshpc_setup.files import ownership
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.machine.simulated import SimulatedMachine
from dshpc_setup.passthrough.handover import Handover
from dshpc_setup.passthrough.model import Passthrough
from dshpc_setup.plan import plan_cluster
from dshpc_setup.project.folder import Project
from dshpc_setup.render.configuration import render_slurm
from dshpc_setup.render.stanza import compose_text
from dshpc_setup.settings import Settings, load
from dshpc_setup.slurm.paths import Paths
from tests.unit.edits import MARKS, edited, long_line
from tests.unit.machine.in_place import EMPTY

SEED, EACH = 5, 2500
COMPOSE = "docker-compose.yml"
FILES = ("config/slurm.conf", "config/gres.conf", "config/cgroup.conf", COMPOSE)
NODE = "dshpc"


def facts_of(profile: str) -> HostFacts:
    facts = probes.gather(SimulatedMachine(EMPTY, profile, devices_exist=True), engine=False)
    engine = replace(facts.engine, compose=Compose("2.30.0", ("docker", "compose")))
    return replace(facts, cpu=Cpu(8, usable=8), memory=Memory(32000, 32000), engine=engine)


def texts_of(profile: str) -> dict[str, str]:
    """What is rendered for a machine, by its path in the project folder."""
    facts = facts_of(profile)
    plan = plan_cluster(facts, Settings())
    passthrough = Passthrough(Handover("none"), "GPUs are simulated.")
    compose = compose_text(
        Path("/home/ada/lab"), load(flags={}), facts, plan, passthrough, "dshpc-slurm:none", None
    )
    slurm = {f"config/{name}": text for name, text in render_slurm(plan).items()}
    return {**{name: slurm[name] for name in FILES[:3]}, COMPOSE: compose}


BEFORE, NOW = texts_of("h100:2+t4:1"), texts_of("h100:1")
RENDERED = {name.removeprefix("config/"): NOW[name] for name in FILES[:3]}
SEEN = Seen(facts_of("h100:1"), plan_cluster(facts_of("h100:1"), Settings()), "image", ())


def wanted(texts: Mapping[str, str]) -> dict[str, Wanted]:
    return {path: Wanted(text) for path, text in texts.items()}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A folder in which all four files are as they were written by an earlier run."""
    made = Project(tmp_path / "project")
    made.prepare()
    apply.write(made, apply.compare(made, wanted(BEFORE)))
    return made


@pytest.mark.parametrize("path", FILES)
def test_no_edit_is_overwritten_or_ends_in_a_traceback(
    project: Project, path: str, full: bool
) -> None:
    """The host looks at each of them; the container, which looks closer, at a sample of them."""
    choose = random.Random(f"{SEED}/{path}")
    file = project.folder / path
    original = file.read_bytes()
    paths = Paths(str(project.folder.parent / "root"))
    Path(paths.root).mkdir()
    Path(paths.config).symlink_to(project.folder / "config")
    owners = set()
    for number in range(EACH):
        content = edited(original, choose)
        file.write_bytes(content)
        (change,) = apply.compare(project, {path: Wanted(NOW[path])})
        if content not in (original, NOW[path].encode()):
            assert change.action in ("kept-custom", "kept-edited"), (number, content)
            assert change.target in (None, f"{path}.dshpc-new"), (number, content)
            owners.add(change.action)
        if number % 100 == 0:
            change.diff()
            apply.write(project, (change,))
            assert file.read_bytes() == (content if "kept" in change.action else NOW[path].encode())
            _as_before(project, path, change.action)
        if path != COMPOSE and (full or number % 10 == 0):
            in_container(paths, path.removeprefix("config/"), content, thorough=number % 100 == 0)
            assert file.read_bytes() == content
    assert owners == {"kept-custom", "kept-edited"}


def _as_before(project: Project, path: str, action: str) -> None:
    """The manifest says again what the original was, where a file was taken for ours."""
    if "kept" not in action:
        (project.folder / path).write_text(BEFORE[path])
        manifest = project.folder / "config/manifest.json"
        text = manifest.read_text()
        old, new = ownership.digest(NOW[path]), ownership.digest(BEFORE[path])
        manifest.write_text(text.replace(old, new))


def in_container(paths: Paths, name: str, content: bytes, *, thorough: bool) -> None:
    """What the start asks of the same file, unless it says that this is none that Slurm could read."""
    found = _answer(lambda: config.choose(paths, RENDERED))
    if not isinstance(found, Candidate):
        return
    host = ownership.classify(
        content.decode("utf-8", "surrogateescape"), ownership.digest(BEFORE[f"config/{name}"])
    )
    kept = found.customized.get(name, "ours")
    assert kept == host, content[:3000]
    if kept != "ours":
        read = content.removeprefix(b"\xef\xbb\xbf")  # a mark at the beginning, which Slurm refuses
        same = found.texts[name].encode("utf-8", "surrogateescape") == read
        assert same, f"not used as it is, byte for byte: {content[:3000]!r}"
    for question in _questions(found):
        _answer(question)
    if thorough:
        _answer(lambda: explain(_complaints(found.texts[name]), found))


def _questions(found: Candidate) -> tuple[Callable[[], object], ...]:
    real = LocalMachine().is_device
    return (
        lambda: check.node_name(found, NODE),
        lambda: check.device_error(found, real),
        lambda: check.host_error(found, NODE),
        lambda: check.port(found.texts, "SlurmctldPort", 6817),
        lambda: check.gres_of(found, NODE),
        lambda: hardware_fit.own_misfit(found, SEEN, NODE, real),
        lambda: hardware_fit.following(found, NODE),
    )


def _answer(question: Callable[[], object]) -> object:
    """An answer, or an error for people with a next step; anything else is a defect."""
    try:
        result = question()
    except DshpcError as error:
        result = error
    if isinstance(result, DshpcError):
        assert result.brief
        assert result.resolution
        assert len(result.brief) + len(result.details) < 20_000, "not for people"
    return result


def _complaints(text: str) -> str:
    """As slurmd speaks of lines that it does not know."""
    keys = [line.partition("=")[0].strip() for line in text.split("\n") if "=" in line][:5]
    said = [f"slurmd: error: _parse_next_key: Parsing error at unrecognized key: {k}" for k in keys]
    return "\n".join([*said, "slurmd: fatal: Unable to process configuration file"])


@pytest.mark.parametrize("path", FILES[:3])
def test_a_megabyte_on_one_line_is_answered_in_time(project: Project, path: str) -> None:
    paths = Paths(str(project.folder.parent / "root"))
    Path(paths.root).mkdir()
    Path(paths.config).symlink_to(project.folder / "config")
    choose = random.Random(SEED)
    for _ in range(4):
        content = long_line((project.folder / path).read_bytes(), choose)
        (project.folder / path).write_bytes(content)
        (change,) = apply.compare(project, {path: Wanted(NOW[path])})
        assert change.action == "kept-edited"
        in_container(paths, path.removeprefix("config/"), content, thorough=True)


@pytest.mark.parametrize(("mark", "is_one"), MARKS)
def test_the_marker_in_odd_forms_means_the_same_on_both_sides(
    project: Project, mark: bytes, is_one: bool
) -> None:
    file = project.folder / "config/slurm.conf"
    content = file.read_bytes() + mark + b"\n"
    file.write_bytes(content)
    (change,) = apply.compare(project, {"config/slurm.conf": Wanted(NOW["config/slurm.conf"])})
    assert change.action == ("kept-custom" if is_one else "kept-edited")
    paths = Paths(str(project.folder.parent / "root"))
    Path(paths.root).mkdir()
    Path(paths.config).symlink_to(project.folder / "config")
    found = config.choose(paths, RENDERED).customized
    assert found["slurm.conf"] == ("custom" if is_one else "edited")
