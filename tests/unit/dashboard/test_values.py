"""Curves, what was measured, what is asked again and again, and the answers of the container."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from dshpc_setup.dashboard import charts
from dshpc_setup.dashboard.board import LOOKED_S, Board
from dshpc_setup.dashboard.browser_files import Package, Scripts, packages
from dshpc_setup.dashboard.history import HOUR_S, History, key
from dshpc_setup.dashboard.live_source import LiveSource, answer
from dshpc_setup.dashboard.pages import free
from dshpc_setup.dashboard.source import Jobs, Told
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import CommandResult
from tests.unit.dashboard.conftest import FakeSource, a_job


def test_a_curve_ends_at_the_edges() -> None:
    found = charts.curve([(0.0, 0.0), (5.0, 50.0), (10.0, 100.0)], 0.0, 10.0, 100.0)
    assert found.lines == ("0.0,120.0 300.0,60.0 600.0,0.0",)
    assert (found.top, found.last) == (100.0, 100.0)


def test_where_nothing_was_sampled_the_line_is_broken() -> None:
    points = [(float(at), 1.0) for at in (0, 1, 2, 50, 51, 52)]
    assert len(charts.curve(points, 0.0, 60.0).lines) == 2


def test_a_peak_is_kept_where_there_are_many_points() -> None:
    points = [(float(at), 99.0 if at == 777 else 1.0) for at in range(2000)]
    found = charts.curve(points, 0.0, 2000.0)
    assert found.top == 99.0
    assert any(point.endswith(",0.0") for point in found.lines[0].split())
    assert len(found.lines[0].split()) <= 240


def test_without_a_value_there_is_no_line() -> None:
    assert charts.curve([(1.0, None)], 0.0, 2.0).lines == ()
    assert charts.curve([], 0.0, 2.0, 10.0).last is None


def test_jobs_lie_along_the_same_axis() -> None:
    held = [(0.0, ["1"]), (30.0, ["1", "2"]), (60.0, ["2"])]
    assert charts.spans(held, 0.0, 60.0) == (
        charts.Span("1", 0.0, 300.0),
        charts.Span("2", 300.0, 300.0),
    )


def test_history_keeps_an_hour_and_means_of_the_week() -> None:
    source, history = FakeSource(), History()
    cards = source.told_gpus.cards()
    for at in range(0, 7200, 10):
        history.add(float(at), cards)
    gpu = key(cards[0])
    hour, week = history.hour(gpu), history.week(gpu)
    assert hour[0].at >= 7190 - HOUR_S
    assert hour[-1].utilization_percent == 87
    assert hour[-1].jobs == ("3",)
    assert len(week) == 23
    assert week[0].utilization_percent == 87
    assert history.hour("none") == ()
    assert history.week(key(cards[1]))[0].power_w is None


def test_a_section_that_fails_keeps_its_last_value() -> None:
    source = FakeSource()
    board = Board(source)
    board.jobs.ask(board.time)
    source.fails = DshpcError("No answer.")
    board.jobs.ask(board.time)
    seen = board.snapshot.jobs
    assert seen.value is source.told_jobs
    assert seen.error == DshpcError("No answer.")


def test_jobs_are_not_asked_of_a_cluster_that_is_down() -> None:
    source = FakeSource()
    source.told_status = replace(source.told_status, state="exited", phase=None)
    board = Board(source)
    board.status.ask(board.time)
    board.jobs.ask(board.time)
    assert board.snapshot.jobs.value is None
    assert board.snapshot.jobs.error is not None


def test_a_defect_in_one_section_is_told_and_the_next_look_begins_anew() -> None:
    source = FakeSource()
    board = Board(source)
    wrong = replace(source.told_gpus)
    source.told_gpus = None  # type: ignore[assignment]
    board.gpus.ask(board.time)
    assert board.snapshot.gpus.error is not None
    source.told_gpus = wrong
    board.gpus.ask(board.time)
    assert board.snapshot.gpus.error is None


def test_while_nobody_looks_it_rests() -> None:
    now = [100.0]
    board = Board(FakeSource(), lambda: now[0])
    assert not board.is_watched
    board.look()
    assert (board.is_watched, board.gpus.now.is_set()) == (True, True)
    board.gpus.now.clear()
    board.look()
    assert not board.gpus.now.is_set()
    now[0] += LOOKED_S
    assert not board.is_watched


def watched_board(*told: Told) -> tuple[FakeSource, Board]:
    """Somebody looks at a cluster that is up."""
    source = FakeSource(watched=told)
    board = Board(source)
    board.status.ask(board.time)
    board.look()
    for section in board.sections:
        section.now.clear()
    return source, board


def test_what_changes_with_jobs_is_asked_when_they_do() -> None:
    first, second = Jobs((a_job(3),)), Jobs((a_job(3), a_job(4)))
    for told, asked in (((first,), True), ((False, False), False), ((True,), True)):
        _, board = watched_board(*told)
        board.jobs.step(board)
        assert (board.status.now.is_set(), board.cluster.now.is_set()) == (asked, asked), told
    _, board = watched_board(first, second, replace(second, told={"seconds": 2}))
    board.jobs.step(board)
    assert board.snapshot.jobs.value == second
    assert board.snapshot.jobs.version == 2


def test_an_older_image_is_asked_for_its_jobs() -> None:
    source, board = watched_board()
    source.fails = DshpcError("There is no dshpc-node job 'watch'.", exit_code=64)
    board.jobs.step(board)
    source.fails = None
    board.jobs.step(board)
    assert board.snapshot.jobs.value == source.told_jobs


def test_where_nobody_looks_any_more_the_watching_ends() -> None:
    _, board = watched_board(False, False)
    board.stop()
    board.jobs.step(board)
    assert board.jobs.rested.is_set()


def test_only_nodes_that_take_jobs_have_free_gpus() -> None:
    status = FakeSource().told_status
    assert [(each.kind, each.free, each.total) for each in free(status)] == [("h100", 1, 2)]
    (node,) = status.nodes
    drained = replace(status, nodes=(replace(node, state="drained"),))
    assert [(each.free, each.total) for each in free(drained)] == [(0, 2)]
    assert free(None) == ()


def result(stdout: str, state: str = "present", code: int | None = 0) -> CommandResult:
    return CommandResult(("docker",), state, code, stdout, "said", 1.0)  # type: ignore[arg-type]


def live(said: CommandResult, asked: list[list[str]]) -> LiveSource:
    def inside(
        words: Sequence[str],
        *,
        deadline_s: float,
        stdin: str | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> CommandResult:
        asked.append([*words])
        for line in said.stdout.splitlines() if on_line is not None else ():
            assert on_line is not None
            on_line(line)
        return said

    return LiveSource(None, None, inside, lambda: None, "/work")  # type: ignore[arg-type]


def test_jobs_are_read_from_the_very_call_of_the_command() -> None:
    asked: list[list[str]] = []
    one = a_job(3)
    told = {"schema": "dshpc.jobs/1", "exit_code": 0, "jobs": [one.to_json(2000.0)], "notes": ["n"]}
    said = json.dumps(told)
    source = live(result(said), asked)
    jobs = source.jobs()
    assert (jobs.views, jobs.notes, jobs.told) == ((one,), ("n",), json.loads(said))
    source.jobs(older=True)
    node = ["dshpc-node", "job", "list"]
    rest = ["--json", "--work", "/work"]
    assert asked == [[*node, *rest], [*node, "--all", *rest]]


def test_a_job_is_cancelled_and_requeued_as_the_commands_do() -> None:
    asked: list[list[str]] = []
    told = {
        "schema": "dshpc.jobs-cancelled/1",
        "exit_code": 0,
        "jobs": [{"job_id": "3", "result": "cancelled"}],
    }
    source = live(result(json.dumps(told)), asked)
    assert source.cancel("3") == "cancelled"
    source.requeue("3_1")
    assert asked[0][:4] == ["dshpc-node", "job", "cancel", "3"]
    assert asked[1] == ["scontrol", "requeue", "3_1"]
    refused = {**told, "exit_code": 2, "jobs": [{"job_id": "3", "result": "permission denied"}]}
    with pytest.raises(DshpcError) as raised:
        live(result(json.dumps(refused)), []).cancel("3")
    assert raised.value.details == "permission denied"
    with pytest.raises(DshpcError, match="not requeued"):
        live(result("", code=1), []).requeue("3")


def test_a_job_that_was_never_there_is_told_so_by_a_code() -> None:
    gone = json.dumps(DshpcError("There is no job 9.", absent=True).to_object())
    for act in (LiveSource.job, LiveSource.cancel):
        with pytest.raises(DshpcError) as raised:
            act(live(result(gone), []), "9")
        assert raised.value.absent

    def inside(words: Sequence[str], **_: object) -> CommandResult:
        if words[0] == "scontrol":
            return CommandResult(
                ("docker",), "present", 1, "", "Invalid job id specified for job 9", 0.1
            )
        return result(gone)

    with pytest.raises(DshpcError) as raised:
        LiveSource(None, None, inside, lambda: None, "/work").requeue("9")  # type: ignore[arg-type]
    assert raised.value.absent


@pytest.mark.parametrize(
    ("said", "brief", "code"),
    [
        (result("", "timeout", None), "The cluster did not answer in time.", 3),
        (result("no json"), "The cluster did not answer.", 3),
        (result("[1]"), "The cluster did not answer.", 3),
        (result(json.dumps(DshpcError("No job 9.", "why", ("Look.",), 64).to_object())), "No job 9.", 64),
    ],
)  # fmt: skip
def test_an_answer_that_is_none_is_an_error(said: CommandResult, brief: str, code: int) -> None:
    with pytest.raises(DshpcError) as raised:
        answer(said)
    assert (raised.value.brief, raised.value.exit_code) == (brief, code)


def test_what_the_container_tells_is_read_line_by_line() -> None:
    one = {"schema": "dshpc.jobs/1", "jobs": [a_job(3).to_json(1.0)], "notes": []}
    said: list[Told] = []
    live(result(f"{json.dumps(one)}\n\nnodes\nTotal nonsense\n"), []).watch_jobs(said.append)
    assert said == [Jobs((a_job(3),)), False, True, False]
    with pytest.raises(DshpcError) as raised:
        live(result("", code=64), []).watch_jobs(said.append)
    assert raised.value.exit_code == 64


def test_jobs_of_another_version_are_told_as_that() -> None:
    with pytest.raises(DshpcError, match="another version"):
        live(result(json.dumps({"jobs": [{"id": 3}]})), []).jobs()


def archived(tmp_path: Path, text: bytes = b"alert") -> Package:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        member = tarfile.TarInfo("package/a.js")
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))
    (tmp_path / "a-1.tgz").write_bytes(data.getvalue())
    digest = base64.b64encode(hashlib.sha512(data.getvalue()).digest()).decode()
    return Package(
        "a", "1", "0BSD", "https://x/a-1.tgz", f"sha512-{digest}", {"a.js": "package/a.js"}
    )


def test_scripts_are_taken_whole_or_not_at_all(tmp_path: Path) -> None:
    package = archived(tmp_path)
    scripts = Scripts((package,), (tmp_path / "none", tmp_path))
    assert scripts.read()
    assert scripts.files == {"a.js": b"alert"}
    (tmp_path / "a-1.tgz").write_bytes((tmp_path / "a-1.tgz").read_bytes() + b" ")
    changed = Scripts((package,), (tmp_path,))
    assert not changed.read()
    assert changed.names == ()
    assert not Scripts((package, replace(package, name="b")), (tmp_path,)).read()


def test_the_list_names_versions_hashes_and_licences() -> None:
    for each in packages():
        assert each.url.startswith("https://registry.npmjs.org/")
        assert each.version in each.url
        assert each.license in ("0BSD", "MIT")
        assert len(base64.b64decode(each.integrity.removeprefix("sha512-"))) == 64
