"""A person edits a file at the moment in which it is replaced: nothing that the person wrote is gone."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.apply import apply, journal
from dshpc_setup.apply.apply import Wanted
from dshpc_setup.cli import inspect
from dshpc_setup.compose_patch import file as compose_file
from dshpc_setup.errors import DshpcError
from dshpc_setup.files import atomic, ownership, swap
from dshpc_setup.project.folder import Project
from tests.unit.apply.test_apply import Kill, Killed

OURS, NEW = "ours 1\n", "ours 2\n"
FILE = "config/slurm.conf"
_REAL = {name: getattr(os, name) for name in ("rename", "replace", "link", "unlink", "open")}


class Person:
    """Does one thing with the file at each of the moments given: before or after any of our calls."""

    def __init__(self, final: Path, plan: dict[int, str]) -> None:
        self.final, self.plan = final, plan
        self.moment = 0
        self.wrote = 0
        self.alive: set[str] = set()  # texts that the person has not himself given up

    def acts(self) -> None:
        self.moment += 1
        kind = self.plan.pop(self.moment, None)
        if kind is None:
            return
        now = self.final.read_text() if self.final.exists() else None
        self.wrote += 1
        text = f"mine {self.wrote}\n"
        if kind == "append" and now is not None:
            handle = _REAL["open"](self.final, os.O_WRONLY | os.O_APPEND)
            os.write(handle, text.encode())
            os.close(handle)
            text = now + text
        elif kind in ("write", "append"):
            handle = _REAL["open"](self.final, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            os.write(handle, text.encode())
            os.close(handle)
        elif kind == "save":  # as editors do
            beside = self.final.with_name("editor~")
            handle = _REAL["open"](beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            os.write(handle, text.encode())
            os.close(handle)
            _REAL["replace"](beside, self.final)
        else:
            with contextlib.suppress(FileNotFoundError):
                _REAL["unlink"](self.final)
            text = ""
        self.alive.discard(now or "")
        if text:
            self.alive.add(text)


def _no_exchange(*_: Any) -> None:
    raise OSError(errno.EINVAL, "Invalid argument")


@contextlib.contextmanager
def watched(person: Person, *, exchange: bool) -> Iterator[None]:
    """The person may act before and after each of our steps."""

    def between(real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **named: Any) -> Any:
            person.acts()
            try:
                return real(*arguments, **named)
            finally:
                person.acts()

        return step

    with pytest.MonkeyPatch.context() as patch:
        if not exchange:
            patch.setattr(swap, "_renameat2", _no_exchange)
        for name in ("rename", "replace", "link", "unlink"):
            patch.setattr(os, name, between(_REAL[name]))
        for name in ("rename_exchange", "rename_noreplace", "_read", "_is_being_written"):
            patch.setattr(swap, name, between(getattr(swap, name)))
        yield


def made(folder: Path) -> Project:
    project = Project(folder)
    project.prepare()
    apply.write(project, apply.compare(project, {FILE: Wanted(OURS)}))
    return project


def texts(project: Project) -> set[str]:
    return {path.read_text() for path in project.folder.rglob("*") if path.is_file()}


KINDS = st.sampled_from(("write", "append", "save", "remove"))


@given(plan=st.dictionaries(st.integers(1, 40), KINDS, max_size=6), exchange=st.booleans())
def test_whatever_a_person_wrote_is_there_afterwards(
    tmp_path_factory: pytest.TempPathFactory, plan: dict[int, str], exchange: bool
) -> None:
    project = made(tmp_path_factory.mktemp("p"))
    person = Person(project.folder / FILE, dict(plan))
    changes = apply.compare(project, {FILE: Wanted(NEW)})
    with watched(person, exchange=exchange):
        apply.write(project, changes)
    assert person.alive <= texts(project), (plan, sorted(texts(project)))
    left = [path.name for path in project.folder.rglob("*.dshpc-tmp")]
    assert not left
    assert not list(project.folder.rglob("*.dshpc-was"))


@given(
    plan=st.dictionaries(st.integers(1, 30), KINDS, max_size=4),
    killed_at=st.integers(1, 8),
    exchange=st.booleans(),
)
def test_a_run_that_dies_loses_nothing_either(
    tmp_path_factory: pytest.TempPathFactory, plan: dict[int, str], killed_at: int, exchange: bool
) -> None:
    project = made(tmp_path_factory.mktemp("p"))
    person = Person(project.folder / FILE, dict(plan))
    changes = apply.compare(project, {FILE: Wanted(NEW)})
    kill = Kill(killed_at)
    with watched(person, exchange=exchange), pytest.MonkeyPatch.context() as patch:
        for name in ("rename", "replace", "unlink"):
            patch.setattr(os, name, kill.before(getattr(os, name)))
        patch.setattr(swap, "rename_exchange", kill.before(swap.rename_exchange))
        with contextlib.suppress(Killed):
            apply.write(project, changes)
    with watched(person, exchange=exchange):
        apply.finish_interrupted(project)
        apply.write(project, apply.compare(project, {FILE: Wanted(NEW)}))
    assert person.alive <= texts(project), (plan, sorted(texts(project)))
    assert not list(project.folder.rglob("*.dshpc-was"))


@pytest.mark.parametrize("exchange", [True, False])
@pytest.mark.parametrize(
    ("edit", "action", "beside"),
    [("mine\n", "kept-edited", True), ("x\n# USER_CUSTOMIZED=true\n", "kept-custom", False)],
)
def test_an_edit_since_the_comparison(
    tmp_path: Path, edit: str, action: str, beside: bool, exchange: bool
) -> None:
    """Minutes lie between: an image is built meanwhile."""
    project = made(tmp_path / "p")
    changes = apply.compare(project, {FILE: Wanted(NEW)})
    assert changes[0].action == "updated"
    path = project.folder / FILE
    path.write_text(edit)
    with pytest.MonkeyPatch.context() as patch:
        if not exchange:
            patch.setattr(swap, "_renameat2", _no_exchange)
        (made_change,) = apply.write(project, changes)
    assert made_change.action == action
    assert path.read_text() == edit
    new = path.with_name(f"{path.name}.dshpc-new")
    assert (new.read_text() if new.exists() else None) == (NEW if beside else None)
    owner = ownership.classify(edit, project.manifest[FILE])
    assert owner == action.removeprefix("kept-")


@pytest.mark.parametrize("exchange", [True, False])
def test_an_edit_in_the_moment_of_the_rename(tmp_path: Path, exchange: bool) -> None:
    """After the second comparison, before the rename: the text comes out and goes back."""
    project = made(tmp_path / "p")
    path = project.folder / FILE
    real = journal.write

    def written(*arguments: Any) -> None:
        real(*arguments)
        path.write_text("mine\n")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "write", written)
        if not exchange:
            patch.setattr(swap, "_renameat2", _no_exchange)
        (change,) = apply.write(project, apply.compare(project, {FILE: Wanted(NEW)}))
    assert (change.action, change.old) == ("kept-edited", "mine\n")
    assert path.read_text() == "mine\n"
    assert path.with_name("slurm.conf.dshpc-new").read_text() == NEW


@pytest.mark.parametrize("exchange", [True, False])
def test_a_file_that_appears_where_there_was_none(tmp_path: Path, exchange: bool) -> None:
    project = Project(tmp_path / "p")
    project.prepare()
    real = journal.write

    def written(*arguments: Any) -> None:
        real(*arguments)
        (project.folder / FILE).write_text("mine\n")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "write", written)
        if not exchange:
            patch.setattr(swap, "_renameat2", _no_exchange)
        (change,) = apply.write(project, apply.compare(project, {FILE: Wanted(NEW)}))
    assert change.action == "kept-edited"
    assert (project.folder / FILE).read_text() == "mine\n"


def test_what_somebody_has_open_for_writing_stays(tmp_path: Path) -> None:
    """The shell's >> opens the file, and writes when its command prints."""
    project = made(tmp_path / "p")
    path = project.folder / FILE
    with path.open("a") as editor:
        (change,) = apply.write(project, apply.compare(project, {FILE: Wanted(NEW)}))
        editor.write("mine\n")
    assert change.action == "kept-edited"
    assert path.read_text() == OURS + "mine\n"


def test_who_only_reads_it_holds_nothing_up(tmp_path: Path) -> None:
    project = made(tmp_path / "p")
    with (project.folder / FILE).open():
        (change,) = apply.write(project, apply.compare(project, {FILE: Wanted(NEW)}))
    assert change.action == "updated"
    assert (project.folder / FILE).read_text() == NEW


def _meanwhile(patch: pytest.MonkeyPatch, path: Path, text: str) -> None:
    """Somebody saves the file once its new text lies ready beside it."""
    real = atomic.write_temporary

    def ready(*arguments: Any, **named: Any) -> Path:
        made = real(*arguments, **named)
        path.write_text(text)
        return made

    patch.setattr(swap, "write_temporary", ready)


@pytest.mark.parametrize("old", ["cpus: 1\n", None])
@pytest.mark.parametrize("exchange", [True, False])
def test_a_file_of_people_that_a_command_edits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str | None, exchange: bool
) -> None:
    if not exchange:
        monkeypatch.setattr(swap, "_renameat2", _no_exchange)
    path = tmp_path / "dshpc.yaml"
    if old is not None:
        path.write_text(old)
    swap.write(path, "cpus: 2\n", old)
    assert path.read_text() == "cpus: 2\n"
    with monkeypatch.context() as patch:
        _meanwhile(patch, path, "mine\n")
        with pytest.raises(DshpcError, match="was changed while this ran"):
            swap.write(path, "cpus: 3\n", "cpus: 2\n")
    assert [each.name for each in tmp_path.iterdir()] == ["dshpc.yaml"]
    assert path.read_text() == "mine\n"


def test_config_set_and_an_editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = Project(tmp_path)
    project.prepare()
    path = tmp_path / "dshpc.yaml"
    path.write_bytes(b"# mine\r\nprefix: lab\r\n")
    inspect.set_in_file(project, "isolation", ["default"])
    assert "isolation: default" in path.read_text()
    _meanwhile(monkeypatch, path, "# another\n")
    with pytest.raises(DshpcError, match="was changed while this ran"):
        inspect.set_in_file(project, "isolation", ["default"])
    path.write_text("isolation: default\n")
    with pytest.raises(DshpcError, match="was changed while this ran"):
        inspect.forget(project, ["isolation"])
    assert path.read_text() == "# another\n"


def test_a_compose_file_and_an_editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "compose.yml"
    path.write_text("services: {}\n")
    found = compose_file.read(path)
    _meanwhile(monkeypatch, path, "mine: {}\n")
    with pytest.raises(DshpcError, match="was changed while this ran"):
        compose_file.replace(found, "services: {a: {}}\n")
    assert path.read_text() == "mine: {}\n"
