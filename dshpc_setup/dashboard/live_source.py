"""The functions behind the commands, called for the pages of a project on a machine.

Jobs are known in the container: it is asked as the calling user, by the very calls of `dshpc job`. Each
question has a deadline; each raises DshpcError where there is no answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dshpc_setup import checkup, codec, settings, slurm_releases
from dshpc_setup.checkup import report
from dshpc_setup.cluster import (
    config_diff,
    gpu_jobs,
    gpu_nodes,
    gpu_watch,
    nodes,
    operations,
    own_files,
    own_process,
    use,
)
from dshpc_setup.cluster.config_diff import Differences
from dshpc_setup.cluster.gpu_jobs import ClusterGpus
from dshpc_setup.cluster.gpus import GpusNow
from dshpc_setup.dashboard.source import Agrees, Inside, JobReport, Jobs, Joining, Told
from dshpc_setup.diagnose.report import Report
from dshpc_setup.documents import foreign
from dshpc_setup.errors import DshpcError, Exit, told_error
from dshpc_setup.jobs import request_building, watch
from dshpc_setup.jobs.request import Request
from dshpc_setup.jobs.request_building import CommandLine
from dshpc_setup.jobs.staging import Incoming
from dshpc_setup.jobs.view import View
from dshpc_setup.join import giving, service, tokens
from dshpc_setup.join.giving import Made
from dshpc_setup.machine import CommandResult, Machine, pseudo_terminal
from dshpc_setup.machine.pseudo_terminal import Child, Size
from dshpc_setup.methods import store
from dshpc_setup.methods.model import Method
from dshpc_setup.methods.store import Entry
from dshpc_setup.observed.cluster_status import ClusterStatus
from dshpc_setup.project.folder import Project
from dshpc_setup.repair import Outcome, RepairOptions, repair_findings
from dshpc_setup.settings.overruled import Overruled
from dshpc_setup.setup.report import Report as SetupReport
from dshpc_setup.setup.report import Step, StepName
from dshpc_setup.slurm.client import requeue_argv
from dshpc_setup.terminal.reporter import Reporter, Silent
from dshpc_setup.usage.sums import Sum
from dshpc_setup.workflows.request_building import WorkflowRequest

_GPUS_S = 5.0
_WATCH_S = 90.0  # the container ends it after a minute
_LIST_S, _ONE_S, _ACT_S, _SUBMIT_S = 20.0, 8.0, 40.0, 180.0
_FLOW_S = 40.0  # one that is cancelled while it is submitted
_USE_S = 20.0
_LOG_LINES = 300
_NOTEBOOK_S = 900.0  # its packages are installed the first time
_STATUS = "See its state: dshpc status"


class _Unheard(Silent):
    """Of a run's steps the report alone is looked at."""

    def begin(self, name: StepName) -> None:
        return None

    def end(self, step: Step) -> None:
        return None


@dataclass(frozen=True)
class LiveSource:
    """Of a project on a machine. `owner`: whom files are for, where we are root for somebody else;
    `prepare` has the caller's folder of workspaces made."""

    machine: Machine
    project: Project
    inside: Inside
    prepare: Callable[[], None]
    work: str
    owner: tuple[int, int] | None = None

    @property
    def name(self) -> str:
        return str(self.project.runtime().get("container", ""))

    def hardware(self) -> Iterator[GpusNow]:
        chosen = self.project.settings(self.machine.env).simulate
        return gpu_watch.watch(self.machine, None, chosen, _GPUS_S)

    def holders(self, before: ClusterGpus | None) -> ClusterGpus | None:
        return gpu_jobs.ask(self.machine, self.project, _GPUS_S, before)

    def other_gpus(self, before: Sequence[GpusNow]) -> tuple[GpusNow, ...]:
        if not gpu_nodes.have_some(self.machine, self.project):
            return ()
        return gpu_nodes.of_others(self.machine, self.project, before, _GPUS_S)

    def watch_jobs(self, say: Callable[[Told], None]) -> None:
        def heard(line: str) -> None:
            told = _object(line) if line.startswith("{") else None
            say(line == watch.NODES if told is None else _jobs(_without_error(told)))

        words = ["dshpc-node", "job", "watch", "--work", self.work]
        done = self.inside(words, deadline_s=_WATCH_S, on_line=heard)
        if not done.ok:
            raise DshpcError(
                "The cluster does not tell its jobs.", done.text[-2000:] or done.state, (_STATUS,),
                Exit.USAGE if done.code == Exit.USAGE else Exit.INCOMPLETE,
            )  # fmt: skip

    def status(self) -> ClusterStatus:
        return operations.status(self.machine, self.project)

    def doctor(self) -> Report:
        return report.of(checkup.examine(self.machine, self.project))

    def jobs(self, *, older: bool = False) -> Jobs:
        return _jobs(self._job("list", *(["--all"] if older else []), deadline_s=_LIST_S))

    def job(self, job: str) -> JobReport:
        told = self._job("show", job, deadline_s=_ONE_S)
        request, sbatch = told.get("request"), told.get("sbatch")
        return JobReport(
            _views(told),
            request if isinstance(request, dict) else None,
            _texts(sbatch) if isinstance(sbatch, list) else None,
            _texts(told.get("notes")),
            told,
        )

    def cancel(self, job: str) -> str:
        told = self._job("cancel", job, deadline_s=_ACT_S)
        done = next((each for each in told.get("jobs", ()) if isinstance(each, dict)), {})
        result = str(done.get("result", ""))
        if told.get("exit_code"):
            raise DshpcError(f"Job {job} is not cancelled.", result)
        return result

    def requeue(self, job: str) -> None:
        done = self.inside(requeue_argv([job]), deadline_s=_ACT_S)
        if not done.ok:
            if slurm_releases.says("no_such_job").search(done.text):
                self.job(job)  # raises for one that has never been; others have ended long ago
            raise DshpcError(f"Job {job} is not requeued.", done.text or done.state)

    def methods(self) -> tuple[Entry, ...]:
        return store.survey(store.folders(self.project.folder))

    def method(self, name: str) -> Method:
        return store.find(store.folders(self.project.folder), name)

    def submit(self, asked: CommandLine) -> dict[str, Any]:
        incoming = Incoming(
            self.work, self.owner, asked.dry_run, self.prepare, runtime=self.project.runtime()
        )
        folder = str(self.project.folder)
        incoming.foresee = lambda: self._handed(
            "submit", request_building.foreseen(asked, folder, self.work)
        )
        try:
            request = (
                request_building.of_command(asked, incoming)
                if asked.command
                else request_building.of_method(asked, folder, incoming)
            )
        except BaseException:
            incoming.remove()
            raise
        return request_building.noted(self._handed("submit", request), asked)

    def check(self, asked: CommandLine) -> dict[str, Any]:
        incoming = Incoming(
            self.work, self.owner, True, self.prepare, runtime=self.project.runtime()
        )
        request, missing = request_building.to_check(asked, str(self.project.folder), incoming)
        told = request_building.noted(self._handed("check", request), asked)
        return {**told, "notes": [*told["notes"], *missing]}

    def settings(self) -> tuple[settings.Settings, tuple[Overruled, ...]]:
        values = self.project.settings(self.machine.env)
        own = self.project.foreign is None
        return values, own_files.of_project(self.project, values) if own else ()

    def in_force(self) -> dict[str, str]:
        return self.project.in_force

    def differences(self) -> Differences:
        return config_diff.differences(self.machine, self.project)

    def tried(self, name: str, value: str) -> SetupReport:
        from dshpc_setup.setup.pipeline import Configure
        from dshpc_setup.setup.run import Options

        options = Options({name: value}, dry_run=True, env=self.machine.env)
        run = Configure(self.machine, self.project, options, _Unheard())
        return run.run()

    def node_log(self, node: str) -> str:
        argv = operations.logs_argv(
            self.machine, self.project, follow=False, tail=_LOG_LINES, node=node
        )
        done = self.machine.run(argv, deadline_s=_ONE_S)
        if not done.ok:
            raise DshpcError("Its log cannot be read.", done.text or done.state)
        return f"{done.stdout}{done.stderr}"

    def usage(self) -> tuple[Sum, ...]:
        return use.ask(self.machine, self.project, deadline_s=_USE_S).sums

    def workflows(self) -> dict[str, Any]:
        return self._workflow("list", "")

    def workflow(self, name: str) -> dict[str, Any]:
        return self._workflow("status", name)

    def cancel_workflow(self, name: str) -> None:
        self._workflow("cancel", name)

    def _workflow(self, verb: str, name: str) -> dict[str, Any]:
        asked = json.dumps(WorkflowRequest(verb, name, self.work).to_json())
        words = ["dshpc-node", "job", "workflow"]
        return answer(self.inside(words, deadline_s=_FLOW_S, stdin=asked))

    def fixes(self) -> Outcome:
        return self._repairs(RepairOptions(Silent(), lambda: (), dry_run=True))

    def fix(self, agrees: Agrees, reporter: Reporter) -> Outcome:
        return self._repairs(RepairOptions(reporter, lambda: self.doctor().findings, agrees=agrees))

    def _repairs(self, how: RepairOptions) -> Outcome:
        known = checkup.examine(self.machine, self.project)
        return repair_findings(self.machine, self.project, known, report.of(known).findings, how)

    def terminal(self, words: Sequence[str], size: Size) -> Child:
        argv = own_process.program(words, self.work)
        env = {**self.machine.env, "DSHPC_DIR": str(self.project.folder), "TERM": "xterm-256color"}
        return pseudo_terminal.start(argv, env, size)

    def notebook(self, words: Sequence[str]) -> str:
        argv = own_process.program([*words, "--dir", str(self.project.folder)], self.work)
        done = self.machine.run(argv, deadline_s=_NOTEBOOK_S, stdin="")
        if not done.ok or not done.stdout.startswith("http"):
            late = done.state == "timeout"
            raise DshpcError(
                "The notebook was not there in time." if late else "The notebook was not started.",
                done.stderr[-2000:] or done.state,
                ("See whether its job waits: dshpc job list",),
            )
        return done.stdout.split()[0]

    def joining(self) -> Joining:
        self.project.need_own()
        given = tokens.read(self.project)
        used = any(each.used_by for each in given)
        seen = nodes.look(self.machine, self.project).nodes if used else ()
        return Joining(given, seen, service.said(self.project))

    def give_token(self, ttl: str, *, once: bool) -> Made:
        return giving.give(self.machine, self.project, ttl, once=once)

    def revoke_tokens(self) -> None:
        giving.revoke(self.project)

    def _job(self, verb: str, *words: str, deadline_s: float) -> dict[str, Any]:
        whole = ["dshpc-node", "job", verb, *words, "--json", "--work", self.work]
        return answer(self.inside(whole, deadline_s=deadline_s))

    def _handed(self, verb: str, request: Request) -> dict[str, Any]:
        whole = ["dshpc-node", "job", verb]
        handed = json.dumps(request.to_json())
        return answer(self.inside(whole, deadline_s=_SUBMIT_S, stdin=handed))


def answer(done: CommandResult) -> dict[str, Any]:
    """The JSON object that a `dshpc-node job` printed; raises the DshpcError that it is, or why there
    is none."""
    value = _object(done.stdout)
    if value is None:
        if done.state == "timeout":
            raise DshpcError("The cluster did not answer in time.", "", (_STATUS,), Exit.INCOMPLETE)
        raise DshpcError(
            "The cluster did not answer.", done.text or done.state, (_STATUS,), Exit.INCOMPLETE
        )
    return _without_error(value)


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = foreign.value(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _without_error(value: dict[str, Any]) -> dict[str, Any]:
    """Raises the DshpcError that it is."""
    error = value.get("error")
    if isinstance(error, dict):
        told = told_error(error)
        code = value.get("exit_code")
        raise replace(told, exit_code=code if isinstance(code, int) else Exit.ERROR)
    return value


def _jobs(told: dict[str, Any]) -> Jobs:
    return Jobs(_views(told), _texts(told.get("notes")), told)


def _views(told: dict[str, Any]) -> tuple[View, ...]:
    jobs = told.get("jobs")
    try:
        return tuple(codec.from_json(View, each) for each in jobs or ())
    except (ValueError, TypeError) as error:
        raise DshpcError(
            "The cluster's image is of another version: its jobs cannot be read.",
            str(error),
            ("Rebuild the image: configure-environment",),
        ) from None


def _texts(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()
