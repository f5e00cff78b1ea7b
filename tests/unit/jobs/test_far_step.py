"""What comes from a node without the work folder is data: whatever it says, nothing is written elsewhere."""

from __future__ import annotations

import os
import queue
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.jobs import parcels
from dshpc_setup.jobs.cargo import Cargo
from dshpc_setup.jobs.far_step import FarStep
from dshpc_setup.jobs.parcels import FILE, FOLDER, GONE, LINK, LOG, MARK, Head
from dshpc_setup.jobs.workspace import Workspace

WORDS = ("new", "wanted", "known", "ready", "shared", "done", "left", "round", "final", "other")
NAMES = st.sampled_from([b"a", b"b", b".job", b"request.json", b"..", b".", b"", b"output.log", b"out",
                         b"\x1b[2J", b"\n", b"\xff", b"\0", b"x" * 300])  # fmt: skip


def packed(kind: bytes, path: bytes, mode: int, when: int, size: int, text: bytes) -> bytes:
    return parcels._HEAD.pack(kind, mode, when, size, len(path)) + path + text


@st.composite
def entries(draw: st.DrawFn) -> bytes:
    kind = draw(st.sampled_from([FILE, FOLDER, LINK, GONE, LOG, MARK, b"?"]))
    path = b"/".join(draw(st.lists(NAMES, min_size=1, max_size=4)))
    text = draw(
        st.sampled_from([b"", b"7", b"-1", b"9" * 30, b"\xff", b"../../outside", b"/", b"x" * 50])
    )
    if kind == MARK:
        path = draw(st.sampled_from(WORDS)).encode()
    size = draw(st.sampled_from([len(text), len(text), len(text), 0, 3, 1 << 40, (1 << 64) - 1]))
    when = draw(st.sampled_from([0, 1, -1, 1 << 60, -(1 << 63), (1 << 63) - 1]))
    return packed(kind, path, draw(st.integers(0, (1 << 32) - 1)), when, size, text)


def ran(top: Path, data: bytes, request: dict[str, Any] | None = None) -> FarStep:
    """The step after all of `data` has come, and the connection has ended."""
    place = Workspace(str(top), os.getuid(), "train-1")
    Path(place.path, ".job").mkdir(parents=True, exist_ok=True)
    source, theirs = os.pipe()
    to = os.open(os.devnull, os.O_WRONLY)
    at = os.open(place.path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.write(theirs, data)
        os.close(theirs)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(FarStep, "_srun", lambda _: (0, to, source))
            step = FarStep(Cargo(place, at, "17-0", None, request or {}), "lab7", queue.Queue())
        step.run()
    finally:
        os.close(at)
        os.close(to)
    return step


@given(st.lists(entries(), max_size=12), st.binary(max_size=40))
def test_whatever_a_node_says_is_refused_or_written_in_the_workspace(
    said: list[bytes], rest: bytes
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        (top / "outside").write_text("mine")
        step = ran(top, b"".join(said) + rest)
        assert step.is_lost or step.is_final
        assert sorted(os.listdir(top)) == ["jobs", "outside"]
        assert (top / "outside").read_text() == "mine"
        assert os.listdir(top / "jobs") == [str(os.getuid())]
        assert os.listdir(top / f"jobs/{os.getuid()}") == ["train-1"]
        assert not (top / f"jobs/{os.getuid()}/train-1/.job/request.json").exists()
        assert step.why.isprintable()


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        (packed(MARK, b"known", 0, 0, 3, b"abc"), "number"),
        (packed(MARK, b"known", 0, 0, 2, b"-1"), "number"),
        (packed(MARK, b"known", 0, 0, 2, b"\xff\xfe"), "number"),
        (packed(MARK, b"known", 0, 0, 40, b"9" * 40), "number"),
        (packed(b"?", b"a", 0, 0, 0, b""), "kind"),
        (packed(FILE, b"../a", 0, 0, 0, b""), "path"),
        (packed(MARK, b"left", 0, 0, 1 << 40, b""), "size"),
        (packed(LINK, b"a", 0, 0, 1 << 40, b""), "size"),
    ],
)
def test_what_cannot_be_is_refused_by_its_kind(tmp_path: Path, said: bytes, fault: str) -> None:
    step = ran(tmp_path, said)
    assert (step.is_lost, step.why) == (True, f"it sent what is none of ours ({fault})")


def test_of_an_earlier_connection_that_is_not_told(tmp_path: Path) -> None:
    """Its place is taken by one after which all may be here."""
    before = ran(tmp_path, packed(b"?", b"a", 0, 0, 0, b""))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FarStep, "_srun", lambda _: (0, -1, -1))
        assert FarStep(before.cargo, "lab7", queue.Queue(), before).why == ""


def test_what_somebody_has_changed_here_stays(tmp_path: Path) -> None:
    own = tmp_path / f"jobs/{os.getuid()}/train-1"
    own.mkdir(parents=True)
    (own / "a").write_text("mine")
    # After "new" it knows what went there; what was changed since is another's
    data = packed(MARK, b"new", 0, 0, 0, b"") + packed(FILE, b"b", 0o600, 1, 1, b"1")
    data += packed(FILE, b"a", 0o600, 1, 1, b"1")
    step = ran(tmp_path, data)
    assert (own / "a").read_text() == "1"
    step.known = {"a": (9, 9)}
    step.cargo.at = os.open(own, os.O_RDONLY | os.O_DIRECTORY)
    step.writer = parcels.Writer(step.cargo.at)
    step._take(Head(FILE, "a", 0o600, 1, 1), lambda: iter((b"2",)))
    step._take(Head(GONE, "a"), lambda: iter(()))
    (own / "b").write_text("mine, too")
    step._take(Head(FOLDER, "b", 0o700), lambda: iter(()))
    step._take(Head(FILE, "b/x", 0o600, 1, 1), lambda: iter((b"3",)))
    (own / "c").mkdir()
    step._take(Head(FOLDER, "c", 0o700), lambda: iter(()))
    step._take(Head(FILE, "c/x", 0o600, 1, 1), lambda: iter((b"4",)))
    for path in ("e", "e/x"):
        step._take(Head(FILE if "/" in path else FOLDER, path, 0o700), lambda: iter(()))
    for path in ("e/x", "e", "c"):
        step._take(Head(GONE, path), lambda: iter(()))
    os.close(step.cargo.at)
    assert not (own / "e").exists()
    assert ((own / "b").read_text(), (own / "from-lab7/b/x").read_text()) == ("mine, too", "3")
    assert ((own / "c/x").read_text(), step.why) == ("4", "")
    assert ((own / "a").read_text(), (own / "from-lab7/a").read_text()) == ("1", "2")


def test_what_cannot_be_read_here_is_told_and_not_tried_again(tmp_path: Path) -> None:
    request = {"inputs": [str(tmp_path / "gone")], "work": str(tmp_path)}
    (tmp_path / "gone").write_text("")
    place = Workspace(str(tmp_path), os.getuid(), "train-1")
    Path(place.path).mkdir(parents=True)
    cargo = Cargo(place, os.open(place.path, os.O_RDONLY | os.O_DIRECTORY), "17-0", None, request)
    (tmp_path / "gone").unlink()
    with pytest.MonkeyPatch.context() as patch:
        to = os.open(os.devnull, os.O_WRONLY)
        patch.setattr(FarStep, "_srun", lambda _: (0, to, -1))
        step = FarStep(cargo, "lab7", queue.Queue())
    step._marked("new", b"")
    os.close(to)
    os.close(cargo.at)
    assert step.refused == "what it takes along cannot be read: gone: No such file or directory."
