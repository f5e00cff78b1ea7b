"""`dshpc-node job submit|check`: a request in, GPUs chosen, one sbatch call, one JSON object out.

It runs as the calling user, and its imports are counted: see benchmarks/method_run.py.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from dshpc_setup.documents import foreign
from dshpc_setup.errors import DshpcError, Exit, usage_error
from dshpc_setup.jobs import (
    answer,
    availability,
    call,
    choosing,
    gpu_words,
    node_availability,
    node_choice,
    offer,
    removal,
    request,
    safe_open,
    sbatch,
    workspace,
    workspace_folders,
)
from dshpc_setup.jobs.fit import Refusal, fit
from dshpc_setup.jobs.gpu_words import Clock
from dshpc_setup.jobs.offer import Offer
from dshpc_setup.jobs.request import Request
from dshpc_setup.jobs.stopping import interruptible
from dshpc_setup.jobs.workspace import Workspace
from dshpc_setup.machine import Machine
from dshpc_setup.methods.model import Value

CHECK_SCHEMA = "dshpc.method-check/1"
INPUTS = "inputs"
_CANCEL_S = 30.0


def main(rest: list[str]) -> int:
    """Submit what stands on stdin; the answer, or the error, is on stdout."""
    return _answered(rest, _or_taken_back)


def check_main(rest: list[str]) -> int:
    """Say whether what stands on stdin could run."""
    return _answered(rest, check)


def _answered(rest: list[str], command: Callable[[Machine, Request, Offer], dict[str, Any]]) -> int:
    from dshpc_setup.machine.local import LocalMachine

    sbatch.forget_variables(os.environ)
    try:
        if rest:
            raise usage_error("dshpc-node job submit and check take no words.")
        machine, asked = LocalMachine(), _request(sys.stdin.read())
        offers = node_choice.all_of(load_offer(offer.FILE), asked=asked)
        has = node_choice.chosen(machine, asked, offers)
        said = command(machine, asked, has)
    except DshpcError as error:
        said = error.to_object()
    sys.stdout.write(json.dumps(said) + "\n")
    return int(said["exit_code"])


def _request(text: str) -> Request:
    try:
        return request.from_json(foreign.value(text))
    except ValueError as error:
        raise usage_error("The job request cannot be read.", str(error)) from None


def load_offer(path: str) -> Offer:
    try:
        with open(path, encoding="utf-8") as file:
            return offer.from_json(foreign.of_file(file))
    except (OSError, ValueError) as error:
        raise DshpcError(
            "The cluster has not said yet what it offers to jobs.",
            str(error),
            ("See its state: dshpc status", "Restart it: dshpc restart"),
            Exit.INCOMPLETE,
        ) from None


def _or_taken_back(machine: Machine, asked: Request, has: Offer) -> dict[str, Any]:
    """As `submit`; raises DshpcError, with nothing left queued, where a signal ends it before its end."""
    made: list[Workspace] = []
    with interruptible():
        try:
            return submit(machine, asked, has, made)
        except KeyboardInterrupt:
            from dshpc_setup.jobs import unacknowledged

            raise unacknowledged.taken_back(machine, made) from None


def submit(
    machine: Machine, asked: Request, has: Offer, made: list[Workspace] | None = None
) -> dict[str, Any]:
    """The `dshpc.job-submitted/1` object; with `dry_run` of what would be. Raises DshpcError.

    With targets it is the first one's, and `jobs` holds each one's `job_id`, `workspace`, `sbatch`,
    `gpus` and `notes`. `made`: the workspaces, each added before it is made.
    """
    made = [] if made is None else made
    clock = Clock(time.time(), asked.utc_offset_s)
    _check_array(asked, has)
    if asked.image is not None:
        from dshpc_setup.jobs import images

        images.check_node()
    jobs = choosing.planned(machine, asked, has, clock)
    no_wait = asked.if_busy == "refuse"
    if no_wait:
        choosing.check_free(jobs, asked, clock)
    done: list[dict[str, Any]] = []
    try:
        for place, each in enumerate(jobs, 1):
            made.append(Workspace(asked.work, os.getuid(), workspace.new_name(asked.name)))
            is_last = place == len(jobs)
            done.append(_submitted(machine, each, made[-1], is_last=is_last))
            notes = answer.notes(each.fit, each.has, each.now, clock)
            done[-1]["notes"] += [*notes, *answer.place(each.request)]
            if no_wait and not asked.dry_run:
                _begin_or_go(machine, asked, done[-1], made[-1])
    except DshpcError as error:
        ids = [str(item["job_id"]) for item in done if item["job_id"]]
        if not ids:
            raise
        told = f"Not taken back, and queued or running: job {gpu_words.listed(ids)}."
        details = f"{error.details}\n{told}" if error.details else told
        raise replace(error, details=details) from None
    whole = {"schema": request.SUBMITTED, "exit_code": int(Exit.OK), **done[0]}
    return {**whole, "jobs": done} if asked.targets else whole


def _begin_or_go(machine: Machine, asked: Request, job: dict[str, Any], place: Workspace) -> None:
    """Where it has not begun it is taken back, and DshpcError raised; its workspace goes with it,
    unless something ran there."""
    from dshpc_setup.jobs import no_wait

    taken = no_wait.begun_or_taken_back(machine, job["job_id"])
    if taken is None:
        return
    job_id, folder = job["job_id"], job["workspace"]
    job["job_id"] = None
    details = f"Job {job_id} was taken back, as --no-wait says."
    waits = "it"
    if taken.begun:
        waits = f"all but {taken.begun} of its tasks"
        details += f" Tasks that had started were cancelled, and what they wrote is in {folder}."
    else:
        _remove(place)
    raise DshpcError(
        f"{gpu_words.shown(asked.name)} cannot begin at once: "
        f"Slurm lets {waits} wait ({taken.reason}).",
        details,
        ("Let it wait: leave --no-wait out.", "See what runs: dshpc job list"),
    )


def _submitted(
    machine: Machine, planned: choosing.Planned, place: Workspace, *, is_last: bool
) -> dict[str, Any]:
    """One job, with its workspace; with `dry_run` only what would be."""
    found = planned.fit
    asked = replace(planned.request, carriers=planned.has.carriers)
    argv = call.argv(asked, found, place.path)
    job_id: str | None = None
    notes: list[str] = []
    if not asked.dry_run:
        _make(place, asked, copy_inputs=not is_last)
        job_id, notes = _queued(machine, argv, place)
        _remember(place, asked, argv, job_id, answer.gpus(found))
    return {
        "job_id": job_id,
        "workspace": place.path,
        "sbatch": list(argv),
        "gpus": answer.gpus(found),
        "notes": notes,
    }


def _check_array(asked: Request, has: Offer) -> None:
    if asked.is_array and len(asked.parameters) > has.max_array:
        raise DshpcError(
            f"An array of {len(asked.parameters)} parameter sets is too large for this cluster.",
            f"An array has {has.max_array} tasks at most here (Slurm's MaxArraySize).",
            ("Cut the table in several.",
             "Or, as the cluster's owner, raise the limit: "
             f"dshpc config set array_limit {len(asked.parameters)}",
             "Then put it into effect: configure-environment"),
        )  # fmt: skip


def _make(place: Workspace, asked: Request, *, copy_inputs: bool = False) -> None:
    """The workspace, with what was asked for and the copies of its inputs in it; with `copy_inputs`
    another job needs those, too."""
    try:
        with workspace_folders.of_user(place.work, place.uid) as user:
            made = safe_open.new_folder(place.name, user, workspace.folder_mode())
            try:
                _fill(made, user, place, asked, copy_inputs=copy_inputs)
            except OSError:
                removal.discard(place.name, user)
                raise
            finally:
                os.close(made)
    except OSError as error:
        raise workspace_folders.not_made(place.path, asked.work, error) from None


def _fill(made: int, user: int, place: Workspace, asked: Request, *, copy_inputs: bool) -> None:
    """`made` and `user` are the workspace and the folder that it lies in."""
    own = safe_open.new_folder(workspace.OWN, made, 0o700)
    try:
        if asked.incoming is not None:
            incoming = os.path.basename(asked.incoming)  # where `incoming` has made it
            if copy_inputs:
                _copy(incoming, user, made)
            else:
                os.rename(incoming, INPUTS, src_dir_fd=user, dst_dir_fd=made)
        value = moved_in(asked, place.path).to_json()
        safe_open.replace(workspace.REQUEST, json.dumps(value), own)
    finally:
        os.close(own)


def _copy(incoming: str, user: int, made: int, called: str = INPUTS) -> None:
    """The files of a folder of copies, in a new folder."""
    import shutil

    target = safe_open.new_folder(called, made, 0o700)
    try:
        with safe_open.opened(incoming, user) as source:
            for name in os.listdir(source):
                kind = os.stat(name, dir_fd=source, follow_symlinks=False).st_mode
                if stat.S_ISDIR(kind):
                    _copy(name, source, target, name)  # of a method
                    continue
                if stat.S_ISLNK(kind):
                    os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
                    continue
                with (
                    open(safe_open.file(name, source, os.getuid()), "rb") as file,
                    open(safe_open.new_file(name, target), "wb") as copy,
                ):
                    shutil.copyfileobj(file, copy, 1 << 20)
                    safe_open.give_mode(copy.fileno(), os.fstat(file.fileno()).st_mode & 0o700)
    finally:
        os.close(target)


def _remove(place: Workspace) -> None:
    from dshpc_setup.jobs import unacknowledged

    unacknowledged.remove(place)


def moved_in(asked: Request, folder: str) -> Request:
    """With the paths that copies of inputs have in the workspace."""
    incoming = asked.incoming
    if incoming is None:
        return asked

    def moved(value: Value) -> Value:
        if isinstance(value, str) and value.startswith(f"{incoming}/"):
            return f"{folder}/{INPUTS}/{value[len(incoming) + 1 :]}"
        return value

    return replace(
        asked,
        incoming=None,
        argv=tuple(str(moved(word)) for word in asked.argv) if asked.method_dir else asked.argv,
        method_dir=None if asked.method_dir is None else str(moved(asked.method_dir)),
        inputs=tuple(str(moved(path)) for path in asked.inputs),
        parameters=tuple(
            {name: moved(value) for name, value in given.items()} for given in asked.parameters
        ),
    )


def _queued(machine: Machine, argv: tuple[str, ...], place: Workspace) -> tuple[str, list[str]]:
    """The job's id, and what one should know. Where sbatch refuses, the workspace goes again."""
    try:
        return sbatch.run(machine, argv), []
    except sbatch.AnswerLostError as error:
        from dshpc_setup.jobs import unacknowledged

        return unacknowledged.settled(machine, place, error), [
            f"{error.brief} The job was found in the queue."
        ]
    except DshpcError:
        _remove(place)
        raise


def _remember(
    place: Workspace,
    asked: Request,
    argv: tuple[str, ...],
    job_id: str,
    gpus: Mapping[str, Any] | None,
) -> None:
    """The job's record, the `dshpc.job/1` object; where it cannot be kept the job runs all the same."""
    value = {
        "schema": workspace.JOB_SCHEMA,
        "job_id": job_id,
        "name": asked.name,
        "kind": asked.kind,
        "tasks": len(asked.parameters) if asked.is_array else None,
        "sbatch": list(argv),
        "gpus": gpus,
        "submitted": round(time.time(), 3),
        "workflow": asked.workflow,
        "fingerprint": asked.fingerprint,
    }
    try:
        with place.own() as own:
            safe_open.replace(workspace.JOB, json.dumps(value), own)
    except OSError as error:
        sys.stderr.write(f"dshpc: the record of job {job_id} could not be written: {error}\n")


def check(machine: Machine, asked: Request, has: Offer) -> dict[str, Any]:
    """The `dshpc.method-check/1` object: whether it could run, on what, and when."""
    clock = Clock(time.time(), asked.utc_offset_s)
    free_on: tuple[str, ...] = ()
    if has.nodes > 1:
        has, free_on = node_choice.free_now(machine, asked, has)
    now = availability.ask(machine, has) if asked.resources.gpus else None
    found = fit(asked.resources, has, now, asked.partition, clock)
    refused = isinstance(found, Refusal)
    out = None if isinstance(found, Refusal) else node_availability.ask(machine, has.node)
    return {
        "schema": CHECK_SCHEMA,
        "exit_code": int(Exit.ERROR if refused else Exit.OK),
        "name": asked.name,
        "can_run": not refused,
        "where": None
        if isinstance(found, Refusal)
        else answer.where(found, has, now, clock, takes_jobs=out is None),
        "gpus": None if isinstance(found, Refusal) else answer.gpus(found),
        "whys": list(found.whys) if isinstance(found, Refusal) else [],
        "notes": []
        if isinstance(found, Refusal)
        else [
            *([out] if out else []),
            *answer.notes(found, has, now, clock),
            *(answer.free_nodes(found, free_on) if has.nodes > 1 else ()),
        ],
    }
