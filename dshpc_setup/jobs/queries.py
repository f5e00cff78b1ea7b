"""`dshpc-node job list|show|logs|cancel`: what people ask about jobs, answered in one call."""

from __future__ import annotations

import errno
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dshpc_setup.errors import DshpcError, Exit, usage_error
from dshpc_setup.jobs import allocated_gpus, clock, command_words, records, safe_open, table, view
from dshpc_setup.jobs.command_words import Words, parsed, put
from dshpc_setup.jobs.end_record import NOT_KNOWN
from dshpc_setup.jobs.reader import JobReader, unknown
from dshpc_setup.jobs.safe_open import NotTheirsError
from dshpc_setup.jobs.view import View
from dshpc_setup.jobs.workspace import CARRIED, of_task
from dshpc_setup.machine import CommandResult
from dshpc_setup.slurm import job_states
from dshpc_setup.slurm.client import Slurm
from dshpc_setup.slurm.job_states import JobId
from dshpc_setup.terminal.sanitize import often

JOBS, SHOWN, CANCELLED = "dshpc.jobs/1", "dshpc.job-report/1", "dshpc.jobs-cancelled/1"
_CANCEL_S = 30.0
_BLOCK = 1 << 16


def list_main(rest: Sequence[str]) -> int:
    words = parsed(rest)
    now = time.time()
    looked = command_words.look_at(words)
    if words.json:
        _print(listed(looked, whole=words.all))
        return 0
    found = looked.all(whole=words.all)
    if not found:
        sys.stdout.write(f"There are no jobs{'' if words.all else '; older ones: --all'}.\n")
    else:
        sys.stdout.write(f"{_table(_as_called(found), now)}\n")
    _tell_limits(looked, words)
    return 0


def listed(looked: JobReader, *, whole: bool) -> dict[str, Any]:
    """The `dshpc.jobs/1` object."""
    now = time.time()
    jobs = [each.to_json(now) for each in looked.all(whole=whole)]
    notes, left_out = looked.notes(), dict(looked.left_out)
    return {"schema": JOBS, "exit_code": 0, "jobs": jobs, "left_out": left_out, "notes": notes}


def _tell_limits(looked: JobReader, words: Words) -> None:
    if not words.json:
        sys.stderr.write("".join(f"dshpc: {line}\n" for line in looked.notes()))


def show_main(rest: Sequence[str]) -> int:
    words = parsed(rest)
    looked = command_words.look_at(words)
    _, found = looked.one(_one(words))
    found = _with_reasons(looked, found)
    made = _made(looked, found)
    if words.json:
        jobs = [each.to_json() for each in found]
        notes = looked.limits.lines()
        _print({"schema": SHOWN, "exit_code": 0, "jobs": jobs, **made, "notes": notes})
    elif len(found) == 1:
        sys.stdout.write("\n".join(lines(_as_called(found)[0], made)) + "\n")
    else:
        whole = replace(found[0], task=None, log=None)
        said = [_table(_as_called(found), time.time()), *lines_of_workspace(whole, made)]
        sys.stdout.write("\n".join(said) + "\n")
    _tell_limits(looked, words)
    return 0


def _as_called(found: Sequence[View]) -> list[View]:
    """Their reasons with our commands as the caller types them."""
    if not any("dshpc " in (each.reason or "") for each in found):
        return list(found)  # the import costs more than the answer
    from dshpc_setup.terminal.command_names import as_called

    return [replace(each, reason=as_called(each.reason)) if each.reason else each for each in found]


def _table(found: Sequence[View], now: float) -> str:
    return table.table(view.together(found), now, os.environ.get("USER"))


def _with_reasons(looked: JobReader, found: list[View]) -> list[View]:
    """Queued jobs with why they are."""
    if not any(each.state == "PENDING" for each in found):
        return found
    from dshpc_setup.jobs import pending_reasons

    known = looked.known(found[0].number)
    why = pending_reasons.reasons(looked.machine, known)
    wanted = [(each, job_states.of(JobId(each.number, each.task), known)) for each in found]
    return [
        replace(each, reason=next((why[job.id] for job in jobs if job.id in why), each.reason))
        for each, jobs in wanted
    ]


def _made(looked: JobReader, found: Sequence[View]) -> dict[str, Any]:
    """What the job was made from, as its workspace has it."""
    record = looked.record(found[0].workspace, whole=True)
    if record is None:
        return {"request": None, "sbatch": None}
    sbatch = record.job.get("sbatch")
    made: dict[str, Any] = {
        "request": dict(record.request) or None,
        "sbatch": [str(word) for word in sbatch] if isinstance(sbatch, list) else None,
    }
    if record.request.get("carriers"):
        made["carried"] = records.read(record.place, of_task(CARRIED, found[0].task))
    return made


def lines(one: View, made: dict[str, Any]) -> list[str]:
    """All of one job, for people."""
    name = job_states.shown(one.name)
    by = f" of {job_states.shown(one.user)}" if one.user else ""
    said = [f"Job {one.id} ({name}){by}: {view.outcome(one) if one.is_over else one.words}"]
    rows: list[tuple[str, str | None]] = [("Why", one.reason)]
    if one.out_of_memory_line:
        rows.append(("Out of memory", job_states.shown(one.out_of_memory_line, 300)))
    if one.out_of_memory:
        rows.append(("What to do", view.advice(one.out_of_memory)))
    if one.nodes and allocated_gpus.has_several_nodes():
        rows.append(("Node", ", ".join(map(job_states.shown, one.nodes))))
    rows += [("GPU", job_states.shown(text, 200)) for text in allocated_gpus.texts(one.gpus)]
    seconds = one.seconds(time.time())
    rows += [
        ("Asked for", (one.asked_gres or "").replace("gres/", "") if not one.gpus else None),
        ("GPU memory", _gpu_memory(made["request"])),
        ("Queued", _at(one.submitted)),
        ("Began", _at(one.started)),
        ("Ended", _at(one.ended)),
        ("Ran", None if seconds is None else view.duration(seconds)),
        ("Restarted", _times(one.restarts)),
        ("Exit code", _exit_code(one)),
        ("Ended by", one.signal),
        ("Largest process", None if one.max_rss_mib is None else f"{one.max_rss_mib} MiB"),
        *_used(one),
        *_carried(one, made),
    ]
    said += [f"  {label + ':':17}{job_states.shown(text, 400)}" for label, text in rows if text]
    return said + lines_of_workspace(one, made)


def _carried(one: View, made: Mapping[str, Any]) -> list[tuple[str, str | None]]:
    """What of it is back from nodes that have not the work folder; its user writes that file, too."""
    nodes = (made.get("carried") or {}).get("nodes")
    rows: list[tuple[str, str | None]] = []
    carriers = (made.get("request") or {}).get("carriers") or ()
    for name in one.nodes if one.is_over and not nodes and isinstance(carriers, list) else ():
        if name in carriers:
            text = f"nothing went to {name} and back; the log of that machine says why: dshpc logs"
            rows.append(("Carried", text))
    for name, each in nodes.items() if isinstance(nodes, dict) else ():
        if isinstance(each, dict) and name in one.nodes:
            back, trouble = each.get("back"), each.get("trouble")
            when = _at(back) if isinstance(back, int | float) and 0 < back < 1 << 32 else None
            text = f"all is back from {name}"
            if each.get("complete") is not True:
                text = f"from {name}: {f'what was written until {when}' if when else 'nothing yet'}"
                text += ", and the log" if not one.is_over else "; the rest is lost"
                text += f" ({trouble})" if trouble and isinstance(trouble, str) else ""
            rows.append(("Carried", text))
    return rows


def _used(one: View) -> list[tuple[str, str | None]]:
    """What it has used of what it had; the import is for those alone of whom that is known."""
    if one.use is None:
        return []
    from dshpc_setup.usage import words

    return words.rows(one.use, [gpu.index for gpu in one.gpus])


def lines_of_workspace(one: View, made: dict[str, Any]) -> list[str]:
    import shlex

    request = made["request"] or {}
    argv, parameters = request.get("argv"), request.get("parameters")
    rows = [("Workspace", one.workspace), ("Log", one.log)]
    if isinstance(argv, list):
        rows.append(("Runs", shlex.join(str(word) for word in argv)))
    name = request.get("name") if request.get("kind") == "method" else None
    rows.append(("Method", name if isinstance(name, str) else None))
    if isinstance(parameters, list) and parameters:
        picked = parameters[one.task or 0] if (one.task or 0) < len(parameters) else {}
        several = len(parameters) > 1 and one.task is None
        text = f"{len(parameters)} sets" if several else json.dumps(picked, ensure_ascii=False)
        rows.append(("Parameters", text if text != "{}" else None))
    if made["sbatch"]:
        rows.append(("Call", shlex.join(made["sbatch"])))
    return [f"  {label + ':':17}{job_states.shown(text, 2000)}" for label, text in rows if text]


def _gpu_memory(request: Any) -> str | None:
    """What each of its GPUs has at least; of the workspace's own file, which its user writes."""
    resources = request.get("resources") if isinstance(request, dict) else None
    asked = resources.get("gpu_memory_mb") if isinstance(resources, dict) else None
    if not isinstance(asked, int) or isinstance(asked, bool) or asked <= 0:
        return None
    from dshpc_setup.jobs.gpu_words import asked_size

    return f"at least {asked_size(asked)} each, as asked for"


def _exit_code(one: View) -> str | None:
    """75 is what a job ends with, of which a start found no more than that it had run to its end."""
    if one.exit_code != NOT_KNOWN or one.state != "FAILED":
        return None if one.exit_code is None else str(one.exit_code)
    return (
        f"{NOT_KNOWN}: the program's own, or of a job that had run to its end when the cluster's container "
        "was killed, with an end that is not known; its log says so then"
    )


def _times(count: int) -> str | None:
    return often(count) if count else None


def _at(seconds: float | None) -> str | None:
    return None if seconds is None else clock.told(seconds)


def logs_main(rest: Sequence[str]) -> int:
    words = parsed(rest)
    text = _one(words)
    if words.task is not None:
        text = f"{text}_{words.task}"
    if words.follow:
        from dshpc_setup.jobs import follow

        return follow.main([text, "--work", words.work])
    looked = command_words.look_at(words)
    job, found = looked.one(text)
    if len(found) > 1:
        tasks = ", ".join(str(each.task) for each in found[:8] if each.task is not None)
        raise usage_error(
            f"Job {job} is an array: each of its tasks has a log of its own.",
            f"Its tasks: {tasks}{', ...' if len(found) > 8 else ''}",
            f"Choose one: dshpc job logs {job} --task {found[0].task or 0}",
        )
    log = found[0].log
    if job_states.is_group(found[0].id):
        raise DshpcError(
            f"Job {job} is an array, and none of its tasks has started.",
            "Each of them will have a log of its own.",
            (f"See how it is: dshpc job show {job}",),
        )
    if log is None and found[0].uid not in (None, os.getuid()) and os.getuid() != 0:
        user = job_states.shown(found[0].user or "another user")
        raise DshpcError(
            f"You may not read the log of job {job}: the job belongs to {user}.",
            "A workspace, with the log in it, is its user's alone.",
            (f"See what is known of it: dshpc job show {job}",),
        )
    if log is None:
        raise DshpcError(
            f"It is not known where job {job} has written its log.",
            "A job of srun prints to the terminal that it was started in. One of sbatch writes where its "
            "--output said, which Slurm has forgotten; in the folder that it ran in there is no log with "
            "sbatch's own name.",
            ("Look where its --output said.",),
        )
    return _copy(log, found[0], looked.work)


def _copy(log: str, one: View, work: str) -> int:
    """The bytes as they are."""
    name = job_states.shown(log, 300)
    try:
        handle = safe_open.file_at(log, work, one.uid)
    except FileNotFoundError:
        what = "has not started yet" if one.state == "PENDING" else "has no log"
        raise DshpcError(f"Job {one.id} {what}: there is no {name}.") from None
    except IsADirectoryError:
        raise DshpcError(f"The log of job {one.id} is not a file: {name}") from None
    except NotTheirsError as error:
        raise DshpcError(
            f"What lies in {name} is not of job {one.id}: {error.strerror}.",
            "Somebody else may have put it in the log's place.",
            (f"Look who: ls -ln {name}",),
        ) from None
    except PermissionError as error:
        raise DshpcError(f"You may not read {name}.", error.strerror or "") from None
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        raise DshpcError(
            f"The log of job {one.id} is not read: {name} leads through a symbolic link.",
            "The link may lead to a file that is not the job's.",
            (f"Look where: namei {name}",),
        ) from None
    with open(handle, "rb", buffering=0) as file:
        while block := file.read(_BLOCK):
            put(block)
    return 0


def cancel_main(rest: Sequence[str]) -> int:
    words = parsed(rest)
    if not words.ids:
        raise usage_error("dshpc job cancel takes the numbers of jobs.")
    looked = command_words.look_at(words)
    ids = [job_states.parse_id(text) for text in dict.fromkeys(words.ids)]
    known = looked.known(*(job.number for job in ids))
    done: list[dict[str, str]] = []
    worst = 0
    for job in ids:
        jobs = job_states.of(job, known)
        going = [each for each in jobs if not each.has_ended]
        over = [] if going else looked.views(job, jobs)
        colon = ":"
        if going:
            asked = Slurm(looked.machine).cancel(str(job), deadline_s=_CANCEL_S)
            what = "cancelled" if asked.ok else _refused(going[0].user, asked)
            worst = worst if asked.ok else int(Exit.ERROR)
        elif over:
            what, colon = f"has ended already: {view.outcome(over[-1])}", ""
        elif len(ids) == 1:
            raise unknown(job)
        else:
            what, worst = "there is no such job", int(Exit.ERROR)
        done.append({"job_id": str(job), "result": what})
        if not words.json:
            sys.stdout.write(f"Job {job}{colon} {what}.\n")
    if words.json:
        _print({"schema": CANCELLED, "exit_code": worst, "jobs": done})
    return worst


def _refused(user: str, asked: CommandResult) -> str:
    if "permission denied" in asked.text.lower():
        return f"permission denied: the job belongs to {job_states.shown(user)}"
    return job_states.shown(asked.text or asked.state, 300)


def _one(words: Words) -> str:
    if len(words.ids) != 1:
        raise usage_error("One job is expected, by its number.", "", "dshpc job list")
    return words.ids[0]


def _print(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value, indent=2) + "\n")
