"""`dshpc dashboard` on a real cluster of made-up GPUs: looked at, used, killed, and ended by Ctrl-C."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from html import unescape
from urllib.parse import urlencode

import pytest

from tests.integration.cluster import Cluster, command, environment, wait_until
from tests.integration.engines import DOCKER

pytestmark = pytest.mark.engines("docker", "builtin")

HOSTILE = "</a><script>alert(1)</script>\x1b]0;x\x07"
WORKFLOW = """\
name: steps
jobs:
  first: {command: "true"}
  second: {command: sleep, args: ["600"], requires: [first]}
  third: {command: "true", requires: [{second: FINISHED}]}
"""
PRINTS = "echo begun '<b>x'; while [ ! -e go ]; do sleep 0.1; done; echo over"


@dataclass
class Answer:
    status: int
    text: str
    headers: Mapping[str, str]


@dataclass
class Browser:
    """One without scripts, which keeps the cookie and no connection."""

    port: int
    cookie: str = ""

    @contextmanager
    def asked(
        self, method: str, path: str, form: Mapping[str, str] | None, headers: Mapping[str, str]
    ) -> Iterator[http.client.HTTPResponse]:
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        more: dict[str, str] = {"Cookie": self.cookie} if self.cookie else {}
        if form is not None:
            more["Content-Type"] = "application/x-www-form-urlencoded"
        try:
            line.request(method, path, urlencode(form) if form else None, {**more, **headers})
            with line.getresponse() as response:
                yield response
        finally:
            line.close()

    def ask(
        self, method: str, path: str, form: Mapping[str, str] | None = None, **headers: str
    ) -> Answer:
        with self.asked(method, path, form, headers) as response:
            return Answer(response.status, response.read().decode(), dict(response.getheaders()))

    def page(self, path: str) -> str:
        answer = self.ask("GET", path)
        assert answer.status == 200, (path, answer.text)
        return answer.text

    def post(self, path: str, **form: str) -> str:
        """Where it leads; the form's own token is on every page with a form."""
        csrf = re.search(r'name="csrf" value="([^"]+)"', self.page("/run"))
        assert csrf is not None
        answer = self.ask("POST", path, {"csrf": csrf[1], **form})
        assert answer.status == 303, answer.text
        return answer.headers["location"]

    def waits_for(self, path: str, words: str, timeout_s: float = 30) -> None:
        """Until the page's text, or its source, holds the words."""

        def is_there() -> bool:
            page = self.page(path)
            return words in page or words in unescape(re.sub(r"<[^>]*>", "", page))

        wait_until(is_there, f"{path} says {words}", timeout_s)


@contextmanager
def dashboard(cluster: Cluster, argv: Sequence[str] = ()) -> Iterator[tuple[Browser, str]]:
    """It runs, and is ended by Ctrl-C; a browser that is let in, and the token."""
    child = subprocess.Popen(
        argv or command("dshpc", "dashboard", "--no-browser"),
        cwd=cluster.folder,
        env=environment({**cluster.env, "PYTHONUNBUFFERED": "1"}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert child.stdout is not None
        line = child.stdout.readline()
        address = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/\?token=(\S+)\n", line)
        assert address is not None, line + child.communicate(timeout=30)[1]
        browser = Browser(int(address[1]))
        answer = browser.ask("GET", f"/?token={address[2]}")
        assert (answer.status, answer.headers["location"]) == (303, "/")
        browser.cookie = answer.headers["set-cookie"].partition(";")[0]
        yield browser, address[2]
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=20)
        assert (child.returncode, out, err) == (130, "", "")
    finally:
        child.kill()
        child.communicate()


def test_it_is_looked_at_and_used(fresh: Cluster) -> None:
    fresh.configure("--simulate", "h100:2").good()
    with dashboard(fresh) as (browser, token):
        stranger = Browser(browser.port)
        assert stranger.ask("GET", "/").status == 401
        assert stranger.ask("GET", "/api/status").status == 401
        assert browser.ask("GET", "/", Host=f"evil.example:{browser.port}").status == 400
        _filled(browser)
        _looked_at(fresh, browser, token)
        _used(fresh, browser)
        _hostile(fresh, browser)
        _workflow(fresh, browser)
        _added_up(fresh, browser)
        _killed(fresh, browser)
    _kept(fresh)


def _looked_at(cluster: Cluster, browser: Browser, token: str) -> None:
    browser.waits_for("/", "2 of 2 h100")
    browser.waits_for("/", "SIMULATED")
    assert "GPU 1" in browser.page("/gpus/1")
    name = cluster.prefix
    assert "idle" in browser.page(f"/nodes/{name}")
    browser.waits_for("/health", "All checks", 60)
    assert re.search(r"simulate</th><td>h100:2", browser.page("/setup"))
    assert 'href="/run/vector-add"' in browser.page("/run")
    bearer = {"Authorization": f"Bearer {token}"}
    told = json.loads(Browser(browser.port).ask("GET", "/api/status", None, **bearer).text)
    said = cluster.dshpc("status", "--json").good().report
    assert (told["nodes"], told["started"]) == (said["nodes"], said["started"])
    for act, place in (
        ("GET", "jobs/9999"),
        ("GET", "methods/none"),
        ("POST", "jobs/9999/requeue"),
    ):
        answer = Browser(browser.port).ask(act, f"/api/{place}", None, **bearer)
        assert (answer.status, json.loads(answer.text)["schema"]) == (404, "dshpc.error/1")
    listed = json.loads(browser.page("/api/methods"))
    assert listed == cluster.dshpc("method", "list", "--json").good().report


def _used(cluster: Cluster, browser: Browser) -> None:
    """A command by its form: seen on the first page, its log as it grows, its files, its end."""
    place = browser.post("/run", command=f"sh -c {json.dumps(PRINTS)}", gpus="1", act="submit")
    page, _, said = place.partition("?")
    assert said == "said=submitted"
    number = page.rpartition("/")[2]
    wait_until(lambda: cluster.job_state(number)[0] == "RUNNING", f"job {number} runs")
    browser.waits_for("/", f'href="/jobs/{number}"')
    browser.waits_for("/", "1 of 2 h100")
    show = cluster.dshpc("job", "show", number, "--json").good().report
    assert json.loads(browser.page(f"/api{page}"))["request"] == show["request"]
    assert "output.log" in browser.page(f"{page}/files/")
    assert "begun &lt;b&gt;x" in browser.page(f"{page}/files/output.log")
    secret = cluster.folder / "secret"
    secret.write_text("not the job's")
    (folder,) = (cluster.work / "jobs" / str(show["jobs"][0]["uid"])).glob("sh-*")
    (folder / "link").symlink_to(secret)
    assert browser.ask("GET", f"{page}/raw/link").status == 409
    with browser.asked("GET", f"/live{page}?from=0", None, {}) as events:
        assert events.getheader("Content-Type", "").startswith("text/event-stream")
        assert "begun &lt;b&gt;x" in _next(events, "log")
        (folder / "go").touch()
        assert "over" in _next(events, "log")
    browser.waits_for(page, "done")

    waits = browser.post("/run", command="sleep 600", act="submit").partition("?")[0]
    assert "Cancel the job" in browser.page(f"{waits}/cancel")
    assert browser.post(f"{waits}/cancel") == f"{waits}?said=cancelled"
    wait_until(
        lambda: cluster.job_state(waits.rpartition("/")[2])[0] == "CANCELLED", "it is cancelled"
    )
    browser.waits_for(waits, "cancelled")
    answer = browser.ask("POST", f"{waits}/cancel", {"csrf": "of another page"})
    assert answer.status == 403


def _next(events: http.client.HTTPResponse, name: str) -> str:
    """The data of the next event of that name."""
    found, lines = "", list[str]()
    while True:
        line = events.readline().decode().rstrip("\n")
        if line.startswith("event: "):
            found, lines = line.removeprefix("event: "), list[str]()
        elif line.startswith("data: "):
            lines.append(line.removeprefix("data: "))
        elif not line and found == name:
            return "\n".join(lines)


def _hostile(cluster: Cluster, browser: Browser) -> None:
    script = "printf '\\033]0;x\\007<img src=x>\\n'; sleep 600"
    job = cluster.submit("--job-name", HOSTILE, script=script)
    browser.waits_for("/jobs", "<script>alert(1)</script>")  # its text, which was markup of nothing
    for path in ("/", "/jobs", f"/jobs/{job}"):
        page = browser.page(path)
        assert "<script>alert" not in page
        assert "\x1b" not in page
    browser.waits_for(f"/jobs/{job}", "<img src=x>")
    assert "<img src=x>" not in browser.page(f"/jobs/{job}")
    cluster.said("scancel", job)


def _workflow(cluster: Cluster, browser: Browser) -> None:
    """A picture of it, and of an array's tasks."""
    file = cluster.work / "steps.yaml"
    file.write_text(WORKFLOW)
    cluster.dshpc("workflow", "run", str(file)).good()
    assert "steps" in cluster.dshpc("workflow", "list").good().stdout
    browser.waits_for("/workflows", 'href="/workflows/steps"')
    page = browser.page("/workflows/steps")
    assert page.count("<path ") == 2
    browser.waits_for("/workflows/steps", 'class="box good"', 60)
    assert browser.post("/workflows/steps/cancel") == "/workflows/steps?said=cancelled"
    browser.waits_for("/workflows/steps", "it has not succeeded", 60)
    told = json.loads(browser.page("/api/workflows/steps"))
    assert told == cluster.dshpc("workflow", "status", "steps", "--json").good().report
    array = cluster.submit("--array=0-5", script="sleep 600").partition(";")[0]
    browser.waits_for(f"/jobs/{array}", '<rect class="task ')
    cluster.said("scancel", array)


def _added_up(cluster: Cluster, browser: Browser) -> None:
    """Usage, of the jobs that have ended: as the command tells it, in a while."""
    cluster.said("srun", "--gres=gpu:1", "true")
    browser.waits_for("/usage", "By user", 60)

    def is_same() -> bool:  # jobs that have just ended are added meanwhile
        told = json.loads(browser.page("/api/usage?by=gpu-type"))
        return bool(told == cluster.dshpc("usage", "--by", "gpu-type", "--json").good().report)

    wait_until(is_same, "both tell the same")


def _kept(cluster: Cluster) -> None:
    """With the setting `up` keeps one running, whose address the command tells, and `down` ends it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    cluster.dshpc("config", "set", "dashboard", f"127.0.0.1:{port}").good()
    cluster.dshpc("up", "--yes").good()
    said = cluster.dshpc("dashboard", "--no-browser").good().stdout
    address = re.fullmatch(rf"http://127\.0\.0\.1:{port}(/\?token=\S+)\n", said)
    assert address is not None, said
    browser = Browser(port)
    assert browser.ask("GET", "/").status == 401
    browser.cookie = browser.ask("GET", address[1]).headers["set-cookie"].partition(";")[0]
    browser.waits_for("/", "2 of 2 h100", 60)
    assert (cluster.folder / ".dshpc/dashboard.token").stat().st_mode & 0o777 == 0o600
    cluster.dshpc("down", "--yes").good()
    with pytest.raises(ConnectionRefusedError):
        browser.page("/")
    cluster.dshpc("up", "--yes").good()
    # The address is the same one, and who was let in still is
    assert cluster.dshpc("dashboard", "--no-browser").good().stdout == said
    browser.waits_for("/", "2 of 2 h100", 60)
    cluster.dshpc("config", "set", "dashboard", "off").good()
    cluster.dshpc("up", "--yes").good()
    with pytest.raises(ConnectionRefusedError):
        browser.page("/")


def _killed(cluster: Cluster, browser: Browser) -> None:
    """The page says so, has it started again by doctor's button, and comes back by itself."""
    kills = ("kill",) if cluster.engine == DOCKER else ("stop", "-t", "1")  # ours has no other
    cluster.engine.said(*kills, cluster.container)
    browser.waits_for("/", "The cluster is not running")
    assert "dshpc up" in browser.page("/")
    browser.page("/jobs")
    wait_until(lambda: browser.ask("GET", "/api/jobs").status in (409, 503), "no old list is told")
    browser.waits_for("/health/fix", "dshpc up", 60)
    (repair,) = re.findall(r'name="repair" value="([0-9a-f]+)"', browser.page("/health/fix"))
    assert browser.ask("POST", "/health/fix", {"csrf": "", "repair": repair}).status == 403
    assert browser.post("/health/fix", repair=repair) == "/health/fix"
    browser.waits_for("/health/fix", "What was done", 120)
    assert "Done: " in browser.page("/health/fix")
    browser.waits_for("/", "2 of 2 h100", 60)
    assert "The cluster is not running" not in browser.page("/")


def _filled(browser: Browser) -> None:
    """By more connections than it holds, of which each says half a word at most."""
    with ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection(("127.0.0.1", browser.port)))
            for _ in range(300)
        ]
        for each in silent[::2]:
            each.sendall(b"GET / HT")
        for _ in range(5):
            assert browser.ask("GET", "/").status == 200
        silent[-1].settimeout(30)
        assert silent[-1].recv(1) == b""  # and those that were left are cut off
