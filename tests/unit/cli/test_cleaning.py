"""`dshpc job clean` on the host: shown, asked about, and removed only then."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from dshpc_setup import cli
from dshpc_setup.cli import cleaning, job_line
from dshpc_setup.cli.job_request import Cluster
from dshpc_setup.terminal import amounts
from tests.integration.shown import documented

DAY = 86400.0


class Played:
    """A cluster whose answers are made here; `asked` is what was handed to it."""

    def __init__(self, sizes: dict[str, int | None]) -> None:
        self.sizes = sizes
        self.asked: list[dict[str, Any]] = []
        self.rounds = [tuple(sizes)]
        self.failed: list[dict[str, str]] = []
        self.left: list[dict[str, Any]] = []

    def ask(self, _: object, verb: str, request: Any) -> dict[str, Any]:
        assert verb == "clean"
        handed = request.to_json()
        self.asked.append(json.loads(json.dumps(handed)))
        kept = {"going": 1, "needed": 0, "younger": 2, "unknown": 0}
        whole: dict[str, Any] = {
            "older_than": handed["older_than"] or "30d",
            "folder": "/w/jobs/7",
            "notes": [],
        }
        if handed["remove"] is None:
            workspaces = [self.one(name) for name in self.sizes]
            return {**whole, "kept": kept, "workspaces": workspaces, "leftovers": self.left}
        return {"removed": list(self.rounds.pop(0)), "failed": self.failed}

    def one(self, name: str) -> dict[str, Any]:
        ended = time.time() - 40.5 * DAY
        return {"name": name, "workspace": f"/w/jobs/7/{name}", "job_id": "17", "job_name": "t\x1b",
                "ended": ended, "bytes": self.sizes[name]}  # fmt: skip


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    found = Played({"a": 3 << 20, "b": None})
    monkeypatch.setattr(cleaning, "ask", found.ask)
    monkeypatch.setattr(cleaning, "cluster", lambda _: Cluster({"work": "/w"}, "/p", None))
    return found


def run(*words: str) -> int:
    return cli.run(["job", "clean", *words], "dshpc")


def test_what_interrupted_submissions_left_goes_with_them(
    played: Played, capsys: pytest.CaptureFixture[str]
) -> None:
    name = ".incoming-0123456789ab"
    upload = {"name": name, "path": f"/w/jobs/7/{name}", "kind": "upload", "bytes": 1 << 20}
    played.left = [{**upload, "changed": time.time() - 41 * DAY}]
    played.rounds = [("a",), ("b", name)]
    assert run("--dry-run") == 0
    out = capsys.readouterr().out
    row = next(line for line in out.splitlines() if line.endswith(name))
    assert row.split() == ["-", "interrupted", "upload", "41", "days", "ago", "1.0", "MiB", name]
    assert "2 workspaces of ended jobs and 1 leftover of interrupted submissions in" in out
    assert run("--yes") == 0
    assert "Removed: 2 workspaces and 1 leftover, 4.0 MiB." in capsys.readouterr().out
    assert [each["remove"] for each in played.asked[-2:]] == [["a", "b", name], ["b", name]]


def test_without_a_terminal_and_without_yes_nothing_goes(
    played: Played, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run() == 2
    assert [each["remove"] for each in played.asked] == [None]
    said = capsys.readouterr()
    assert "Remove 2 workspaces of ended jobs in /w/jobs/7, more than 3.0 MiB" in said.err
    assert said.out.splitlines()[:2] == [
        "JOB  NAME  ENDED        SIZE     WORKSPACE",
        "17   t?    40 days ago  3.0 MiB  a",
    ]
    assert "Kept: 1 queued or running." in said.out
    assert "Kept: 2 ended less than 30 days ago." in said.out


def test_the_page_shows_what_is_printed(
    played: Played, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = documented("docs/how-to/jobs.md", "dshpc job clean --yes")
    rows = [("12", "train-20260923-122343-e1b1f9", 61), ("14", "train-20261014-122343-b0e1d2", 40)]
    played.sizes = dict.fromkeys((name for _, name, _ in rows), int(2.9 * 2**30))
    played.rounds = [tuple(played.sizes)]
    made = {
        name: {"job_id": job, "job_name": "train", "ended": time.time() - (days + 0.5) * DAY}
        for job, name, days in rows
    }
    plainly = played.one
    monkeypatch.setattr(played, "one", lambda name: {**plainly(name), **made[name]})
    assert run("--yes") == 0
    printed = capsys.readouterr()
    *told, last = printed.out.splitlines()
    asked = printed.err.replace("/w/jobs/7", "/home/ada/lab/jobs/1000").splitlines()
    assert [*told, *asked, last] == list(shown.lines)


def test_yes_removes_what_was_shown(played: Played, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--yes", "--older-than", "7d") == 0
    assert [(each["remove"], each["older_than"]) for each in played.asked] == [
        (None, "7d"),
        (["a", "b"], "7d"),
    ]
    assert capsys.readouterr().out.endswith("Removed: 2 workspaces, 3.0 MiB.\n")


def test_it_goes_on_until_all_are_gone(played: Played) -> None:
    played.rounds = [("a",), ("b",)]
    assert run("--yes") == 0
    assert [each["remove"] for each in played.asked[1:]] == [["a", "b"], ["b"]]
    played.rounds = [()]  # by somebody else
    assert run("--yes") == 0


def test_what_stays_is_told(played: Played, capsys: pytest.CaptureFixture[str]) -> None:
    played.rounds = [("a",)]
    played.failed = [{"name": "b", "workspace": "/w/jobs/7/b", "why": "Read-only file system"}]
    assert run("--yes") == 1
    said = capsys.readouterr().out
    assert "Removed: 1 workspace, 3.0 MiB.\nNot removed: /w/jobs/7/b: Read-only file system" in said


def test_one_object_on_stdout(played: Played, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json", "--dry-run", "--lost") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["bytes"], told["removed"], len(told["workspaces"])) == (3 << 20, [], 2)
    assert played.asked[0]["lost"] is True
    assert run("--json", "--yes") == 0
    assert json.loads(capsys.readouterr().out)["removed"] == ["a", "b"]
    assert run("--json") == 2
    assert json.loads(capsys.readouterr().out)["schema"] == "dshpc.error/1"


def test_nothing_to_remove(played: Played, capsys: pytest.CaptureFixture[str]) -> None:
    played.sizes = {}
    assert run() == 0
    assert capsys.readouterr().out.startswith("There is nothing to remove.\nKept: 1 queued")


def test_more_than_a_screen(played: Played, capsys: pytest.CaptureFixture[str]) -> None:
    played.sizes = {f"w-{number}": 1 for number in range(30)}
    assert run("--dry-run") == 0
    said = capsys.readouterr().out
    assert "... and 10 more; all of them: --json" in said
    assert said.endswith("Nothing was removed. It would be: 30 workspaces of ended jobs in "
                         "/w/jobs/7, 30 B.\n")  # fmt: skip


def test_a_bad_age_is_refused_before_anything_is_asked(
    played: Played, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--older-than", "soon") == 64
    assert played.asked == []
    assert "--older-than 'soon' must be a time such as 30d" in capsys.readouterr().err


def test_typer_reads_the_line() -> None:
    assert job_line.parsed(["clean", "--yes"]) is None


@pytest.mark.parametrize(
    ("count", "said"),
    [(None, "?"), (0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (20 << 20, "20 MiB"),
     (5 << 40, "5.0 TiB"), (5 << 50, "5120 TiB")],
)  # fmt: skip
def test_sizes(count: int | None, said: str) -> None:
    assert amounts.size(count) == said
