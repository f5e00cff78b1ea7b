"""The application on fakes of the functions, asked without a socket."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from dshpc_setup.cluster.config_diff import Differences
from dshpc_setup.cluster.gpu_jobs import ClusterGpus, Job
from dshpc_setup.cluster.gpus import GpusNow
from dshpc_setup.dashboard.access import Access
from dshpc_setup.dashboard.app import application
from dshpc_setup.dashboard.board import Board
from dshpc_setup.dashboard.site import Site
from dshpc_setup.dashboard.source import Agrees, JobReport, Jobs, Joining, Told
from dshpc_setup.diagnose.report import Report
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import GpuDevice, Gpus
from dshpc_setup.jobs.request_building import CommandLine
from dshpc_setup.jobs.view import View
from dshpc_setup.join.giving import Made
from dshpc_setup.join.token import Token
from dshpc_setup.machine.pseudo_terminal import Size
from dshpc_setup.methods import store
from dshpc_setup.methods.model import Method
from dshpc_setup.methods.store import Entry
from dshpc_setup.observed.cluster_status import ClusterStatus
from dshpc_setup.probes.readings import Reading, Readings
from dshpc_setup.repair import Done, Outcome, Repair
from dshpc_setup.settings import Settings, load
from dshpc_setup.settings.overruled import Overruled
from dshpc_setup.setup.report import Report as SetupReport
from dshpc_setup.slurm.gpus import SlurmGpu
from dshpc_setup.slurm.nodes import Node
from dshpc_setup.terminal.reporter import Reporter
from dshpc_setup.usage.sums import Sum

PORT = 8410
HOST = f"127.0.0.1:{PORT}"


def a_job(number: int, state: str = "RUNNING", **more: Any) -> View:
    known = {"user": "ada", "submitted": 1000.0 + number, "started": 1001.0 + number, "uid": 1000}
    return View(
        **{
            "id": str(number),
            "number": number,
            "task": None,
            "name": "train",
            "state": state,
            **known,
            **more,
        }
    )


def a_repair(text: str = "") -> Repair:
    return Repair(
        "start-cluster",
        f"Start the cluster{text}",
        (("dshpc", "up", text),),
        root=True,
        changes=(f"/etc/daemon.json{text}",),
        loss=f"1 container stops{text}",
        fixes=("DSH-SL-001",),
    )


def a_workflow(text: str = "") -> dict[str, Any]:
    """As the container tells it: train waits for prepare, report for the end of both."""

    def job(name: str, kind: str, number: str | None, *requires: tuple[str, str]) -> dict[str, Any]:
        needs = [{"job": other, "ending": ending} for other, ending in requires]
        return {
            "name": name, "kind": kind, "words": kind + text, "job_id": number, "why": text or None,
            "on": text, "seconds": 1.5, "reused": False, "requires": needs,
        }  # fmt: skip

    prepare, train = "prepare" + text, "train" + text
    return {
        "schema": "dshpc.workflow/1", "exit_code": 0, "name": "steps", "file": f"/lab/steps.yaml{text}",
        "submitted": 1000.0, "is_over": False, "succeeded": None, "lines": ["a line"],
        "jobs": [
            job(prepare, "good", "3"),
            job(train, "running", "4", (prepare, "COMPLETED")),
            job("report" + text, "queued", None, (train, "FAILED"), (prepare, "FINISHED")),
        ],
    }  # fmt: skip


def _status() -> ClusterStatus:
    node = Node("node1", "mixed", gres_total={"gpu:h100": 2}, gres_in_use={"gpu:h100": 1})
    return ClusterStatus(
        "/home/ada/hpc", "hpc-slurm", "running", phase="ready", nodes=(node,), pending=()
    )


def _gpus() -> GpusNow:
    devices = tuple(
        GpuDevice(
            index,
            "nvidia",
            name="NVIDIA H100 80GB HBM3",
            uuid=f"GPU-{index}",
            memory_mib=81920,
            slurm_type="h100",
            device_files=(f"/dev/nvidia{index}",),
        )
        for index in range(2)
    )
    readings = Readings(
        (
            Reading(utilization_percent=87, temperature_c=61, power_w=350.0, memory_used_mib=40960),
            Reading(),
        ),
        (("nvidia", "present"),),
    )
    listed = tuple(SlurmGpu("h100", (f"/dev/nvidia{index}",)) for index in range(2))
    held = (Job("3", "ada", "train", 1, (0,)),)
    cluster = ClusterGpus("hpc-slurm", "ready", None, False, "node1", listed, held)
    return GpusNow(Gpus("present", devices), readings, cluster)


class FakeChild:
    """Prints what it is given, answers each key with itself, and ends at an "x"."""

    def __init__(self, prints: list[bytes]) -> None:
        self._prints: queue.Queue[bytes] = queue.Queue()
        for each in prints:
            self._prints.put(each)
        self.typed = b""
        self.size: Size | None = None
        self.ended: int | None = None

    def read(self) -> bytes:
        return self._prints.get()

    def type(self, keys: bytes) -> bool:
        self.typed += keys
        self._prints.put(keys)
        if keys == b"x":
            self._end(3)
        return True

    def resize(self, size: Size) -> None:
        self.size = size

    def code(self) -> int | None:
        return self.ended

    def hang_up(self) -> None:
        self._end(129)

    def close(self) -> None:
        return None

    def _end(self, code: int) -> None:
        self.ended = code
        self._prints.put(b"")


@dataclass
class FakeSource:
    """What the functions would say, and what was asked of them."""

    work: str = "/home/ada/hpc/work"
    name: str = "hpc-slurm"
    told_status: ClusterStatus = field(default_factory=_status)
    told_gpus: GpusNow = field(default_factory=_gpus)
    told_jobs: Jobs = field(
        default_factory=lambda: Jobs((a_job(3),), told={"schema": "dshpc.jobs/1"})
    )
    older: Jobs | None = None
    reports: dict[str, JobReport] = field(default_factory=dict)
    told_doctor: Report = field(default_factory=lambda: Report((), ()))
    told_methods: tuple[Entry, ...] = ()
    told_differences: Differences = field(default_factory=lambda: Differences(()))
    told_report: SetupReport = field(default_factory=SetupReport)
    log: str = "slurmctld: it runs\n"
    told_usage: tuple[Sum, ...] = (
        Sum("ada", "train", "h100", "2026-W48", 2, 7200.0, 3600.0, 1800.0, 3.6e6),
        Sum("bob", "", "h100", "2026-W47", 1, 3600.0),
    )
    told_workflows: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {"steps": a_workflow()}
    )
    told_fixes: Outcome = field(
        default_factory=lambda: Outcome(
            (), (Done(a_repair(), "planned"),), {"DSH-HO-001": "It takes a person."}, dry_run=True
        )
    )
    watched: tuple[Told, ...] = ()
    told_others: tuple[GpusNow, ...] = ()
    told_joining: Joining = field(default_factory=Joining)
    prints: list[bytes] = field(default_factory=list)
    fails: DshpcError | None = None
    done: list[Any] = field(default_factory=list)

    def _may_fail(self) -> None:
        if self.fails is not None:
            raise self.fails

    def hardware(self) -> Iterator[GpusNow]:
        while True:
            yield self.told_gpus

    def holders(self, before: ClusterGpus | None) -> ClusterGpus | None:
        return self.told_gpus.cluster

    def other_gpus(self, before: Sequence[GpusNow]) -> tuple[GpusNow, ...]:
        return self.told_others

    def watch_jobs(self, say: Callable[[Told], None]) -> None:
        self._may_fail()
        for told in self.watched:
            say(told)

    def status(self) -> ClusterStatus:
        self._may_fail()
        return self.told_status

    def doctor(self) -> Report:
        return self.told_doctor

    def jobs(self, *, older: bool = False) -> Jobs:
        self._may_fail()
        return self.older if older and self.older is not None else self.told_jobs

    def job(self, job: str) -> JobReport:
        self._may_fail()
        if job not in self.reports:
            raise DshpcError(f"There is no job {job}.", absent=True)
        return self.reports[job]

    def terminal(self, words: Sequence[str], size: Size) -> FakeChild:
        self._may_fail()
        self.done.append(("terminal", tuple(words)))
        return FakeChild(self.prints)

    def notebook(self, words: Sequence[str]) -> str:
        self._may_fail()
        self.done.append(("notebook", tuple(words)))
        return "http://127.0.0.1:9999/lab?token=abc"

    def joining(self) -> Joining:
        self._may_fail()
        return self.told_joining

    def give_token(self, ttl: str, *, once: bool) -> Made:
        self._may_fail()
        self.done.append(("token", ttl, once))
        return Made(Token("10.0.0.1", 6900, "a" * 64, "b" * 12, "c" * 32), ttl, once)

    def revoke_tokens(self) -> None:
        self.done.append(("revoke",))

    def cancel(self, job: str) -> str:
        self._may_fail()
        self.done.append(("cancel", job))
        return "cancelled"

    def requeue(self, job: str) -> None:
        self._may_fail()
        self.done.append(("requeue", job))

    def methods(self) -> tuple[Entry, ...]:
        return self.told_methods

    def method(self, name: str) -> Method:
        for each in self.told_methods:
            if each.name == name and each.method is not None:
                return each.method
        raise store.unknown(name, self.told_methods, ())

    def submit(self, asked: CommandLine) -> dict[str, Any]:
        self._may_fail()
        kept = {
            Path(path).name: Path(path).read_bytes()
            for path in asked.inputs
            if Path(path).is_file()
        }
        self.done.append(("submit", asked, kept))
        return {
            "job_id": None if asked.dry_run else "7",
            "sbatch": ["sbatch", "--parsable"],
            "notes": ["A note."],
        }

    def check(self, asked: CommandLine) -> dict[str, Any]:
        self._may_fail()
        self.done.append(("check", asked))
        return {"can_run": True, "where": "on 1 GPU h100", "notes": [], "whys": []}

    def settings(self) -> tuple[Settings, tuple[Overruled, ...]]:
        return load(flags={"simulate": "h100:2"}, env={}), ()

    def in_force(self) -> dict[str, str]:
        return {"home": "host"}

    def differences(self) -> Differences:
        self._may_fail()
        return self.told_differences

    def tried(self, name: str, value: str) -> SetupReport:
        self._may_fail()
        self.done.append(("tried", name, value))
        return self.told_report

    def node_log(self, node: str) -> str:
        self._may_fail()
        return self.log

    def usage(self) -> tuple[Sum, ...]:
        self._may_fail()
        return self.told_usage

    def workflows(self) -> dict[str, Any]:
        self._may_fail()
        rows = [
            {
                "name": name,
                "file": told["file"],
                "submitted": told["submitted"],
                "jobs": len(told["jobs"]),
            }
            for name, told in self.told_workflows.items()
        ]
        return {"schema": "dshpc.workflow-list/1", "exit_code": 0, "workflows": rows}

    def workflow(self, name: str) -> dict[str, Any]:
        self._may_fail()
        if name not in self.told_workflows:
            raise DshpcError(f"The workflow {name} has not been run here.", absent=True)
        return self.told_workflows[name]

    def cancel_workflow(self, name: str) -> None:
        self._may_fail()
        self.done.append(("cancel workflow", name))

    def fixes(self) -> Outcome:
        self._may_fail()
        return self.told_fixes

    def fix(self, agrees: Agrees, reporter: Reporter) -> Outcome:
        self._may_fail()
        reporter.progress("Working")
        done = tuple(
            Done(each.repair, "done" if agrees(each.repair) else "declined", "")
            for each in self.told_fixes.done
        )
        self.done.append(("fix", tuple(each.state for each in done)))
        return Outcome(self.told_fixes.before, done, {}, after=())


@pytest.fixture(scope="session")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Made before the world is forbidden: a loop wakes itself by a pair of sockets."""
    made = asyncio.new_event_loop()
    yield made
    made.run_until_complete(made.shutdown_default_executor())
    made.close()


@dataclass
class Visitor:
    """A browser without scripts; `headers` of each request may be replaced."""

    loop: asyncio.AbstractEventLoop
    site: Site
    source: FakeSource
    cookies: dict[str, str] = field(default_factory=dict)

    def look(self) -> None:
        """Each section is asked once, as the threads of the board would."""
        board = self.site.board
        for section in board.sections:
            section.ask(board.time)

    def ask(self, method: str, path: str, **more: Any) -> httpx2.Response:
        headers = {"host": HOST, **more.pop("headers", {})}
        if self.cookies:
            headers.setdefault("cookie", "; ".join(f"{k}={v}" for k, v in self.cookies.items()))

        async def answer() -> httpx2.Response:
            transport = httpx2.ASGITransport(application(self.site), raise_app_exceptions=False)
            async with httpx2.AsyncClient(transport=transport, base_url=f"http://{HOST}") as client:
                url = f"http://{HOST}{path}"
                found: httpx2.Response = await client.request(method, url, headers=headers, **more)
                return found

        return self.loop.run_until_complete(answer())

    def get(self, path: str, **more: Any) -> httpx2.Response:
        return self.ask("GET", path, **more)

    def raw(self, path: str) -> tuple[int, str]:
        """Of a path that no client has made shorter: the code and the text of the answer."""
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        scope = {
            "type": "http", "method": "GET", "path": path, "raw_path": path.encode(),
            "query_string": b"", "scheme": "http", "root_path": "", "http_version": "1.1",
            "headers": [(b"host", HOST.encode()), (b"cookie", cookie.encode())],
        }  # fmt: skip
        said: list[Any] = []

        async def send(message: Any) -> None:
            said.append(message)

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b""}

        self.loop.run_until_complete(application(self.site)(scope, receive, send))
        body = b"".join(each.get("body", b"") for each in said[1:])
        return said[0]["status"], body.decode(errors="replace")

    def page(self, path: str, code: int = 200) -> str:
        answer = self.get(path)
        assert answer.status_code == code, answer.text
        return answer.text

    def post(self, path: str, data: dict[str, str] | None = None, **more: Any) -> httpx2.Response:
        whole = {"csrf": self.site.access.csrf, **(data or {})}
        return self.ask("POST", path, data=whole, **more)

    @property
    def stranger(self) -> Visitor:
        return replace(self, cookies={})


@pytest.fixture
def visitor(loop: asyncio.AbstractEventLoop) -> Visitor:
    """One who is let in, and sees what was sampled once."""
    source = FakeSource()
    access = Access(PORT)
    site = Site(source, Board(source), access)
    one = Visitor(loop, site, source, {access.cookie: access.session})
    one.look()
    return one
