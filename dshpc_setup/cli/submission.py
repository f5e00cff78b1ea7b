"""`dshpc method run|check` and `dshpc run`: the line read, the request handed over, the answer shown.

The commands are declared in submitting.py, for their help and for what is wrong with a line. Imports
are counted here: a submission may take 0.35 s longer than its sbatch call (benchmarks/method_run.py).
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dshpc_setup.cli import exec as execution
from dshpc_setup.cli import exec_caller, print_json
from dshpc_setup.cli.job_request import UnansweredError, ask, cluster
from dshpc_setup.cli.plain_line import Options, read
from dshpc_setup.errors import DshpcError, usage_error
from dshpc_setup.jobs import request_building
from dshpc_setup.jobs.request import Request
from dshpc_setup.jobs.request_building import CommandLine
from dshpc_setup.jobs.staging import Incoming
from dshpc_setup.terminal.command_names import as_called
from dshpc_setup.terminal.sanitize import counted, harmless, plain

_KILLED = 128 + 9  # as all in a container whose first process has ended, and maybe a job itself

_GPUS = {"--gpus": "gpus", "--gpu-type": "gpu_type", "--gpu-memory": "gpu_memory"}
# What KohakuRiver and Joblet call an option, and what it is called here (docs/coming-from.md)
OTHER_NAMES = {"gpu": "gpus", "cores": "cpus", "max-memory": "memory", "upload": "input"}
_RESOURCES = {
    **_GPUS, "--cpus": "cpus", "--memory": "memory", "--time": "time", "--shards": "shards",
    "--nodes": "nodes",
    "--partition": "partition", "--max-cpu": "max_cpu",
}  # fmt: skip
_SHOWN = {
    "--json": "json", "--wait": "wait", "--dry-run": "dry_run", "--no-wait": "no_wait",
}  # fmt: skip
_TARGETS = {"--target": "targets", "-t": "targets"}
_INPUTS = {"--input": "inputs"}


def _with_other_names(options: Options) -> Options:
    def both(known: Mapping[str, str]) -> dict[str, str]:
        theirs = {
            f"--{name}": known[f"--{ours}"]
            for name, ours in OTHER_NAMES.items()
            if f"--{ours}" in known
        }
        return {**known, **theirs}

    return Options(options.switches, both(options.values), both(options.lists))


_LINES = {
    command: _with_other_names(options)
    for command, options in {
        "method run": Options(
            _SHOWN,
            {**_RESOURCES, "--array": "array", "--dir": "dir"},
            {"-p": "parameters", "--param": "parameters", **_INPUTS, **_TARGETS},
        ),
        "method check": Options({"--json": "json"}, {**_RESOURCES, "--dir": "dir"}),
        "run": Options(
            _SHOWN,
            {**_RESOURCES, "--name": "name", "--env": "env", "--image": "image", "--dir": "dir"},
            {**_INPUTS, **_TARGETS},
        ),
    }.items()
}


@dataclass(frozen=True)
class Line:
    """One of the commands in `_LINES`, with what was asked for and how it is to be shown."""

    command: str
    asked: CommandLine
    dir: str | None = None
    wait: bool = False
    json: bool = False


def parsed(arguments: Sequence[str]) -> Line | None:
    """A well-formed line of these commands; else None: ask typer."""
    command = " ".join(arguments[: 1 if arguments[0] == "run" else 2])
    known = _LINES.get(command)
    if known is None:
        return None
    found = read(arguments[len(command.split()) :], known, command=command == "run")
    if found is None:
        return None
    options, words = found
    if command == "run":
        return _line(command, {**options, "command": tuple(words)}) if words else None
    return _line(command, {**options, "name": words[0]}) if len(words) == 1 else None


def without_command(arguments: Sequence[str]) -> list[str]:
    """The words of a `dshpc run` that are its own, as far as they can be told from the command's."""
    found = read(arguments[1:], _LINES["run"], command=True)
    if found is not None:
        return list(arguments[: len(arguments) - len(found[1])])
    ends = list(arguments).index("--") if "--" in arguments else len(arguments)
    return list(arguments[:ends])


def _line(command: str, options: dict[str, Any]) -> Line | None:
    shown = {name: options.pop(name) for name in ("dir", "wait", "json") if name in options}
    try:
        options["cpus"] = cpus(options.get("cpus"), options.pop("max_cpu", None))
    except DshpcError:  # said where typer has read it
        return None
    return Line(command, CommandLine(**options), **shown)


def cpus(number: str | None, percent: str | None) -> str | None:
    """As `--cpus` has it; `percent` is Joblet's `--max-cpu`, in which 400 is four CPUs. Raises DshpcError."""
    if percent is None:
        return number
    if number is not None:
        raise usage_error("--max-cpu and --cpus say the same thing.", "", "Leave one of them out.")
    digits = percent.removesuffix("%")
    if not re.fullmatch(r"[0-9]{1,7}", digits) or int(digits) == 0:
        raise usage_error(
            f"--max-cpu {plain(percent)!r} says no number of CPUs.",
            "It is a percentage of one CPU: 400 is four.",
            "Say how many: --cpus N",
        )
    return str(-(-int(digits) // 100))


def carry_out(line: Line) -> int:
    """Submit or check, print, and give the exit code: with `wait` the job's own."""
    if line.wait and line.asked.dry_run:
        raise usage_error(
            "--wait and --dry-run exclude each other.",
            "A dry run submits nothing, so that there is nothing to wait for.",
            "Leave one of the two out.",
        )
    if line.wait and line.json:
        raise usage_error(
            "--wait and --json exclude each other.",
            "With --wait the job's own output is on stdout.",
            "How it ended, as JSON: dshpc job show ID --json",
        )
    if line.wait and len(line.asked.targets) > 1:
        raise usage_error(
            "--wait and several --target exclude each other.",
            "Each target is a job of its own, and --wait watches one.",
            "Watch one later: dshpc job logs ID -f",
        )
    here = cluster(line.dir)
    runtime, project = here.runtime, here.project
    is_check = line.command == "method check"
    dry = line.asked.dry_run or is_check
    incoming = Incoming(here.work, here.owner, dry, here.prepare, here.also, here.runtime)
    if not is_check:
        incoming.foresee = lambda: ask(
            runtime, "submit", request_building.foreseen(line.asked, project, here.work)
        )
    if is_check:
        request, missing = request_building.to_check(line.asked, project, incoming)
        answer = ask(runtime, "check", request)
        answer = request_building.noted(answer, line.asked)
        return _show_check({**answer, "notes": [*answer["notes"], *missing]}, line)
    try:
        request = (
            request_building.of_method(line.asked, project, incoming)
            if line.command == "method run"
            else request_building.of_command(line.asked, incoming)
        )
        answer = ask(runtime, "submit", request)
    except UnansweredError:
        raise
    except BaseException:
        incoming.remove()
        raise
    _show(request_building.noted(answer, line.asked), request, line)
    return _follow(runtime, answer) if line.wait else int(answer["exit_code"])


def _show(answer: dict[str, Any], request: Request, line: Line) -> None:
    if line.json:
        print_json(answer)
        return
    jobs = answer.get("jobs") or [answer]
    if line.asked.dry_run:
        import shlex

        notes = [note for job in jobs for note in job["notes"]]
        calls = "The call would be:" if len(jobs) == 1 else "The calls would be:"
        _say([*dict.fromkeys(notes), f"Nothing was submitted. {calls}"])
        print(harmless("\n".join(shlex.join(job["sbatch"]) for job in jobs)), flush=True)
        return
    lines = [text for job in jobs for text in _told(job, request, follow=not line.wait)]
    if line.wait:
        _say(lines)
        return
    print("\n".join(map(as_called, lines)), flush=True)


def _told(answer: Mapping[str, Any], request: Request, *, follow: bool) -> list[str]:
    """Of one job; with `follow` what to type next."""
    job = answer["job_id"]
    tasks = f", {len(request.parameters)} tasks" if request.is_array else ""
    lines = [
        f"Job {job} is submitted: {_shown(request.name)}{tasks}{_on(answer['gpus'])}.",
        *(f"  {note}" for note in answer["notes"]),
        f"  Workspace: {answer['workspace']}",
    ]
    if follow:
        lines.append(f"  See how it is: dshpc job show {job}")
    if request.is_array:
        lines.append(f"  What a task prints: dshpc job logs {job} --task 0")
    elif follow:
        lines.append(f"  What it prints: dshpc job logs {job}")
    return lines


def _on(gpus: Mapping[str, Any] | None) -> str:
    """ ", 2 GPUs h100"; ", GPUs 0, 2 (h100)" of a target."""
    if not gpus:
        return ""
    if which := gpus.get("which"):
        return f", GPU{'s' if gpus['count'] != 1 else ''} {', '.join(map(str, which))} ({gpus['type']})"
    return f", {counted(gpus['count'], 'GPU')} {gpus['type']}"


def _say(lines: Sequence[str]) -> None:
    """On stderr: stdout is the job's, or the call's."""
    sys.stderr.write("".join(f"{as_called(text)}\n" for text in lines))
    sys.stderr.flush()


def _shown(text: str) -> str:
    return plain(text)[:80]


def _show_check(answer: dict[str, Any], line: Line) -> int:
    if line.json:
        print_json(answer)
        return int(answer["exit_code"])
    name = _shown(str(answer["name"]))
    if answer["can_run"]:
        lines = [f"Yes, {name} can run here: {answer['where']}.", *answer["notes"]]
    else:
        lines = [f"No, {name} cannot run here:", *(f"  - {why}" for why in answer["whys"])]
    print("\n".join(map(as_called, lines)), flush=True)
    return int(answer["exit_code"])


def _follow(runtime: dict[str, Any], answer: dict[str, Any]) -> int:
    """Watch the job to its end: its exit code. A signal ends the watching, and the job goes on."""
    where, job = str(answer["workspace"]), answer["job_id"]
    words = ["job", "follow", where, "--work", str(runtime["work"])]
    call = execution.Call(execution.NODE, words, runtime)
    call.more = exec_caller.for_people(os.environ)
    since = time.time()
    try:
        code = execution.run(call)
    except DshpcError:
        _check_stopped(call, since, job)
        raise
    if code == _KILLED:
        _check_stopped(call, since, job)
    execution.say_unwatched(call, code, f"job {job}", f"End it: dshpc job cancel {job}")
    return code


def _check_stopped(call: execution.Call, since: float, job: str) -> None:
    """Raises DshpcError where the cluster was stopped since then: nothing in it was at fault."""
    from dshpc_setup import engine_door
    from dshpc_setup.cli import job_trouble
    from dshpc_setup.machine.local import LocalMachine

    if error := job_trouble.stopped(engine_door.of(LocalMachine(), call.runtime), call, since, job):
        raise error from None
