"""A workspace on a node that has not the work folder: what comes, what goes back, who waits for whom."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dshpc_setup.files.streams import write_all
from dshpc_setup.jobs import carried, parcels, safe_open
from dshpc_setup.jobs.own_workspace import OwnWorkspace

RUN = "17-0"
_WAIT_S = 20.0


@dataclass
class There:
    """A step in a thread, and the other end of its stream."""

    folder: Path
    told: list[int] = field(default_factory=list)
    came: queue.Queue[tuple[bytes, str, bytes]] = field(default_factory=queue.Queue)
    send: parcels.Sender = field(init=False)
    to: int = -1
    codes: list[int] = field(default_factory=list)

    def begin(self) -> None:
        theirs, self.to = os.pipe()
        source, out = os.pipe()
        self.send = parcels.Sender(lambda block: write_all(self.to, block))
        flags = os.O_RDONLY | os.O_DIRECTORY
        own = os.open(self.folder / ".job", flags)
        at = OwnWorkspace(str(self.folder), os.open(self.folder, flags), own)
        marks = os.open(self.folder / ".job/carried", flags)
        step = carried.Step(at, marks, RUN, "output.log", self.told, theirs, out)

        def run() -> None:
            self.codes.append(step.run())
            os.close(out)

        def read() -> None:
            for head, content in parcels.heads(lambda most: os.read(source, most)):
                self.came.put((head.kind, head.path, b"".join(content())))

        for each in (run, read):
            threading.Thread(target=each, daemon=True).start()

    def until(self, word: str) -> list[tuple[bytes, str, bytes]]:
        """What came before that word."""
        found = []
        while (each := self.came.get(timeout=_WAIT_S))[:2] != (parcels.MARK, word):
            found.append(each)
        return found

    def mark(self, word: str) -> Path:
        return self.folder / f".job/carried/{RUN}.{word}"


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[There]:
    monkeypatch.setattr(carried, "_TICK_S", 0.01)
    folder = tmp_path / "job-1"
    (folder / ".job/carried").mkdir(parents=True)
    (folder / ".job/carried/17").write_text("lab7")
    (folder / "output.log").write_text("")
    found = There(folder)
    found.begin()
    yield found
    os.close(found.to)


def filled(there: There) -> None:
    there.until("new")
    there.send.text(".job/request.json", b"{}")
    there.send.text("data/in", b"12345", 0o640)
    there.send.text("old", b"x")
    there.send.mark("filled", b"7")
    assert there.until("ready") == []
    there.send.mark("go")


def await_mark(there: There, word: str) -> None:
    for _ in range(2000):
        if there.mark(word).exists():
            return
        threading.Event().wait(0.01)
    raise AssertionError(word)


def test_it_comes_runs_and_goes_back(there: There) -> None:
    filled(there)
    await_mark(there, "go")
    assert (there.folder / "data/in").read_bytes() == b"12345"
    assert (there.folder / "data/in").stat().st_mode & 0o777 == 0o640
    (there.folder / "output.log").write_text("line\n")
    assert there.came.get(timeout=_WAIT_S) == (parcels.LOG, "", b"line\n")
    (there.folder / "out").write_text("made")
    (there.folder / ".dshpc-carried-0123456789ab").write_text("of a run that was killed")
    (there.folder / "old").unlink()
    there.mark("done").write_text("")
    assert there.until("done") == []
    there.send.mark("end")
    found = there.until("final")
    kinds = [each[:2] for each in found]
    assert kinds == [(parcels.FILE, "out"), (parcels.GONE, "old"), (parcels.MARK, "round")]
    assert not there.mark("back").exists()
    assert not (there.folder / ".dshpc-carried-0123456789ab").exists()
    there.send.mark("bye")
    await_mark(there, "back")


def test_after_a_break_all_that_has_changed_goes_back_again(there: There) -> None:
    filled(there)
    (there.folder / "out").write_text("made")
    (there.folder / "output.log").write_text("line\n")
    assert there.came.get(timeout=_WAIT_S)[2] == b"line\n"
    before, there.to = there.to, -1
    os.close(before)
    for _ in range(2000):
        if there.codes:
            break
        threading.Event().wait(0.01)
    assert there.codes == [1]
    again = There(there.folder)
    again.begin()
    there.to = again.to
    again.until("known")
    again.until("ready")
    assert again.came.get(timeout=_WAIT_S) == (parcels.LOG, "", b"line\n")
    again.send.mark("end")
    assert [each[:2] for each in again.until("final")] == [
        (parcels.FILE, "out"),
        (parcels.MARK, "round"),
    ]
    again.send.mark("bye")


def test_once_it_is_told_to_end_what_it_has_written_goes_at_once(there: There) -> None:
    filled(there)
    (there.folder / "out").write_text("made")
    there.told.append(1)
    assert [each[:2] for each in there.until("round")] == [(parcels.FILE, "out")]


def test_a_launcher_that_is_gone_has_ended(there: There) -> None:
    filled(there)
    there.mark("pid").write_text(f"{1 << 30}\n")
    assert there.until("done") == []


def test_what_cannot_be_written_there_is_told_to_the_launcher(there: There) -> None:
    there.until("new")
    os.symlink("/", there.folder / "link")
    there.send.text("link/x", b"x")
    there.send.mark("filled", b"0")
    there.until("ready")
    assert "could not be written on this node: link/x" in there.mark("refused").read_text()


def test_a_disk_that_is_full_is_told_by_an_empty_file_and_to_the_other_side(
    there: There, monkeypatch: pytest.MonkeyPatch
) -> None:
    there.until("new")
    replace = safe_open.replace

    def no_room(name: str, text: str, at: int) -> None:
        if text:
            raise OSError(28, "No space left on device")
        replace(name, text, at)

    monkeypatch.setattr(safe_open, "replace", no_room)
    there.send.text("in", b"1")
    there.send.mark("filled", b"0")
    said = b"its workspace could not be written on this node: No space left on device."
    assert there.until("ready") == [(parcels.MARK, "failed", said)]
    assert there.mark("refused").read_text() == ""
    flags = os.O_RDONLY | os.O_DIRECTORY
    own = os.open(there.folder / ".job", flags)
    at = OwnWorkspace(str(there.folder), os.open(there.folder, flags), own)
    assert carried.begin(at, RUN) == "its workspace could not be written on this node."


def test_another_tasks_files_stay_as_they_are(there: There) -> None:
    (there.folder / ".job/carried/18").write_text("lab7")
    (there.folder / "old").write_text("of the other task")
    # Who else is here was asked as it began
    os.close(there.to)
    again = There(there.folder)
    again.begin()
    there.to = again.to
    filled(again)
    assert (there.folder / "old").read_text() == "of the other task"
    assert (there.folder / "data/in").read_bytes() == b"12345"


def test_logs_and_what_is_the_controllers_stay() -> None:
    for path in ("output.log", "output-3.log", ".job/request.json", ".job/job.json", ".job/carried/17",
                 ".job/carried.json", ".job/carried-3.json"):  # fmt: skip
        assert carried.stays(path)
    for path in ("out.log", "a/output.log", ".job/result.json", ".job/params-3.json", "carried/x"):
        assert not carried.stays(path)


def test_a_launcher_waits_for_its_workspace_and_for_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".job").mkdir()
    flags = os.O_RDONLY | os.O_DIRECTORY
    at = OwnWorkspace(str(tmp_path), os.open(tmp_path, flags), os.open(tmp_path / ".job", flags))
    monkeypatch.setattr(carried, "_COMES_S", 0.2)
    assert "did not come to this node" in (carried.begin(at, RUN) or "")
    (tmp_path / f".job/carried/{RUN}.go").write_text("")
    assert carried.begin(at, RUN) is None
    (tmp_path / f".job/carried/{RUN}.refused").write_text("it is too large")
    assert carried.begin(at, RUN) == "it is too large"
    monkeypatch.setattr(carried, "_BACK_S", 0.2)
    assert not carried.end(at, RUN)
    (tmp_path / f".job/carried/{RUN}.back").write_text("")
    assert carried.end(at, RUN)
    assert (tmp_path / f".job/carried/{RUN}.done").exists()


ENV = f".envs/{'ab12' * 5}"


def copied(there: There, name: str = ENV, *, told: str | None = None) -> None:
    """An environment comes, as far as the end that is told."""
    there.until("new")
    there.send.mark("kept", b"\0".join((ENV.encode(), b".images/../../etc")))
    assert there.came.get(timeout=_WAIT_S) == (parcels.MARK, "wanted", ENV.encode())
    there.send.mark("copy", name.encode())
    there.send.text("bin/python", b"#!", 0o755)
    there.send.mark("copied", (name if told is None else told).encode())
    there.send.text("in", b"1")
    there.send.mark("filled", b"0")
    there.until("ready")


def test_an_environment_that_is_not_there_comes_once(there: There) -> None:
    copied(there)
    own = there.folder.parent / ENV
    assert (own / "bin/python").stat().st_mode & 0o777 == 0o755
    assert os.listdir(own.parent) == [own.name]
    assert (there.folder / "in").read_text() == "1"
    os.close(there.to)
    (there.folder / f".job/carried/{RUN}.list").unlink()
    again = There(there.folder)
    again.begin()
    there.to = again.to
    again.until("new")
    again.send.mark("kept", ENV.encode())
    assert again.came.get(timeout=_WAIT_S) == (parcels.MARK, "wanted", b"")


def test_one_that_is_not_whole_is_none(there: There) -> None:
    copied(there, told="")
    assert os.listdir(there.folder.parent / ".envs") == []
    assert not there.mark("refused").exists()


def test_one_that_cannot_be_written_is_told_to_the_launcher(there: There) -> None:
    (there.folder.parent / ".envs").write_text("")
    there.until("new")
    there.send.mark("copy", ENV.encode())
    there.send.text("bin/python", b"#!", 0o755)
    there.send.mark("copied", ENV.encode())
    there.send.mark("filled", b"0")
    there.until("ready")
    said = there.mark("refused").read_text()
    assert said.startswith(f"its environment or image could not be written on this node: {ENV}: ")
    assert not (there.folder / "bin").exists()


@pytest.mark.parametrize("name", ["../x", ".envs/../x", ".envs/ab/x", ".ssh/ab", ""])
def test_a_copy_comes_to_no_other_place(there: There, name: str) -> None:
    there.until("new")
    there.send.mark("copy", name.encode())
    for _ in range(2000):
        if there.codes:
            break
        threading.Event().wait(0.01)
    assert there.codes == [1]
    assert os.listdir(there.folder.parent) == ["job-1"]


def test_a_job_that_is_told_to_end_waits_for_nothing_more_to_come(there: There) -> None:
    there.until("new")
    there.send.mark("copy", ENV.encode())
    there.send.text("bin/python", b"#!", 0o755)
    there.told.append(1)
    for _ in range(2000):
        if there.codes and not os.listdir(there.folder.parent / ".envs"):
            break
        threading.Event().wait(0.01)
    assert there.codes == [1]
    assert os.listdir(there.folder.parent / ".envs") == []


def test_a_launcher_waits_as_long_as_something_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".job/carried").mkdir(parents=True)
    flags = os.O_RDONLY | os.O_DIRECTORY
    at = OwnWorkspace(str(tmp_path), os.open(tmp_path, flags), os.open(tmp_path / ".job", flags))
    monkeypatch.setattr(carried, "_COMES_S", 0.5)
    looked = []

    def changes(_: str, __: int) -> int:
        looked.append(1)
        if len(looked) == 12:
            (tmp_path / f".job/carried/{RUN}.go").write_text("")
        return len(looked)

    monkeypatch.setattr(carried, "_changed", changes)
    assert carried.begin(at, RUN) is None
    assert len(looked) >= 12
