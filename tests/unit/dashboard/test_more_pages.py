"""Usage, repairs, workflows and arrays: what the pages show of values that are made up."""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.apply.apply import Change, Wanted
from dshpc_setup.dashboard import graph
from dshpc_setup.dashboard.fixing import mark
from dshpc_setup.dashboard.history import Sample
from dshpc_setup.dashboard.source import JobReport, Jobs
from dshpc_setup.errors import DshpcError
from dshpc_setup.repair import Done
from dshpc_setup.setup.report import Report as SetupReport
from tests.unit.dashboard.conftest import Visitor, a_job, a_repair, a_workflow
from tests.unit.dashboard.test_pages import seen


def told(page: str) -> str:
    """Its text on one line, a blank behind each cell."""
    return " ".join(seen(re.sub(r"</t[dh]>", " ", page)).text.split())


def test_usage_is_told_by_user_method_type_and_week(visitor: Visitor) -> None:
    text = told(visitor.page("/usage"))
    assert re.search(r"ada 2 2\.00 1\.00 0\.50 1\.00", text)
    assert re.search(r"bob 1 1\.00 0\.00 - -", text)
    assert text.index("2026-W48") < text.index("2026-W47")
    assert "h100 3 3.00" in text


def test_of_many_users_the_first_are_shown_and_the_command_tells_the_rest(visitor: Visitor) -> None:
    (one, _) = visitor.source.told_usage
    visitor.source.told_usage = tuple(replace(one, user=f"user{at}") for at in range(60))
    visitor.look()
    assert "7 more: dshpc usage --by user" in seen(visitor.page("/usage")).text


def test_before_any_job_has_ended_usage_says_so(visitor: Visitor) -> None:
    visitor.source.told_usage = ()
    visitor.look()
    assert "No job that held a GPU has ended yet." in visitor.page("/usage")


def test_of_a_cluster_that_is_down_usage_is_old(visitor: Visitor) -> None:
    visitor.source.fails = DshpcError("The cluster is not running.")
    visitor.look()
    page = visitor.page("/usage")
    assert "The cluster is not running." in page
    assert "What is shown is of" in page


def _settled(visitor: Visitor) -> None:
    visitor.site.fixing.wait(10)
    assert not visitor.site.fixing.runs


def test_a_repair_is_shown_with_its_cost_and_done_by_its_button(visitor: Visitor) -> None:
    page = visitor.page("/health/fix")
    text = seen(page).text
    assert "sudo dshpc up" in text
    assert "1 container stops" in text
    assert "/etc/daemon.json.dshpc-backup-TIME" in text
    assert "DSH-HO-001: It takes a person." in text
    (wanted,) = re.findall(r'name="repair" value="([0-9a-f]+)"', page)
    assert visitor.post("/health/fix", {"repair": wanted}).headers["location"] == "/health/fix"
    _settled(visitor)
    assert visitor.source.done == [("fix", ("done",))]
    assert visitor.site.board.doctor.now.is_set()
    visitor.look()
    assert "Done: Start the cluster" in visitor.page("/health/fix")


@pytest.mark.parametrize(
    "other",
    [
        a_repair(" now"),
        replace(a_repair(), loss="2 containers stop"),
        replace(a_repair(), commands=(("rm", "-r", "/"),)),
        replace(a_repair(), root=False),
    ],
)
def test_what_has_become_another_repair_is_not_done(visitor: Visitor, other: Any) -> None:
    wanted = mark(a_repair())
    assert mark(other) != wanted
    visitor.source.told_fixes = replace(visitor.source.told_fixes, done=(Done(other, "planned"),))
    visitor.post("/health/fix", {"repair": wanted})
    _settled(visitor)
    assert visitor.source.done == [("fix", ("declined",))]


def test_only_one_repairs_at_a_time(visitor: Visitor) -> None:
    goes_on = threading.Event()
    fix = visitor.source.fix

    def slow(*words: Any) -> Any:
        goes_on.wait(10)
        return fix(*words)

    visitor.source.fix = slow  # type: ignore[method-assign,assignment]
    wanted = {"repair": mark(a_repair())}
    assert visitor.post("/health/fix", wanted).status_code == 303
    assert "It is being done" in visitor.page("/health/fix")
    assert '<meta http-equiv="refresh" content="2">' in visitor.page("/health/fix")
    assert visitor.post("/health/fix", wanted).status_code == 409
    goes_on.set()
    _settled(visitor)


def test_what_went_wrong_with_a_repair_is_told(visitor: Visitor) -> None:
    visitor.source.fails = DshpcError("Another run repairs.", "since 10:00")
    visitor.post("/health/fix", {"repair": mark(a_repair())})
    _settled(visitor)
    assert "Another run repairs." in visitor.page("/health/fix")
    assert visitor.post("/health/fix").status_code == 400


def test_a_workflow_is_a_picture_and_a_table(visitor: Visitor) -> None:
    assert 'href="/workflows/steps"' in visitor.page("/workflows")
    page = visitor.page("/workflows/steps")
    assert page.count("<path ") == 3
    assert page.count('class="box ') == 3
    assert re.search(r'<a href="/jobs/4"[^>]*>\s*<g class="box running"', page)
    text = told(page)
    assert "train (failed), prepare (finished)" in text
    assert "Cancel workflow steps?" in visitor.page("/workflows/steps/cancel")
    answer = visitor.post("/workflows/steps/cancel")
    assert answer.headers["location"] == "/workflows/steps?said=cancelled"
    assert visitor.source.done == [("cancel workflow", "steps")]
    assert "lines" not in visitor.get("/api/workflows/steps").json()


def test_a_workflow_is_asked_for_when_jobs_have_changed(visitor: Visitor) -> None:
    asked: list[str] = []
    answer = visitor.source.workflow

    def workflow(name: str) -> dict[str, Any]:
        asked.append(name)
        return answer(name)

    visitor.source.workflow = workflow  # type: ignore[method-assign]
    for _ in range(3):
        visitor.page("/workflows/steps")
    assert asked == ["steps"]
    visitor.source.told_jobs = Jobs((a_job(3, "COMPLETED"),))
    visitor.look()
    visitor.page("/workflows/steps")
    assert asked == ["steps", "steps"]


@pytest.mark.parametrize("name", ["..", "../steps", "\0", "x" * 300, "<b>", " steps"])
def test_what_is_no_workflows_name_is_asked_nobody(visitor: Visitor, name: str) -> None:
    visitor.source.fails = AssertionError("asked")  # type: ignore[assignment]
    for path in (f"/workflows/{name}", f"/workflows/{name}/cancel", f"/api/workflows/{name}"):
        assert visitor.raw(path)[0] == 404


def test_an_older_image_tells_no_picture(visitor: Visitor) -> None:
    told = a_workflow()
    for job in told["jobs"]:
        del job["requires"]
    visitor.source.told_workflows = {"steps": told}
    assert visitor.page("/workflows/steps").count("<path ") == 0
    del told["jobs"][0]["words"]
    visitor.site.board.jobs.forget()
    assert "another version" in visitor.page("/workflows/steps", 409)


def test_an_array_is_a_square_for_each_task(visitor: Visitor) -> None:
    states = ("COMPLETED",) * 30 + ("RUNNING",) * 12 + ("FAILED",) * 3
    tasks = tuple(
        a_job(7, state, id=f"7_{at}", task=at, ended=1100.0) for at, state in enumerate(states)
    )
    waits = a_job(7, "PENDING", id="7_[45-55%8]", started=None)
    visitor.source.told_jobs = Jobs((*tasks, waits))
    visitor.source.reports["7"] = JobReport(tasks, None, None, (), {})
    visitor.look()
    page = visitor.page("/jobs/7")
    assert page.count('<rect class="task ') == 46
    assert 'href="/jobs/7/cancel"' in page
    assert 'href="/jobs/7_44"' in page
    assert "30 done, 12 running, 11 queued, 3 failed" in seen(page).text


def test_a_job_shows_what_its_gpus_measured_and_what_it_used(visitor: Visitor) -> None:
    board = visitor.site.board
    gpus = board.gpus.seen.value
    assert gpus is not None
    for back in (60.0, 30.0, 0.0):
        board.history.add(board.time() - back, gpus.cards())
    use = {"gpus": [{"mean_percent": 50.0, "peak_percent": 99}], "memory_mib": 8192,
           "peak_memory_mib": 100}  # fmt: skip
    visitor.source.told_jobs = Jobs((a_job(3, use=use),))
    visitor.source.reports["3"] = JobReport((a_job(3),), None, None, (), {})
    visitor.look()
    page = visitor.page("/jobs/3")
    assert 'aria-label="GPU 0 use, last hour"' in page
    assert "<polyline" in page
    assert "GPU 1 use" not in page
    assert "50 % mean, 99 % peak" in page


def test_the_week_has_its_jobs_along_the_axis(visitor: Visitor) -> None:
    board = visitor.site.board
    now = board.time()
    visitor.page("/gpus/0")
    kept = board.history._gpus["GPU-0"]
    kept.week.extend(Sample(now - back, 5.0, 1.0, 2.0, 3.0, ("3",)) for back in (9000.0, 3000.0))
    assert 'aria-label="Jobs along the last week"' in visitor.page("/gpus/0")


@given(
    st.dictionaries(
        st.text(max_size=6),
        st.lists(
            st.tuples(st.text(max_size=6), st.sampled_from(["COMPLETED", "FAILED"])), max_size=4
        ),
        max_size=12,
    )
)
def test_each_job_of_a_graph_has_a_place_of_its_own(
    needs: dict[str, list[tuple[str, str]]],
) -> None:
    found = graph.graph(needs)
    assert [box.name for box in found.boxes] == list(needs)
    assert len({(box.x, box.y) for box in found.boxes}) == len(needs)
    assert all(0 <= box.x <= found.width - graph.WIDE for box in found.boxes)
    assert all(0 <= box.y <= found.height - graph.HIGH for box in found.boxes)
    wanted = [other for name, each in needs.items() for other, _ in each if other in needs]
    assert len(found.arrows) <= len(wanted)


@given(st.integers(2, 30), st.data())
def test_what_is_waited_for_stands_left(count: int, data: st.DataObject) -> None:
    needs = {
        f"job{at}": [
            (f"job{other}", "COMPLETED")
            for other in data.draw(
                st.sets(st.integers(0, at - 1), max_size=3) if at else st.just(set())
            )
        ]
        for at in range(count)
    }
    places = {box.name: box for box in graph.graph(needs).boxes}
    for name, each in needs.items():
        assert all(places[other].x < places[name].x for other, _ in each)


def test_a_nodes_log_is_shown_and_none_of_another_asked_for(visitor: Visitor) -> None:
    visitor.source.log = "slurmd: \x1b[31m<b>up</b>\r\n"
    assert "slurmd: &lt;b&gt;up&lt;/b&gt;" in visitor.page("/nodes/node1/log")
    visitor.source.fails = DshpcError("Its log cannot be read.", "No answer.")
    assert "Its log cannot be read." in visitor.page("/nodes/node1/log", 409)
    assert "no such node" in visitor.page("/nodes/other/log", 404)


def test_what_another_value_would_change_is_shown(visitor: Visitor) -> None:
    change = Change("config/gres.conf", "updated", "a\n", Wanted("<b>\n"), "config/gres.conf")
    visitor.source.told_report = SetupReport(changes=(change,), notes=["A note."])
    assert 'action="/setup/try"' in visitor.page("/setup")
    page = visitor.page("/setup/try?name=simulate&value=t4%3A2%27")
    assert visitor.source.done == [("tried", "simulate", "t4:2'")]
    text = seen(page).text
    assert "-a\n+<b>" in text
    assert "A note." in text
    assert """dshpc config set simulate 't4:2'"'"''""" in text
    visitor.source.told_report = SetupReport(error=DshpcError("simulate: <i> is none."))
    page = visitor.page("/setup/try?name=simulate&value=%3Ci%3E")
    assert "simulate: &lt;i&gt; is none." in page
    assert "config set" not in page
    assert visitor.get("/setup/try?name=none&value=1").status_code == 404


def test_a_job_that_runs_says_how_to_go_in(visitor: Visitor) -> None:
    visitor.source.reports["3"] = JobReport((a_job(3),), None, None, (), {})
    assert "ssh job-3" in visitor.page("/jobs/3")
    visitor.source.told_jobs = Jobs((a_job(3, "COMPLETED", ended=2000.0),))
    visitor.look()
    assert "ssh job-3" not in visitor.page("/jobs/3")
