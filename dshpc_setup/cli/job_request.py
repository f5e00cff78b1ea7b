"""A request handed to `dshpc-node job VERB` in the cluster, on stdin: the one answer, or why there is none.

Imports are counted here: a submission may take 0.35 s longer than its sbatch call.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from dshpc_setup import engine_client
from dshpc_setup.cli import exec as execution
from dshpc_setup.cli import exec_caller, exec_stdin, stopping
from dshpc_setup.documents import foreign
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.machine import CommandResult, handed_in
from dshpc_setup.terminal.command_names import as_called

_ANSWER_S = 80.0  # 60 s for a cluster that starts
_CALL_S = 180.0  # for each job: 140 s for sbatch, and what --no-wait asks for
_STATUS = "See its state: dshpc status"
# as-user's own exit codes, and those of `docker exec` where it could start nothing
_NEVER_BEGUN = (2, 3, int(Exit.USAGE), 125, 126, 127)


@dataclass(frozen=True)
class Cluster:
    """The cluster that a command line means; `owner` (uid, gid) where we are root for somebody else."""

    runtime: dict[str, Any]
    project: str
    owner: tuple[int, int] | None

    @property
    def work(self) -> str:
        return str(self.runtime["work"])

    @property
    def also(self) -> tuple[str, ...]:
        """Folders that jobs see beside the work folder: homes and mounts."""
        return (*self.runtime.get("homes", ()), *self.runtime.get("mounts", ()))

    def prepare(self) -> None:
        """Have the container's root make the caller's folder for workspaces, where it is not there yet.
        What is wrong with it, if anything, is seen as it is used."""
        from dshpc_setup.machine.local import LocalMachine

        call = execution.Call(execution.NODE, ["job", "submit"], self.runtime)
        user = exec_caller.calling_user(os.environ)
        words = ("dshpc-node", "add-ground", self.work, str(user[0]), str(user[1]))
        LocalMachine().run(call.engine.run_in(call.container, *words), deadline_s=_ANSWER_S)


def environ(folder: str | Path | None) -> Mapping[str, str]:
    """Ours, with the project's folder where one was named."""
    return os.environ if folder is None else {**os.environ, "DSHPC_DIR": str(folder)}


def cluster(folder: str | Path | None) -> Cluster:
    """That of the folder named, else of the one that we stand in; raises DshpcError without one."""
    where = environ(folder)
    runtime = execution.runtime(where)
    user = exec_caller.calling_user(os.environ)
    owner = user[:2] if os.geteuid() == 0 and user[0] != 0 else None
    return Cluster(runtime, execution.project_folder(where), owner)


class Handed(Protocol):
    """A request, of one job or of a workflow."""

    def to_json(self) -> dict[str, Any]: ...


class UnansweredError(DshpcError):
    """What was asked for may still be done: what was copied for it is to stay."""


def ask(
    runtime: dict[str, Any], verb: str, request: Handed, *, deadline_s: float | None = None
) -> dict[str, Any]:
    """What `dshpc-node job VERB` answers; raises DshpcError where it refuses or cannot be asked, and
    UnansweredError where it may have done it all the same."""
    # Before signals are heard: `stop` runs a command too, and a module that is half imported has none
    from dshpc_setup.machine import commands  # noqa: F401
    from dshpc_setup.machine.local import LocalMachine

    call = execution.Call(execution.NODE, ["job", verb], runtime)
    call.mode = exec_stdin.DIRECT
    argv = call.client(exec_caller.calling_user(os.environ), os.environ)
    said: list[str] = []
    machine = LocalMachine()
    handed = request.to_json()
    jobs = len(handed.get("jobs") or handed.get("targets") or ())
    deadline_s = deadline_s or _ANSWER_S + _CALL_S * max(1, jobs)
    unsure = _may_submit(verb, handed)

    def stop() -> None:
        if unsure:
            _say("Interrupted: stopping the submission. Press Ctrl-C again to quit at once.")
        handed_in.deliver(machine, call.deliver)

    try:
        # A client that is ended leaves what it started running
        with handed_in.passed_on(stop, stopping.PATIENCE_S) as came:
            done = machine.run(
                argv,
                deadline_s=deadline_s,
                stdin=json.dumps(handed),
                on_line=lambda text: _heard(text, said),
            )
    except KeyboardInterrupt:
        if unsure:
            raise _unanswered("Interrupted before the cluster answered.", handed, said) from None
        raise
    try:
        answer = _answer(done.stdout)
    except DshpcError as error:
        if came and error.exit_code == Exit.INTERRUPTED:
            raise replace(error, exit_code=128 + came[0]) from None
        raise
    if came and (answer is not None or done.state != "timeout"):
        raise stopping.too_late(answer, came[0]) or KeyboardInterrupt
    if answer is not None:
        return answer
    if done.state == "timeout":
        handed_in.deliver(machine, call.deliver)
        silent = f"The cluster did not answer within {deadline_s:.0f} s."
        if unsure:
            raise _unanswered(silent, handed, said)
        raise DshpcError(silent, "\n".join(said), (_STATUS,), Exit.INCOMPLETE)
    raise _without_answer(call, done, handed if unsure else None, said)


def _may_submit(verb: str, handed: Mapping[str, Any]) -> bool:
    submits = verb == "submit" or (verb == "workflow" and handed.get("verb") == "run")
    return submits and not handed.get("dry_run")


def _without_answer(
    call: execution.Call,
    done: CommandResult,
    submitted: Mapping[str, Any] | None,
    said: Sequence[str],
) -> DshpcError:
    """Why a client that ended gave none; `submitted` may be, unless it never got there."""
    from dshpc_setup.cli import exec_trouble, job_trouble

    if done.state == "absent":
        return exec_trouble.no_client(call.engine.program[0], done.text)
    exec_trouble.explain(call, done.code or 1, folder_said=True)
    if done.code == Exit.USAGE:
        return job_trouble.older("\n".join(said))
    how = f"It ended with {done.code} ({done.state})."
    if submitted is not None and done.code not in _NEVER_BEGUN:
        return _unanswered("The cluster's answer was lost.", submitted, said or [how])
    return DshpcError("The cluster did not take the request.", "\n".join(said) or how, (_STATUS,))


def _unanswered(brief: str, handed: Mapping[str, Any], said: Sequence[str]) -> UnansweredError:
    """Of a submission."""
    left = (f"Copies of the inputs may be left in {folder}." for folder in _copies(handed))
    look = "It may have been submitted: dshpc job list"
    return UnansweredError(brief, "\n".join([*said, *left]), (look, _STATUS), Exit.INCOMPLETE)


def _copies(handed: Mapping[str, Any]) -> list[str]:
    """The folders that hold copies for it, or for the jobs of a workflow."""
    jobs = [job["request"] for job in handed.get("jobs", ()) if job["copied"]]
    return [each["incoming"] for each in (handed, *jobs) if each.get("incoming")]


def _heard(text: str, said: list[str]) -> None:
    """A line of either stream: all but the answer is for people, at once. Not what the engine's client says
    of a container that it did not reach: why, _without_answer finds out."""
    if not text.startswith("{") and text.strip():
        said.append(text.rstrip())
        if not text.startswith(engine_client.SAYS):
            _say(text.rstrip())


def _say(text: str) -> None:
    sys.stderr.write(as_called(text) + "\n")
    sys.stderr.flush()


def _answer(text: str) -> dict[str, Any] | None:
    """The JSON object among the lines; raises the DshpcError that it is."""
    for line in text.splitlines():
        if not line.startswith("{"):
            continue
        try:
            value = foreign.value(line)
            if value["schema"] != "dshpc.error/1":
                return dict(value)
            error = value["error"]
            refused = DshpcError(
                str(error["brief"]), str(error["details"]), tuple(map(str, error["resolution"])),
                int(error["exit_code"]),
            )  # fmt: skip
        except (ValueError, KeyError, TypeError, OverflowError):
            continue
        raise refused
    return None
