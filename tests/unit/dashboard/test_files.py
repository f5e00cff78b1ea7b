"""Workspaces and logs: what is a job's own is shown, and nothing else is reached."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.dashboard import files
from dshpc_setup.dashboard.source import Jobs
from dshpc_setup.errors import DshpcError
from dshpc_setup.jobs.view import View
from tests.unit.dashboard.conftest import Visitor, a_job

SECRET = "the word that nobody may read"


@pytest.fixture
def one(visitor: Visitor, tmp_path: Path) -> View:
    """A job with files of every kind beside it and in it."""
    uid = os.getuid()
    work = tmp_path / "work"
    folder = work / "jobs" / str(uid) / "train-1"
    (folder / "sub").mkdir(parents=True)
    (folder / ".job").mkdir()
    (tmp_path / "secret").write_text(SECRET)
    (work / "jobs" / str(uid) / "other").write_text(SECRET)
    (folder / "output.log").write_bytes(b"line 1\nepoch \x1b[31m2\x1b[0m <b>\r\n50%\r100%\n")
    (folder / "page.html").write_text("<script>alert(1)</script>")
    (folder / "drawing.svg").write_text('<svg onload="alert(1)"/>')
    (folder / "points.csv").write_text('a,b\n1,"<i>2"\n')
    (folder / "plot.png").write_bytes(b"\x89PNG<script>")
    (folder / "model.bin").write_bytes(b"\0\1\2")
    (folder / "sub" / "deep.txt").write_text("deep")
    (folder / "<b>name").write_text("marked up")
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "way").symlink_to(tmp_path)
    (folder / "up").symlink_to("..")
    visitor.source.work = str(work)
    view = a_job(3, uid=uid, workspace=str(folder), log=str(folder / "output.log"))
    visitor.source.told_jobs = Jobs((view,))
    visitor.look()
    return view


def test_a_folder_lists_what_is_in_it_and_follows_no_link(visitor: Visitor, one: View) -> None:
    page = visitor.page("/jobs/3/files/")
    assert 'href="/jobs/3/files/sub"' in page
    assert "link (a link: not followed)" in page
    assert "pipe (no file)" in page
    assert "&lt;b&gt;name" in page
    assert "<b>name" not in page


@pytest.mark.parametrize(
    "path",
    ["link", "way/secret", "way", "up/other", "up", "pipe", "none", "sub/none", "../other", "..",
     "sub/../../other", "sub/..", "/etc/passwd", "/", "sub\0", "\0", ".", "output.log/x",
     "sub//../../other", "..\\other"],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["files", "raw"])
def test_nothing_leads_out_of_the_workspace(
    visitor: Visitor, one: View, kind: str, path: str
) -> None:
    code, text = visitor.raw(f"/jobs/3/{kind}/{path}")
    assert SECRET not in text
    assert "root:" not in text
    # Two slashes are one: the workspace itself
    assert code == (200 if (kind, path) == ("files", "/") else 404 if path == "/" else 409), text


@pytest.mark.parametrize("path", ["link", "way/secret", "up/other", "pipe", "none", "sub"])
def test_what_is_no_file_of_its_own_is_no_download(visitor: Visitor, one: View, path: str) -> None:
    assert visitor.get(f"/jobs/3/raw/{path}").status_code == 409


@pytest.mark.parametrize(
    "name", ["page.html", "drawing.svg", "points.csv", "model.bin", "plot.png", "%3Cb%3Ename"]
)
def test_files_are_downloads_and_can_do_nothing(visitor: Visitor, one: View, name: str) -> None:
    for query in ("", "?shown=1"):
        answer = visitor.get(f"/jobs/3/raw/{name}{query}")
        headers = answer.headers
        assert answer.status_code == 200
        assert headers["content-security-policy"] == "sandbox; default-src 'none'"
        assert headers["x-content-type-options"] == "nosniff"
        is_picture = name == "plot.png" and query
        assert headers["content-type"] == (
            "image/png" if is_picture else "application/octet-stream"
        )
        assert ("attachment" in headers.get("content-disposition", "")) is not bool(is_picture)


def test_a_download_is_the_file(visitor: Visitor, one: View) -> None:
    answer = visitor.get("/jobs/3/raw/model.bin")
    assert answer.content == b"\0\1\2"
    assert answer.headers["content-length"] == "3"
    assert (
        "filename*=UTF-8''%3Cb%3Ename"
        in visitor.get("/jobs/3/raw/%3Cb%3Ename").headers["content-disposition"]
    )


def test_a_file_is_shown_as_what_it_is(visitor: Visitor, one: View) -> None:
    assert "&lt;script&gt;alert(1)" in visitor.page("/jobs/3/files/page.html")
    assert "&lt;svg" in visitor.page("/jobs/3/files/drawing.svg")
    assert "<td>&lt;i&gt;2</td>" in visitor.page("/jobs/3/files/points.csv")
    assert "It is no text." in visitor.page("/jobs/3/files/model.bin")
    assert 'src="/jobs/3/raw/plot.png?shown=1"' in visitor.page("/jobs/3/files/plot.png")
    assert "deep" in visitor.page("/jobs/3/files/sub/deep.txt")


def test_another_users_file_is_not_read(visitor: Visitor, one: View) -> None:
    """Put into the workspace by whom may write there, or its place taken by somebody's."""
    for uid in (os.getuid() + 1,):
        with pytest.raises(DshpcError, match="not of job"):
            files.log(replace(one, uid=uid), visitor.source.work)
        elsewhere = str(one.workspace).replace(f"/jobs/{os.getuid()}/", f"/jobs/{uid}/")
        with pytest.raises(DshpcError):
            files.listing(replace(one, workspace=elsewhere), visitor.source.work, ())


@pytest.mark.parametrize(
    "workspace", [None, "", "/etc", "WORK/jobs/0/../../..", "WORK/jobs/UID/.incoming-x", "WORK"]
)
def test_a_folder_that_is_no_workspace_is_not_opened(
    visitor: Visitor, one: View, workspace: str | None
) -> None:
    named = workspace and workspace.replace("WORK", visitor.source.work).replace(
        "UID", str(os.getuid())
    )
    with pytest.raises(DshpcError):
        files.listing(replace(one, workspace=named), visitor.source.work, ())


def test_the_log_is_shown_without_what_commands_a_terminal(visitor: Visitor, one: View) -> None:
    page = visitor.page("/jobs/3")
    assert "line 1\nepoch 2 &lt;b&gt;\n50%\n100%" in page
    assert "\x1b" not in page
    answer = visitor.get("/jobs/3/log")
    assert b"\x1b[31m" in answer.content  # the file as it is
    assert "attachment" in answer.headers["content-disposition"]


def test_the_log_is_searched(visitor: Visitor, one: View) -> None:
    page = visitor.page("/jobs/3?search=EPOCH")
    assert "1 line with “EPOCH”" in page
    assert "2: epoch 2" in page


def test_a_log_that_is_a_link_is_not_read(visitor: Visitor, one: View) -> None:
    log = Path(str(one.log))
    log.unlink()
    log.symlink_to(log.parents[4] / "secret")
    page = visitor.page("/jobs/3")
    assert SECRET not in page
    assert "There is no log of job 3 to be read." in page
    assert visitor.get("/jobs/3/log").status_code == 409


def test_a_log_is_read_on_from_where_it_was(visitor: Visitor, one: View) -> None:
    work = visitor.source.work
    log = Path(str(one.log))
    log.write_text("a" * 10 + "\n")
    first = files.log(one, work)
    assert (first.text, first.begin, first.end) == ("a" * 10 + "\n", 0, 11)
    with log.open("ab") as file:
        file.write("späte".encode()[:3])
    part = files.log(one, work, first.end)
    assert (part.text, part.end) == ("sp", 13)  # half of a letter is left for later
    with log.open("ab") as file:
        file.write("späte".encode()[3:])
    assert files.log(one, work, part.end).text == "äte"
    log.write_text("new\n")
    assert files.log(one, work, part.end).text == "new\n"


def test_of_a_long_log_the_last_lines_are_shown(visitor: Visitor, one: View) -> None:
    Path(str(one.log)).write_text("".join(f"{n} {'x' * 90}\n" for n in range(2000)))
    part = files.log(one, visitor.source.work)
    assert part.text.endswith(f"1999 {'x' * 90}\n")
    assert part.text.split(" ")[0].isdecimal()  # it begins with a whole line
    assert len(part.text) <= files.MOST_LOG
    assert "The last" in visitor.page("/jobs/3")


@given(data=st.binary(max_size=200))
def test_no_bytes_command_anything(data: bytes) -> None:
    text = files.shown(data)
    assert not any(sign != "\n" and sign != "\t" and not sign.isprintable() for sign in text)


@given(text=st.text(max_size=40), cut=st.integers(min_value=0, max_value=160))
def test_letters_are_read_whole(text: str, cut: int) -> None:
    data = text.encode("utf-8", "replace")
    first = files._whole_letters(data[:cut])
    assert first.decode("utf-8", "strict") == data[: len(first)].decode()
    assert len(data[:cut]) - len(first) < 4


def test_a_name_that_is_no_text_is_a_file_as_others(visitor: Visitor, one: View) -> None:
    folder = os.fsencode(one.workspace or "")
    os.mkdir(folder + b"/in\xff")
    with open(folder + b"/in\xff/\xfe?#&%", "wb") as file:
        file.write(b"content")
    assert 'href="/jobs/3/files/in%FF"' in visitor.page("/jobs/3/files/")
    assert 'href="/jobs/3/files/in%FF/%FE%3F%23%26%25"' in visitor.page("/jobs/3/files/in%FF")
    assert "content" in visitor.page("/jobs/3/files/in%FF/%FE%3F%23%26%25")
    answer = visitor.get("/jobs/3/raw/in%FF/%FE%3F%23%26%25")
    assert (answer.content, answer.status_code) == (b"content", 200)
    assert answer.headers["content-disposition"].endswith("''%FE%3F%23%26%25")


def test_a_folder_behind_many_files_is_one(
    visitor: Visitor, one: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MOST_ENTRIES", 0)
    assert "and more" in visitor.page("/jobs/3/files/sub")
