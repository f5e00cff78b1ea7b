"""Small files of root's: replaced in one step, by a new file each time."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from dshpc_setup.errors import DshpcError
from dshpc_setup.files import storage


def test_what_stands_in_the_place_of_the_new_file_is_not_written_through(tmp_path: Path) -> None:
    """A link, another name of a file, one that a killed writer left, a pipe."""
    victim = tmp_path / "victim"
    victim.write_text("theirs")
    path, temporary = tmp_path / "path", tmp_path / "path.dshpc-tmp"
    for lay in (
        lambda: temporary.symlink_to(victim),
        lambda: os.link(victim, temporary),
        lambda: temporary.write_text("left"),
        lambda: os.mkfifo(temporary),
    ):
        lay()
        storage.replace_text(str(path), "new", 0o640)
        assert path.read_text() == "new"
        assert path.stat().st_mode & 0o777 == 0o640
        path.unlink()
        assert [each.name for each in tmp_path.iterdir()] == ["victim"]
    assert (victim.read_text(), victim.stat().st_nlink) == ("theirs", 1)


def test_two_writers_of_one_file_leave_one_text_whole(tmp_path: Path) -> None:
    path = str(tmp_path / "path")
    texts = ["a" * 300_000, "b" * 400_000]
    wrong: list[str] = []

    def write(text: str) -> None:
        for _ in range(30):
            storage.replace_text(path, text, sync=False)
            seen = storage.read_text(path)
            if seen not in texts:
                wrong.append(str(seen)[:20])

    threads = [threading.Thread(target=write, args=(text,)) for text in texts]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert wrong == []
    assert os.listdir(tmp_path) == ["path"]


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(DshpcError, match="cannot write"):
        storage.replace_text(str(tmp_path / "no/path"), "")
