"""`dshpc-node job workflow`: a workflow submitted, looked at, cancelled, watched, as the calling user.

What is asked for stands on stdin (asking.Asked), the answer is one JSON object on stdout. Only
`follow NAME --work WORK` speaks to people, with one line for each change.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dshpc_setup.errors import DshpcError, Exit, usage_error
from dshpc_setup.jobs import view
from dshpc_setup.jobs.reader import JobReader
from dshpc_setup.jobs.view import View
from dshpc_setup.slurm import completion_log
from dshpc_setup.slurm.client import Slurm
from dshpc_setup.slurm.job_states import JobId
from dshpc_setup.workflows import request_building, standing
from dshpc_setup.workflows import state as states
from dshpc_setup.workflows.request_building import WorkflowRequest
from dshpc_setup.workflows.standing import Standing
from dshpc_setup.workflows.state import Ran, State

STATUS, CANCELLED = "dshpc.workflow/1", "dshpc.workflow-cancelled/1"
LIST = "dshpc.workflow-list/1"
_CANCEL_S = 30.0
_RUN_ENDS_S = 120.0  # a run stops behind the sbatch call that it is in, which may take as long
_SOON_S, _LATER_S, _SOON = 0.5, 2.0, 20  # between two questions; the first so many come soon
_AT_FIRST = 2  # questions, in whose time Slurm looks at a job for the first time: that is no news
_AWAY_S = 600.0  # how long the controller may be away


def main(rest: Sequence[str]) -> int:
    """The exit code; raises DshpcError for `follow` alone, for its reader is a person."""
    if rest[:1] == ["follow"]:
        return _follow(rest[1:])
    try:
        if rest:
            raise usage_error("dshpc-node job workflow takes follow NAME, or stdin.")
        asked = request_building.from_json(sys.stdin.read())
        command = {"run": run, "status": status, "cancel": cancel, "list": listed}.get(asked.verb)
        if command is None:
            raise usage_error(
                f"A workflow is not asked to {asked.verb}.", "It is of another version."
            )
        answer = command(asked)
    except DshpcError as error:
        answer = error.to_object()
    sys.stdout.write(json.dumps(answer) + "\n")
    return int(answer["exit_code"])


def _look(work: str) -> JobReader:
    from dshpc_setup.machine.local import LocalMachine

    return JobReader(LocalMachine(), work)


def run(asked: WorkflowRequest) -> dict[str, Any]:
    """Check all, submit what has to run; with `dry_run` say what would be."""
    import contextlib

    from dshpc_setup.jobs import offer, sbatch, submit
    from dshpc_setup.workflows import preflight
    from dshpc_setup.workflows.run import Submission

    sbatch.forget_variables(os.environ)
    look = _look(asked.work)
    jobs = preflight.wanted(asked)
    has = submit.load_offer(offer.FILE)
    held = states.lock(asked.work, asked.name)
    with contextlib.nullcontext(None) if asked.dry_run else held as is_cancelled:
        last = states.read(asked.work, asked.name)
        before = _standings(look, last) if last else []
        preflight.refuse_running(asked.name, before)
        preflight.check_fits(look.machine, jobs, has)
        here = [each.workspace for each in before if each.workspace and _is_there(look, each)]
        kept = {} if asked.again else preflight.unchanged(jobs, last, before, here)
        good = [each.name for each in before if each.kind == "good"]
        submission = Submission(look.machine, asked, has, kept, last, good, is_cancelled)
        return submission.run(jobs)


def _is_there(look: JobReader, each: Standing) -> bool:
    """Whether its workspace still is, and is this user's: only such a result counts as one."""
    record = look.record(each.workspace)
    return record is not None and record.place.uid == os.getuid()


def _standings(
    look: JobReader, state: State, *, why: bool = False, over: dict[str, View] | None = None
) -> list[Standing]:
    """One question to the controller for all of them; with `why`, one more for what is queued.

    Those in `over` have been seen to end and are not asked for; who ends now is added to them.
    """
    over = {} if over is None else over
    numbers = {
        int(ran.job_id) for name, ran in state.jobs.items() if ran.job_id and name not in over
    }
    known = look.known(*numbers) if numbers else ()
    reasons: dict[str, str] = {}
    ours = tuple(job for job in known if job.state == "PENDING" and job.number in numbers)
    if why and ours:
        from dshpc_setup.jobs import pending_reasons

        reasons = pending_reasons.reasons(look.machine, ours)
    forgotten = numbers - {job.number for job in known}
    logged = completion_log.find_all(look.log, numbers) if forgotten else None
    seen: dict[str, View | None] = {**over}
    for name, ran in state.jobs.items():
        if ran.job_id is None or name in over:
            continue
        found = _ours(look, ran, look.views(JobId(int(ran.job_id)), known, logged))
        seen[name] = found and replace(found, reason=reasons.get(found.id, found.reason))
        if found is not None and found.is_over:
            over[name] = found
    return standing.judge(state, seen, time.time())


def _ours(look: JobReader, ran: Ran, views: Sequence[View]) -> View | None:
    """What is known of our job, and not of another one that had its number."""
    for each in views:
        if each.workspace == ran.workspace:
            return each
    record = look.record(ran.workspace)
    return view.of_record(record, None, look.places) if record is not None else None


def _state(work: str, name: str) -> State:
    found = states.read(work, name)
    if found is not None:
        return found
    there = states.names(work)
    raise DshpcError(
        f"The workflow {name} has not been run here.",
        f"There are: {', '.join(there)}." if there else "No workflow has been run yet.",
        ("Run it: dshpc workflow run FILE.yaml",),
        Exit.USAGE,
        absent=True,
    )


def status(asked: WorkflowRequest) -> dict[str, Any]:
    """The `dshpc.workflow/1` object: every job as it is."""
    state = _state(asked.work, asked.name)
    found = _standings(_look(asked.work), state, why=True)
    over = all(each.is_over for each in found)
    return {
        "schema": STATUS,
        "exit_code": int(Exit.OK),
        "name": state.name,
        "file": state.file,
        "submitted": state.submitted,
        "is_over": over,
        "succeeded": standing.all_good(found) if over else None,
        "jobs": [each.to_json() for each in found],
        "lines": standing.table(found),
    }


def listed(asked: WorkflowRequest) -> dict[str, Any]:
    """The `dshpc.workflow-list/1` object: this user's, the last that was run first."""
    found = [state for name in states.names(asked.work) if (state := states.read(asked.work, name))]
    found.sort(key=lambda state: (-state.submitted, state.name))
    rows = [
        {"name": each.name, "file": each.file, "submitted": each.submitted, "jobs": len(each.jobs)}
        for each in found
    ]
    return {"schema": LIST, "exit_code": int(Exit.OK), "workflows": rows}


def cancel(asked: WorkflowRequest) -> dict[str, Any]:
    """End what is not over; a run that submits it at this moment stops, and takes back what it has
    submitted."""
    look = _look(asked.work)
    if not states.is_begun(asked.work, asked.name):
        _state(asked.work, asked.name)
    with states.cancelling(asked.work, asked.name, _RUN_ENDS_S) as stopped:
        # One that was stopped at its first job has no state
        state = State(asked.name, "", 0.0) if stopped else _state(asked.work, asked.name)
        found = _standings(look, states.read(asked.work, asked.name) or state)
        going = [each for each in found if not each.is_over]
        if going:
            _scancel(look, asked.name, [each.job_id for each in going if each.job_id])
    # What a run that was stopped has taken back itself is cancelled, too
    ours = [each for each in found if each in going or (stopped and each.state == "CANCELLED")]
    jobs = [{"name": each.name, "job_id": each.job_id} for each in ours]
    return {"schema": CANCELLED, "exit_code": int(Exit.OK), "name": asked.name, "jobs": jobs}


def _scancel(look: JobReader, name: str, numbers: Sequence[str]) -> None:
    done = Slurm(look.machine).cancel(*numbers, deadline_s=_CANCEL_S)
    if not done.ok:
        raise DshpcError(
            f"The workflow {name} could not be cancelled.", done.text,
            ("See what is wrong: dshpc doctor",),
        )  # fmt: skip


def _follow(rest: Sequence[str]) -> int:
    """0 where all succeed, 1 where one does not, 130 where we were interrupted."""
    if len(rest) != 3 or rest[1] != "--work":
        raise usage_error("dshpc-node job workflow follow takes NAME --work WORK.")
    name, work = rest[0], rest[2]
    try:
        found = _watched(_look(work), _state(work, name))
    except KeyboardInterrupt:  # the host says what goes on
        return int(Exit.INTERRUPTED)
    except BrokenPipeError:
        return 141
    good = standing.all_good(found)
    _say(f"the workflow {name} {'has succeeded' if good else 'has not succeeded'}")
    return int(Exit.OK if good else Exit.WARNING)


def _watched(look: JobReader, state: State) -> list[Standing]:
    """Until all is over."""
    told: dict[str, str] = {}
    over: dict[str, View] = {}
    asked, away_since = 0, None
    while True:
        asked += 1
        try:
            found = _standings(look, state, why=asked % 5 == 1, over=over)
            away_since = None
        except DshpcError:
            away_since = away_since or time.monotonic()
            if time.monotonic() - away_since > _AWAY_S:
                raise
            found = []
        for each in found:
            if each.kind == "queued" and asked <= _AT_FIRST:
                continue
            line = standing.change(each)
            # Why it waits may be worded anew each time; what it is may not
            key = each.words if each.kind == "queued" else line if each.is_over else each.kind
            if told.get(each.name) != key:
                told[each.name] = key
                _say(line)
        if found and all(each.is_over for each in found):
            return found
        time.sleep(_SOON_S if asked <= _SOON else _LATER_S)


def _say(text: str) -> None:
    from dshpc_setup.terminal.command_names import as_called

    sys.stderr.write(f"dshpc: {as_called(text)}\n")
    sys.stderr.flush()
