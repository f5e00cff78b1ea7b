"""What the pages show, of values that are made up, hostile ones among them."""

from __future__ import annotations

import asyncio
import re
import threading
import time
import zlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dshpc_setup.cluster.config_diff import Difference, Differences
from dshpc_setup.cluster.gpus import GpusNow
from dshpc_setup.dashboard.board import Board
from dshpc_setup.dashboard.live import event, packed
from dshpc_setup.dashboard.source import JobReport, Jobs
from dshpc_setup.diagnose import Finding
from dshpc_setup.diagnose.report import Report
from dshpc_setup.errors import DshpcError, Fix
from dshpc_setup.repair import Done
from dshpc_setup.setup.report import Report as SetupReport
from dshpc_setup.slurm.blocked_jobs import Stuck
from dshpc_setup.usage.sums import Sum
from tests.unit.dashboard.conftest import FakeSource, Visitor, a_job, a_repair, a_workflow

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'-alert(1)-'",
    "{{ 7 * 7 }}{% raw %}",
    "</pre><script src=//evil.example></script>",
    "javascript:alert(1)",
    "\x1b]0;owned\x07\x1b[2J",
    "\u202egnp.exe\u2066",
    "data:\n\nevent: part\ndata: <b>",
    "\ud800 half",
)


class _Seen(HTMLParser):
    """Elements, and what of a page could run or lead elsewhere."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.wrong: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "script" and dict(attrs) == {"src": "/static/zone.js", "defer": None}:
            return
        for name, value in attrs:
            leads = name in ("href", "src", "action", "formaction", "sse-connect", "hx-get")
            if name.startswith("on") or name == "style":
                self.wrong.append(f"{tag} {name}")
            elif leads and not re.fullmatch(r"(/(?!/)|#).*", value or "", re.DOTALL):
                self.wrong.append(f"{tag} {name}={value}")
        if tag in ("script", "iframe", "object", "embed", "base", "style"):
            self.wrong.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def seen(page: str) -> _Seen:
    found = _Seen()
    found.feed(page)
    found.close()
    return found


def hostile(visitor: Visitor, text: str) -> None:
    """Everything that jobs, users and other programs say is that text."""
    source = visitor.source
    one = a_job(3, name=text, user=text, reason=text, asked_gres=text, out_of_memory_line=text)
    source.told_jobs = Jobs((one, a_job(4, "PENDING", name=text, started=None)), (text,))
    source.reports["3"] = JobReport(
        (one,),
        {"kind": text, "name": text, "parameters": [{text: text}]},
        ("sbatch", text),
        (text,),
        {},
    )
    (node,) = source.told_status.nodes
    source.told_status = replace(
        source.told_status,
        nodes=(replace(node, state="drained", reason=text),),
        notes=(text,),
        pending=(Stuck("4", text, text, text),),
    )
    gpus = source.told_gpus
    devices = tuple(replace(each, name=text) for each in gpus.gpus.devices)
    assert gpus.cluster is not None
    assert gpus.cluster.jobs is not None
    jobs = tuple(replace(each, name=text, user=text) for each in gpus.cluster.jobs)
    source.told_gpus = replace(
        gpus,
        gpus=replace(gpus.gpus, devices=devices),
        cluster=replace(gpus.cluster, jobs=jobs),
    )
    finding = Finding("DSH-NV-002", "driver", "error", text, (text,), text, (Fix(text, text),))
    source.told_doctor = Report((finding,), (finding,), notes=(text,))
    source.told_differences = Differences((Difference(text, "new", text),), (text,))
    source.log = text
    source.told_report = SetupReport(notes=[text], error=DshpcError(text, text, (text,)))
    source.told_usage = (Sum(text, text, text, text, 1, 3600.0, 60.0, 30.0),)
    source.told_fixes = replace(
        source.told_fixes, done=(Done(a_repair(text), "planned"),), not_safe={text: text}
    )
    source.told_workflows = {"steps": a_workflow(text), text: a_workflow(text)}
    visitor.look()


LOOKED_AT = (
    "/",
    "/jobs",
    "/jobs/3",
    "/jobs/3/cancel",
    "/gpus/0",
    "/nodes/node1",
    "/health",
    "/setup",
    "/run",
    "/usage",
    "/health/fix",
    "/workflows",
    "/workflows/steps",
    "/nodes",
    "/nodes/node1/log",
    "/setup/try?name=simulate&value=x",
)


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("path", LOOKED_AT)
def test_hostile_words_are_shown_and_do_nothing(visitor: Visitor, path: str, text: str) -> None:
    before = seen(visitor.page(path)) if path != "/jobs/3" else None
    hostile(visitor, text)
    found = seen(visitor.page(path))
    assert found.wrong == []
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", found.text)
    if before is not None:
        assert {*found.tags} - {*before.tags} <= {"pre", "ol", "ul", "li", "section", "h2", "h3",
                                                    "table", "caption", "tr", "td", "th", "thead",
                                                    "tbody", "div", "br", "span", "p", "strong",
                                                    "code", "time"}  # fmt: skip


@settings(
    max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(text=st.text(st.characters(codec=None), max_size=60))
def test_no_name_is_markup(visitor: Visitor, text: str) -> None:
    hostile(visitor, "<b id=x>" + text)
    for path in ("/", "/jobs/3"):
        page = visitor.get(path)
        assert page.status_code == 200
        assert "b" not in seen(page.text).tags
        assert seen(page.text).wrong == []


def test_what_was_asked_for_is_escaped_too(visitor: Visitor) -> None:
    for path in ("/jobs?q={}&state={}&user={}&sort={}&page=1", "/jobs/3?search={}&said={}", "/{}"):
        visitor.source.reports["3"] = JobReport((a_job(3),), None, None, (), {})
        words = "%22%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E"
        page = visitor.get(path.replace("{}", words)).text
        assert seen(page).wrong == []


@given(text=st.text(max_size=80))
def test_an_event_holds_one_event(text: str) -> None:
    told = event("part", text.replace("\r", ""))
    assert told.endswith("\n\n")
    assert told.count("\n\n") == 1
    lines = told.rstrip("\n").split("\n") if text.strip("\n") else told[:-2].split("\n")
    assert all(line.startswith(("event: part", "data: ")) for line in lines if line)


@given(st.lists(st.text(max_size=200), max_size=6))
def test_what_is_packed_is_sent_whole_each_time(
    loop: asyncio.AbstractEventLoop, said: list[str]
) -> None:
    async def events() -> AsyncIterator[str]:
        for each in said:
            yield each

    async def sent() -> list[bytes]:
        return [each async for each in packed(events())]

    unpacker = zlib.decompressobj(wbits=31)
    blocks = loop.run_until_complete(sent())
    assert [unpacker.decompress(block).decode() for block in blocks] == said


def test_of_a_thousand_nodes_the_overview_shows_those_that_take_no_jobs(visitor: Visitor) -> None:
    status = visitor.source.told_status
    (node,) = status.nodes
    nodes = [replace(node, name=f"node{at}") for at in range(1000)]
    nodes[777] = replace(nodes[777], state="drained", reason="a fan")
    visitor.source.told_status = replace(status, nodes=tuple(nodes))
    visitor.look()
    page = visitor.page("/")
    assert len(page) < 50_000
    assert "1000 nodes, of which 1 takes no jobs" in seen(page).text
    assert "a fan" in page
    assert 'href="/nodes/node999"' in visitor.page("/nodes")
    assert len(visitor.page("/nodes")) < 300_000


def test_the_overview_says_who_holds_what(visitor: Visitor) -> None:
    text = seen(visitor.page("/")).text
    for words in ("GPU 0", "NVIDIA H100 80GB HBM3", "87 %", "40.0/80.0 GiB", "61 °C", "350 W"):
        assert words in text
    assert "1 of 2 h100" in text
    assert "node1: mixed" in text
    assert "Doctor found no problem." in text
    assert "SIMULATED" not in text
    assert "dshpc status" in text


def test_made_up_gpus_are_labelled(visitor: Visitor) -> None:
    gpus = visitor.source.told_gpus
    visitor.source.told_gpus = replace(gpus, gpus=replace(gpus.gpus, simulated=True))
    visitor.look()
    for path in ("/", "/gpus/0", "/nodes/node1"):
        assert "SIMULATED" in visitor.page(path)


def test_a_held_gpu_that_does_nothing_and_a_broken_one_are_told(visitor: Visitor) -> None:
    gpus = visitor.source.told_gpus
    first, second = gpus.gpus.devices
    idle = replace(gpus.readings.devices[0], utilization_percent=0)
    visitor.source.told_gpus = replace(
        gpus,
        gpus=replace(gpus.gpus, devices=(first, replace(second, problems=("DSH-NV-020",)))),
        readings=replace(gpus.readings, devices=(idle, gpus.readings.devices[1])),
    )
    visitor.look()
    text = seen(visitor.page("/")).text
    assert "Held, and idle" in text
    assert "it has fallen off the bus (DSH-NV-020)" in text


@pytest.mark.parametrize(
    ("state", "words"),
    [("missing", "The cluster is down."), ("exited", "The cluster is not running")],
)
def test_a_cluster_that_was_killed_is_told_and_comes_back(
    visitor: Visitor, state: str, words: str
) -> None:
    running = visitor.source.told_status
    visitor.source.told_status = replace(running, state=state, phase=None, nodes=())
    visitor.look()
    for path in ("/", "/jobs"):
        page = visitor.page(path)
        assert words in page
        assert "dshpc up" in page
    visitor.source.told_status = running
    visitor.look()
    assert words not in visitor.page("/")


def test_what_hangs_keeps_no_page(visitor: Visitor) -> None:
    """The pages show what was sampled; nothing is asked for them."""
    visitor.source.fails = DshpcError("Docker does not answer.", "no answer within 20 s")
    visitor.look()
    page = visitor.page("/")
    assert "Docker does not answer." in page
    assert "GPU 0" in page  # the last values
    gpus = visitor.source.told_gpus
    visitor.source.told_gpus = replace(gpus, no_answer=True, age_s=12.0)
    visitor.look()
    assert "give no answer for 12 s" in visitor.page("/")


def test_a_driver_that_hangs_keeps_no_page(visitor: Visitor) -> None:
    """Its section waits for ever; the others are asked all the same, and pages are made of what is known."""
    ended = threading.Event()

    class Hanging(FakeSource):
        def hardware(self) -> Iterator[GpusNow]:
            ended.wait(60)
            yield self.told_gpus

    source = Hanging()
    board = Board(source)
    hung = replace(visitor, site=replace(visitor.site, source=source, board=board))
    board.start()
    try:
        until = time.monotonic() + 30
        while board.snapshot.jobs.value is None and time.monotonic() < until:
            hung.page("/")
            time.sleep(0.05)
        began = time.monotonic()
        page = hung.page("/")
        assert time.monotonic() - began < 5
        assert "The GPUs are being asked." in page
        assert 'href="/jobs/3"' in page
    finally:
        ended.set()
        board.stop()


def test_the_dashboards_end_waits_for_no_question(visitor: Visitor) -> None:
    """The interpreter joins all threads but daemons."""
    asking: list[threading.Thread] = []

    class Noting(FakeSource):
        def job(self, job: str) -> JobReport:
            asking.append(threading.current_thread())
            return JobReport((a_job(9),), None, None, (), {})

    replace(visitor, site=replace(visitor.site, source=Noting())).page("/jobs/9")
    assert [thread.daemon for thread in asking] == [True]


def test_before_the_first_answer_the_pages_say_so(visitor: Visitor) -> None:
    board = visitor.site.board
    for section in (board.status, board.gpus, board.jobs, board.doctor):
        section.ask_again()
    page = visitor.page("/")
    assert "The GPUs are being asked." in page
    assert "Doctor is looking." in page
    assert "being asked for" in visitor.page("/jobs")
    assert visitor.get("/api/status").status_code == 503


def test_pages_refresh_themselves_where_there_are_no_scripts(visitor: Visitor) -> None:
    assert '<meta http-equiv="refresh" content="5">' in visitor.page("/")
    assert "http-equiv" not in visitor.page("/setup")
    visitor.site.browser.pages.files = {"htmx.min.js": b"1"}
    page = visitor.page("/")
    assert (
        visitor.get("/static/browser/htmx.min.js")
        .headers["content-type"]
        .startswith("text/javascript")
    )
    assert visitor.get("/static/browser/other.js").status_code == 404
    assert '<noscript><meta http-equiv="refresh" content="5"></noscript>' in page
    assert '<script src="/static/browser/htmx.min.js" defer></script>' in page
    polled = visitor.page("/workflows/steps")
    assert 'hx-get="/workflows/steps" hx-trigger="every 5s"' in polled
    assert '<noscript><meta http-equiv="refresh" content="5"></noscript>' in polled
    assert "hx-get" not in visitor.page("/usage")


def thousand(visitor: Visitor) -> None:
    views = tuple(
        a_job(n, "PENDING" if n % 2 else "COMPLETED", user="ada" if n % 3 else "bo", ended=2000.0)
        for n in range(1, 1001)
    )
    visitor.source.told_jobs = Jobs(views)
    visitor.look()


def test_a_thousand_jobs_come_in_pages(visitor: Visitor) -> None:
    thousand(visitor)
    first, last = visitor.page("/jobs"), visitor.page("/jobs?page=10")
    assert "1000 jobs, page 1 of 10" in first
    assert 'href="/jobs/1000"' in first
    assert 'href="/jobs/1"' in last
    assert "page=11" not in last
    assert len(first) < 200_000
    assert "page 10 of 10" in visitor.page("/jobs?page=9999999999")
    assert "page 1 of 10" in visitor.page("/jobs?page=-1")


def test_jobs_are_filtered_and_sorted(visitor: Visitor) -> None:
    thousand(visitor)
    page = visitor.page("/jobs?state=queued&user=bo&sort=id&up=1")
    assert "167 jobs" in page
    assert re.findall(r'scope="row"><a id="job-\d+" href="/jobs/(\d+)"', page)[:2] == ["3", "9"]
    assert "There are no such jobs." in visitor.page("/jobs?q=zebra")
    assert "state=queued" in re.findall(r'href="([^"]+page=2)"', page)[0]


def test_older_jobs_are_asked_for(visitor: Visitor) -> None:
    visitor.source.older = Jobs((a_job(1, "COMPLETED", ended=1100.0),))
    assert 'href="/jobs/1"' in visitor.page("/jobs?all=1")
    assert "dshpc job list --all" in visitor.page("/jobs?all=1")


def test_a_job_says_what_it_was_made_from(visitor: Visitor) -> None:
    request = {"kind": "method", "name": "train", "parameters": [{"epochs": 3}]}
    visitor.source.reports["3"] = JobReport(
        (a_job(3),), request, ("sbatch", "--gres=gpu:1"), (), {}
    )
    text = seen(visitor.page("/jobs/3")).text
    assert "--gres=gpu:1" in text
    assert "epochs" in text
    assert "dshpc job show 3" in text
    assert 'href="/run/train?from=3"' in visitor.page("/jobs/3")


def test_a_job_that_is_sampled_is_shown_though_the_cluster_is_silent(visitor: Visitor) -> None:
    visitor.source.fails = DshpcError("The cluster did not answer in time.", exit_code=3)
    assert "did not answer in time" in visitor.page("/jobs/3")
    again = visitor.page("/jobs/5", 503)
    assert "did not answer in time" in again
    assert 'http-equiv="refresh"' in again
    assert "http-equiv" not in visitor.page("/none", 404)


@pytest.mark.parametrize("path", ["/jobs/abc", "/jobs/3%2F..", "/jobs/-1", "/jobs/3/burn", "/gpus/9",
                                  "/gpus/x", "/nodes/none", "/health/DSH-XX-999", "/none"])  # fmt: skip
def test_what_there_is_not(visitor: Visitor, path: str) -> None:
    assert visitor.get(path).status_code == 404


@pytest.mark.parametrize("act", ["cancel", "requeue"])
def test_stopping_a_job_is_asked_before(visitor: Visitor, act: str) -> None:
    page = visitor.page(f"/jobs/3/{act}")
    assert f'action="/jobs/3/{act}"' in page
    assert visitor.source.done == []
    answer = visitor.post(f"/jobs/3/{act}")
    assert answer.status_code == 303
    assert visitor.source.done == [(act, "3")]


def test_what_is_refused_is_told(visitor: Visitor) -> None:
    visitor.source.fails = DshpcError("Job 3 is not cancelled.", "permission denied")
    answer = visitor.post("/jobs/3/cancel")
    assert answer.status_code == 409
    assert "permission denied" in answer.text


def test_health_shows_the_cause_first_and_its_commands(visitor: Visitor) -> None:
    root = Finding(
        "DSH-NV-002",
        "driver",
        "error",
        "nouveau holds the card",
        (),
        "It is held.",
        (Fix("Load", "sudo x"),),
    )
    told = Finding("DSH-GP-001", "gpu", "error", "The GPUs cannot be read", caused_by="DSH-NV-002")
    fine = Finding("DSH-HO-001", "host", "ok", "A kernel")
    visitor.source.told_doctor = Report((told, root, fine), (told, root, fine))
    visitor.look()
    page = visitor.page("/health")
    text = seen(page).text
    assert text.index("nouveau holds the card") < text.index("Explains: The GPUs cannot be read")
    assert "sudo x" in text
    assert 'href="/health#DSH-NV-002"' in visitor.page("/")
    assert "How to fix it" in seen(visitor.page("/health/DSH-NV-002")).text


def test_doctor_is_asked_again(visitor: Visitor) -> None:
    assert visitor.post("/health").headers["location"] == "/health"
    assert visitor.site.board.doctor.now.is_set()


def test_set_up_says_where_a_value_comes_from(visitor: Visitor) -> None:
    visitor.source.told_differences = Differences(
        (Difference("config/slurm.conf", "in-force", "-a\n+b\n"),)
    )
    text = seen(visitor.page("/setup")).text
    assert re.search(r"home\s*host\s*default", text), (
        "what the cluster came to, as config show has it"
    )
    assert re.search(r"simulate\s*h100:2\s*--simulate", text)
    assert "-a\n+b" in text


def test_a_gpus_curves_are_drawings(visitor: Visitor) -> None:
    for _ in range(3):
        visitor.site.board.gpus.ask(visitor.site.board.time)
    page = visitor.page("/gpus/0")
    assert page.count("<polyline") >= 4
    assert "Not measured." in visitor.page("/gpus/1")


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/jobs",
        "/jobs/3",
        "/jobs/3/cancel",
        "/run",
        "/health",
        "/setup",
        "/gpus/0",
        "/none",
        "/usage",
        "/health/fix",
        "/workflows",
        "/workflows/steps",
        "/workflows/steps/cancel",
    ],
)
def test_every_page_has_its_heading_its_language_and_labels(visitor: Visitor, path: str) -> None:
    visitor.source.reports["3"] = JobReport((a_job(3),), None, None, (), {})
    page = visitor.get(path).text
    found = seen(page)
    assert found.tags.count("h1") == found.tags.count("main") == 1
    assert page.partition("</head>")[0].count("<title>") == 1
    assert '<html lang="en">' in page
    for control in re.findall(r"<(?:input|select|textarea)\b[^>]*>", page):
        named = re.search(r'id="([^"]+)"', control)
        inside = re.search(r"<label>[^<]*" + re.escape(control), page)
        assert (
            inside
            or "hidden" in control
            or "checkbox" in control
            or (named and f'for="{named[1]}"' in page)
        ), control


def test_the_api_is_described(visitor: Visitor) -> None:
    paths = visitor.get("/api/openapi.json").json()["paths"]
    for path, acts in paths.items():
        (act,) = acts
        filled = path.replace("{job}", "3").replace("{name}", "none")
        if path == "/api/usage":
            assert visitor.get("/api/usage?by=week").json()["by"] == "week"
            assert visitor.get("/api/usage?by=moon").status_code == 400
        answer = visitor.ask(act, filled, headers={"x-csrf-token": visitor.site.access.csrf})
        if "{" not in path:
            schema = acts[act]["responses"]["200"]["content"]["application/json"]["schema"]
            assert answer.status_code == 200, path
            assert answer.json()["schema"] == schema["properties"]["schema"]["const"]
        else:
            assert answer.json()["schema"].startswith("dshpc.")
            assert "404" in acts[act]["responses"]


@pytest.mark.parametrize(
    ("act", "path"),
    [
        ("get", "/api/jobs/999"),
        ("get", "/api/jobs/x"),
        ("get", "/api/methods/none"),
        ("get", "/api/workflows/none"),
        ("post", "/api/jobs/999/cancel"),
        ("post", "/api/jobs/999/requeue"),
    ],
)
def test_what_is_not_there_is_404_for_programs(visitor: Visitor, act: str, path: str) -> None:
    if act == "post":
        visitor.source.fails = DshpcError("There is no job 999.", absent=True)
    answer = visitor.ask(act, path, headers={"x-csrf-token": visitor.site.access.csrf})
    assert answer.status_code == 404
    assert answer.json()["schema"] == "dshpc.error/1"
    assert answer.json()["error"]["brief"].startswith("There is no " if path[5] != "w" else "The w")


def test_what_is_live_has_ids_of_its_own_and_keeps_the_focus(visitor: Visitor) -> None:
    for path in ("/", "/jobs", "/gpus/0", "/nodes/node1"):
        ids = re.findall(r' id="([^"]+)"', visitor.page(path))
        assert len(ids) == len(set(ids)), path
        assert {"gpu-0", "job-3", "running-3"} & set(ids)


def test_gpus_of_another_node_stand_with_its_name_and_not_with_this_ones(visitor: Visitor) -> None:
    own = visitor.source.told_gpus
    assert own.cluster is not None
    (node,) = visitor.source.told_status.nodes
    second = replace(node, name="node2", gres_total={"gpu:t4": 1}, gres_in_use={})
    visitor.source.told_status = replace(visitor.source.told_status, nodes=(node, second))
    device = replace(own.gpus.devices[0], name="Tesla T4", uuid="GPU-other", slurm_type="t4")
    there = replace(own, gpus=replace(own.gpus, devices=(device,)),
                    cluster=replace(own.cluster, node="node2", listed=(), jobs=()))  # fmt: skip
    visitor.source.told_others = (there,)
    visitor.look()
    overview = seen(visitor.page("/")).text
    assert "Node node2" in overview
    assert "Tesla T4" in overview
    assert "Tesla T4" in visitor.page("/nodes/node2")
    assert "NVIDIA H100" not in visitor.page("/nodes/node2")
    assert "Tesla T4" not in visitor.page("/nodes/node1")
    assert "GPU-other" in visitor.page("/api/gpus")
