"""`dshpc config accept|reject`: one transaction with the manifest, and nothing of the user's lost."""

from __future__ import annotations

import os
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.apply import apply
from dshpc_setup.cluster.offered import Settled, accept, reject
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.files import swap
from dshpc_setup.files.ownership import classify, digest
from dshpc_setup.project.folder import Project
from tests.unit.apply.test_apply import Kill, Killed
from tests.unit.cluster.conftest import TEXTS, configured
from tests.unit.engine.fake import Listener

SLURM = "config/slurm.conf"
MINE = "ClusterName=mine\n"


def read(project: Project, path: str) -> str | None:
    return apply.read_text(project.folder / path)


@pytest.fixture
def edited(project: Project) -> Project:
    (project.folder / SLURM).write_text(MINE)
    configured(project, slurm="ClusterName=new\n")
    assert read(project, f"{SLURM}.dshpc-new") == "ClusterName=new\n"
    return project


def test_accept(edited: Project) -> None:
    done = accept(edited, ["slurm.conf"], False)
    assert (done.paths, done.kept) == ((SLURM,), (f"{SLURM}.dshpc-old",))
    assert read(edited, SLURM) == "ClusterName=new\n"
    assert read(edited, f"{SLURM}.dshpc-old") == MINE
    assert read(edited, f"{SLURM}.dshpc-new") is None
    assert classify(read(edited, SLURM), edited.manifest[SLURM]) == "ours"
    assert set(edited.manifest) == set(TEXTS)
    configured(edited, slurm="ClusterName=newer\n")
    assert read(edited, SLURM) == "ClusterName=newer\n", "it is ours again"


def test_accept_needs_no_answer_and_keeps_every_older_text(edited: Project) -> None:
    """What an error advises is done by the very line that it gives, the second time as well."""
    old = edited.folder / f"{SLURM}.dshpc-old"
    old.write_text("precious\n")
    done = accept(edited, [], True)
    assert done.kept == (f"{SLURM}.dshpc-old.2",)
    assert old.read_text() == "precious\n"
    assert read(edited, done.kept[0]) == MINE
    assert any(done.kept[0] in line for line in done.lines())


def test_reject_is_remembered_for_that_text_alone(edited: Project) -> None:
    listener = Listener()
    assert reject(edited, [SLURM], False, listener).paths == (SLURM,)
    assert listener.questions
    assert (read(edited, SLURM), read(edited, f"{SLURM}.dshpc-new")) == (MINE, None)
    configured(edited, slurm="ClusterName=new\n")
    assert read(edited, f"{SLURM}.dshpc-new") is None
    wanted = {SLURM: apply.Wanted("ClusterName=new\n")}
    (change,) = apply.compare(edited, wanted)
    assert (change.action, change.rejected, change.target) == ("kept-edited", True, None)
    configured(edited, slurm="ClusterName=newer\n")
    assert read(edited, f"{SLURM}.dshpc-new") == "ClusterName=newer\n"
    accept(edited, [], True)
    assert SLURM not in edited.rejected


def test_reject_without_an_answer_changes_nothing(edited: Project) -> None:
    with pytest.raises(DshpcError, match="Nothing was changed"):
        reject(edited, [], True, Listener(answer=False))
    assert read(edited, f"{SLURM}.dshpc-new") == "ClusterName=new\n"
    assert edited.rejected == {}


@pytest.mark.parametrize("act", [accept, partial(reject, reporter=Listener())])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# USER_CUSTOMIZED=true\n", "marked as yours"),
        (None, "There is no config/gres.conf"),
        (TEXTS["config/gres.conf"], "as configure-environment wrote it"),
        ("# edited\n", "There is no config/gres.conf.dshpc-new"),
    ],
)
def test_where_there_is_nothing_to_decide(
    edited: Project, act: object, text: str | None, said: str
) -> None:
    path = edited.folder / "config/gres.conf"
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    assert callable(act)
    with pytest.raises(DshpcError) as caught:
        act(edited, ["slurm.conf", "gres.conf"], False)
    assert said in caught.value.brief
    assert read(edited, SLURM) == MINE, "all or none"
    assert read(edited, f"{SLURM}.dshpc-new") is not None


def test_what_is_wrong_usage(edited: Project) -> None:
    for names, every in (([], False), (["slurm.conf"], True), (["nothing.conf"], False)):
        with pytest.raises(DshpcError) as caught:
            accept(edited, names, every)
        assert caught.value.exit_code == Exit.USAGE
    accept(edited, [], True)
    with pytest.raises(DshpcError, match="No new text waits"):
        accept(edited, [], True)


def test_the_mode_stays(project: Project) -> None:
    path = project.folder / ".env"
    path.write_text("X=1\n")
    path.chmod(0o600)
    configured(project, **{".env": "X=2\n"})
    accept(project, [".env"], False)
    assert path.read_text() == "X=2\n"
    for name in (".env", ".env.dshpc-old"):
        assert (project.folder / name).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("at", range(1, 6))
def test_killed_at_any_rename_it_is_all_old_or_all_new(
    edited: Project, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    kill = Kill(at)
    monkeypatch.setattr(os, "replace", kill.before(os.replace))
    monkeypatch.setattr(swap, "rename_exchange", kill.before(swap.rename_exchange))
    killed = False
    try:
        accept(edited, [], True)
    except Killed:
        killed = True
    monkeypatch.undo()
    assert killed == (at <= 4)
    apply.finish_interrupted(edited)
    apply.finish_interrupted(edited)
    texts = tuple(read(edited, f"{SLURM}{end}") for end in ("", ".dshpc-old", ".dshpc-new"))
    ours = edited.manifest[SLURM] == digest("ClusterName=new\n")
    if at == 1:
        assert (texts, ours) == ((MINE, None, "ClusterName=new\n"), False)
    else:
        assert (texts, ours) == (("ClusterName=new\n", MINE, None), True)
    assert not list(edited.folder.rglob("*.dshpc-tmp"))


def test_next_steps() -> None:
    assert "dshpc reconfigure" in Settled("accepted", (SLURM,)).next_steps()[0]
    assert [
        step
        for step in Settled("accepted", ("docker-compose.yml",)).next_steps()
        if "dshpc up" in step
    ]
    assert len(Settled("accepted", (SLURM, "docker-compose.yml")).next_steps()) == 2


@given(st.binary(min_size=1, max_size=60))
def test_no_edit_is_lost(tmp_path_factory: pytest.TempPathFactory, edit: bytes) -> None:
    project = Project(tmp_path_factory.mktemp("offered"))
    project.prepare()
    configured(project)
    path = project.folder / SLURM
    path.write_bytes(edit)
    configured(project, slurm="ClusterName=new\n")
    if not (project.folder / f"{SLURM}.dshpc-new").exists():
        return  # marked, or one of our texts
    accept(project, [SLURM], False)
    assert (project.folder / f"{SLURM}.dshpc-old").read_bytes() == edit
    assert path.read_bytes() == b"ClusterName=new\n"
