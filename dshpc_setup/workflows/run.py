"""A workflow submitted, in the container: one sbatch call for each job."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.jobs import node_choice, submit
from dshpc_setup.jobs.offer import Offer
from dshpc_setup.jobs.stopping import told_to_stop
from dshpc_setup.machine import Machine
from dshpc_setup.slurm.client import Slurm
from dshpc_setup.workflows import state as states
from dshpc_setup.workflows.model import DEPENDENCY, Need
from dshpc_setup.workflows.preflight import Wanted
from dshpc_setup.workflows.request_building import WorkflowRequest
from dshpc_setup.workflows.standing import GOOD, Kind, Standing, unmet_needs
from dshpc_setup.workflows.state import Ran, State

SUBMITTED = "dshpc.workflow-submitted/1"
_CANCEL_S = 30.0


@dataclass
class Submission:
    """One run of a workflow, from its first job to its last."""

    machine: Machine
    asked: WorkflowRequest
    has: Offer
    kept: Mapping[str, Ran]
    last: State | None
    good: Sequence[str] = ()  # the jobs that ended well in the last run
    is_cancelled: Callable[[], bool] | None = None  # by somebody else

    def run(self, jobs: Sequence[Wanted]) -> dict[str, Any]:
        """The `dshpc.workflow-submitted/1` object; raises DshpcError, with nothing left queued."""
        state = State(self.asked.name, self.asked.file, round(time.time(), 3))
        standings: dict[str, Standing] = {}
        answers: list[dict[str, Any]] = []
        names = {job.name: job.method for job in jobs}
        left = self._good_before(jobs)
        with told_to_stop() as told:
            for job in jobs:
                self._go_on(told, state)
                ran, answer, kind = self._job(job, state, standings, names)
                state = state.with_job(job.name, ran)
                left.pop(job.name, None)
                standings[job.name] = Standing(job.name, kind, "")
                answers.append(answer)
                if not self.asked.dry_run:
                    self._keep(state, left)
            self._go_on(told, state)
        return {
            "schema": SUBMITTED,
            "exit_code": int(Exit.OK),
            "name": self.asked.name,
            "jobs": answers,
            "notes": list(self.asked.notes),
        }

    def _good_before(self, jobs: Sequence[Wanted]) -> dict[str, Ran]:
        """What stays true of the last run, should this one not come to its end."""
        before = self.last.jobs if self.last else {}
        there = [job.name for job in jobs if job.name in self.good and job.name in before]
        return {name: replace(before[name], reused=True) for name in there}

    def _go_on(self, told: Sequence[str], state: State) -> None:
        """Raises DshpcError, with what is queued taken back, where this shall stop."""
        if told:
            why, code = f"{told[0]} came", Exit.INTERRUPTED
        elif self.is_cancelled is not None and self.is_cancelled():
            why, code = "it is being cancelled", Exit.ERROR
        else:
            return
        name = self.asked.name
        raise DshpcError(
            f"The submission of the workflow {name} was stopped: {why}.", self._taken_back(state),
            (f"Run it again: dshpc workflow run {self.asked.file}",), code,
        )  # fmt: skip

    def _job(
        self,
        job: Wanted,
        state: State,
        standings: Mapping[str, Standing],
        methods: Mapping[str, str | None],
    ) -> tuple[Ran, dict[str, Any], Kind]:
        """Submit one, or say why not; the last is how it stands for those that wait for it."""
        base = {"name": job.name, "job_id": None, "workspace": None, "sbatch": None, "gpus": None,
                "notes": [], "needs": [[need.job, need.ending] for need in job.needs]}  # fmt: skip
        kept = self.kept.get(job.name)
        if kept is not None:
            why = f"unchanged since job {kept.job_id}, not run again"
            same = {"job_id": kept.job_id, "workspace": kept.workspace}
            return kept, {**base, **same, "action": "reused", "why": why}, "good"
        fingerprint = job.request.fingerprint
        unmet = list(unmet_needs(job.needs, standings))
        if unmet:
            needless = all(standings[each.job].kind in GOOD for each in unmet)
            said = " and ".join(f"{each.job} {_ended(standings[each.job])}" for each in unmet)
            why = f"{'not needed' if needless else 'not run'}: {said}"
            ran = Ran(None, None, fingerprint, job.needs)
            kind: Kind = "not_needed" if needless else "not_run"
            return ran, {**base, "action": "none", "why": why}, kind
        done = self._submit(job, state, methods)
        ran = Ran(done["job_id"], done["workspace"], fingerprint, job.needs)
        parts = {key: done[key] for key in ("job_id", "workspace", "sbatch", "gpus", "notes")}
        return ran, {**base, **parts, "action": "submitted", "why": self._why(job)}, "queued"

    def _submit(
        self, job: Wanted, state: State, methods: Mapping[str, str | None]
    ) -> dict[str, Any]:
        waits = [need for need in job.needs if need.job not in self.kept]
        there = {need.job: state.jobs[need.job] for need in job.needs}
        folders = {name: ran.workspace for name, ran in there.items() if ran.workspace}
        request = replace(
            job.request,
            requires={**folders, **by_method(folders, [need.job for need in job.needs], methods)},
            dependency=dependency(waits, state.jobs),
            dry_run=self.asked.dry_run,
        )
        try:
            self._check_copied(job)
            offers = node_choice.all_of(self.has, asked=request)
            has = node_choice.chosen(self.machine, request, offers)
            done = submit.submit(self.machine, request, has)
        except DshpcError as error:
            raise self._undone(job, state, error) from None
        if self.asked.dry_run and waits:
            # No job has a number yet
            said = ",".join(f"{DEPENDENCY[need.ending]}:<{need.job}>" for need in waits)
            done["sbatch"] += [f"--dependency={said}", "--kill-on-invalid-dep=yes"]
        return done

    def _check_copied(self, job: Wanted) -> None:
        """Raises DshpcError where the host left the inputs where they are, for a job that was to be
        kept, and is no more."""
        if not (job.copied or self.asked.dry_run):
            raise DshpcError(
                "its inputs were not copied into the work folder.",
                "It was unchanged when the workflow started, and has to run now: its workspace was "
                "removed meanwhile, or the workflow was run by somebody else.",
                (f"Run it again: dshpc workflow run {self.asked.file}",),
                Exit.INCOMPLETE,
            )

    def _why(self, job: Wanted) -> str | None:
        """Why it runs again, where it has run well before, as far as its workspace still says so."""
        ran = self.last.jobs.get(job.name) if self.last else None
        if ran is None or ran.job_id is None:
            return None
        gone = ran.workspace is not None and not os.path.isdir(ran.workspace)
        if job.name not in self.good and not gone:
            return None
        if job.request.fingerprint is None:
            return f"job {ran.job_id} cannot be compared with it"
        if self.asked.again:
            return "--again"
        if ran.fingerprint != job.request.fingerprint:
            return f"it has changed since job {ran.job_id}"
        again = [need.job for need in job.needs if need.job not in self.kept]
        if again:
            return f"{', '.join(again)} runs again"
        return f"the workspace of job {ran.job_id} is gone"

    def _keep(self, state: State, left: Mapping[str, Ran]) -> None:
        """After each job: whatever happens then, it is known what was submitted.

        `left` are good jobs of the last run that this one has not come to.
        """
        try:
            states.write(self.asked.work, replace(state, jobs={**state.jobs, **left}))
        except DshpcError as error:
            self._cancel(state)
            raise replace(
                error, details=f"{error.details}\nWhat was submitted is cancelled."
            ) from None

    def _undone(self, job: Wanted, state: State, error: DshpcError) -> DshpcError:
        return DshpcError(
            f"The job {job.name} of the workflow could not be submitted: {error.brief}",
            "\n".join(filter(None, (error.details, self._taken_back(state)))),
            error.resolution,
            error.exit_code,
        )

    def _taken_back(self, state: State) -> str:
        cancelled = self._cancel(state)
        return f"Cancelled again: {cancelled}." if cancelled else "Nothing else was submitted."

    def _cancel(self, state: State) -> str:
        """What of this run is queued already."""
        ours = {
            name: ran.job_id for name, ran in state.jobs.items() if ran.job_id and not ran.reused
        }
        if not ours:
            return ""
        done = Slurm(self.machine).cancel(*map(str, ours.values()), deadline_s=_CANCEL_S)
        told = ", ".join(f"{name} (job {number})" for name, number in ours.items())
        return told if done.ok else f"{told}: asked for, and scancel said {done.text!r}"


def by_method(
    folders: Mapping[str, str], needs: Sequence[str], methods: Mapping[str, str | None]
) -> dict[str, str]:
    """Method -> workspace, for methods that one of the needed jobs runs, and no second one."""
    ran = [methods[name] for name in needs]
    return {
        method: folder
        for name, folder in folders.items()
        if (method := methods[name]) is not None and ran.count(method) == 1
    }


def _ended(each: Standing) -> str:
    return "succeeded" if each.kind == "good" else "is not run"


def dependency(waits: Sequence[Need], there: Mapping[str, Ran]) -> str | None:
    """ "afterok:17,afterany:18": all of them must come."""
    parts = [
        f"{DEPENDENCY[need.ending]}:{there[need.job].job_id}"
        for need in waits
        if there[need.job].job_id
    ]
    return ",".join(parts) or None
