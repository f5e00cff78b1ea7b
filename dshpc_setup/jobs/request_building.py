"""What a command line asks for as a `Request`: on the host, before the cluster is asked anything."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dshpc_setup.documents.document import Problem
from dshpc_setup.errors import DshpcError, usage_error
from dshpc_setup.jobs import environments, images, method_parts, records
from dshpc_setup.jobs.records import Record
from dshpc_setup.jobs.request import Request
from dshpc_setup.jobs.results import ended_well
from dshpc_setup.jobs.sizes import FORMS as SIZES
from dshpc_setup.jobs.sizes import mib
from dshpc_setup.jobs.staging import Incoming
from dshpc_setup.methods import store, values
from dshpc_setup.methods.model import Method, Resources, Value
from dshpc_setup.methods.schema import MOST_MINUTES
from dshpc_setup.methods.times import FORMS as TIMES
from dshpc_setup.methods.times import minutes, seconds
from dshpc_setup.terminal.sanitize import counted

_MOST_BYTES = 64 << 20  # of a table of parameter sets


@dataclass(frozen=True)
class CommandLine:
    """A command line; texts as they stand there, None for what was not said."""

    name: str | None = None
    command: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    array: str | None = None
    gpus: str | None = None
    gpu_type: str | None = None
    gpu_memory: str | None = None
    cpus: str | None = None
    memory: str | None = None
    time: str | None = None
    shards: str | None = None
    nodes: str | None = None
    partition: str | None = None
    dry_run: bool = False
    targets: tuple[str, ...] = ()
    no_wait: bool = False
    env: str | None = None
    image: str | None = None


def of_method(asked: CommandLine, project: str, incoming: Incoming) -> Request:
    """A method's run; raises DshpcError for all that is wrong."""
    found, base = _method(asked, project, incoming)
    sets, wrong = _sets(asked, found)
    if problem := values.count_fits(found, len(asked.inputs)):
        wrong += _lines([problem], "--input")
    if wrong:
        raise usage_error(
            f"What was given does not fit the method {found.name}.",
            "\n".join(wrong),
            f"See what it takes: dshpc method show {found.name}",
        )
    return replace(
        base,
        requires={name: _last_good(incoming, name, project) for name in found.requires},
        parameters=tuple(method_parts.with_files(found, given, incoming) for given in sets),
        is_array=asked.array is not None,
        inputs=tuple(incoming.take(path) for path in asked.inputs),
        incoming=incoming.folder,
    )


def to_check(asked: CommandLine, project: str, incoming: Incoming) -> tuple[Request, list[str]]:
    """A method's resources alone, and a sentence for each result of another that it still needs."""
    found, request = _method(asked, project, incoming)
    missing = []
    for name in found.requires:
        try:
            _last_good(incoming, name, project)
        except DshpcError as error:
            missing.append(" ".join((error.brief, *error.resolution[:1])))
    return request, missing


def foreseen(asked: CommandLine, project: str, work: str) -> Request:
    """Of a run what the cluster can judge before anything is made for it: whether it has such a job."""
    wanted = Resources()
    if not asked.command:
        wanted = store.named(store.folders(Path(project)), asked.name or "").resources
    request = _request(asked, wanted, work)
    name = asked.name or os.path.basename(asked.command[0]) or "job"
    return replace(request, name=name, argv=("true",), dry_run=True)


def _method(asked: CommandLine, project: str, incoming: Incoming) -> tuple[Method, Request]:
    """The method, and its run without what is given to it."""
    found = store.named(store.folders(Path(project)), asked.name or "")
    folder = method_parts.folder(found, project, incoming)
    request = replace(
        _request(asked, found.resources, incoming.work),
        kind="method",
        name=found.name,
        argv=method_parts.argv(found, folder),
        method_dir=folder,
        environment=method_parts.environment(found, incoming),
        image=method_parts.image(found, incoming),
    )
    return found, request


def of_command(asked: CommandLine, incoming: Incoming) -> Request:
    """A plain command's run, in the caller's folder; its words are the job's, as they are."""
    if not asked.command:
        raise usage_error(
            "There is no command to run.",
            "",
            "Name it behind --: dshpc run --gpus 1 -- python3 x.py",
        )
    for word in asked.command:
        _check_text(word)
    if asked.env is not None and asked.image is not None:
        raise usage_error(
            "--env and --image exclude each other.",
            "An environment is made for the Python of the cluster's own image.",
            "Leave one of them out.",
        )
    name = asked.name or os.path.basename(asked.command[0]) or "job"
    _check_text(name)
    request = _request(asked, Resources(), incoming.work)
    inputs = tuple(incoming.take(path) for path in asked.inputs)
    return replace(
        request, kind="command", name=name, argv=asked.command, inputs=inputs,
        incoming=incoming.folder, cwd=_cwd(asked.command, incoming),
        environment=None if asked.env is None else environments.ready(asked.env, incoming),
        image=None if asked.image is None else images.ready(asked.image, incoming),
    )  # fmt: skip


def _cwd(command: Sequence[str], incoming: Incoming) -> str | None:
    """The caller's folder as the job has it, None where it does not see it; raises DshpcError
    (usage) where a word then names a file that the job would look for in vain."""
    try:
        here = os.getcwd()
    except FileNotFoundError:  # removed under our feet
        return None
    seen = incoming.seen(here)
    if seen is not None:
        _check_text(seen)
        return seen
    for place, word in enumerate(command):
        is_program = place == 0 and "/" not in word  # looked for in PATH, not here
        if not is_program and not os.path.isabs(word) and _is_file(word):
            raise usage_error(
                f"The job cannot see {word}: jobs do not see {here}.",
                f"They see {', '.join((incoming.work, *incoming.also))}.",
                f"Put what it needs into {incoming.work}, and submit it there.",
            )
    return None


def _is_file(word: str) -> bool:
    return "\0" not in word and os.path.isfile(word)


def _request(asked: CommandLine, wanted: Resources, work: str) -> Request:
    for text in filter(None, (asked.partition, asked.gpu_type)):
        _check_text(text)
    nodes, targets = _targets(asked)
    several = len(set(nodes)) > 1
    return Request(
        kind="command",
        name="",
        argv=(),
        work=work,
        resources=with_asked(wanted, asked),
        partition=asked.partition,
        targets=targets,
        node=None if several or not nodes else nodes[0],
        target_nodes=nodes if several else (),
        if_busy="refuse" if asked.no_wait else "wait",
        dry_run=asked.dry_run,
        utc_offset_s=time.localtime().tm_gmtoff,
    )


def _targets(asked: CommandLine) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """The node and the GPUs of each target, which `--gpus` may count again but not contradict."""
    if not asked.targets:
        return (), ()
    from dshpc_setup.jobs import targets

    if asked.nodes is not None:
        raise usage_error(
            "--nodes and --target exclude each other.",
            "A target is one node, and a job of its own.",
            "Leave one of them out.",
        )
    nodes, found = targets.parse(asked.targets)
    count = _count("--gpus", asked.gpus)
    for text, words in zip(asked.targets, found, strict=True):
        if words and count is not None and count != len(words):
            raise usage_error(
                f"--gpus {count} and --target {text} contradict each other.",
                "A target says itself how many GPUs a job gets.",
                "Leave --gpus out.",
            )
    return nodes, found


def with_asked(wanted: Resources, asked: CommandLine) -> Resources:
    """The resources with what the command line says in place of them; raises DshpcError (usage)."""
    said: dict[str, Any] = {
        "gpus": _count("--gpus", asked.gpus),
        "cpus": _count("--cpus", asked.cpus),
        "shards": _count("--shards", asked.shards),
        "nodes": _nodes(asked.nodes),
        "gpu_type": asked.gpu_type,
        "gpu_memory_mb": _size("--gpu-memory", asked.gpu_memory),
        "memory_mb": _size("--memory", asked.memory),
        "time_limit": _minutes(asked.time),
    }
    changes = {name: value for name, value in said.items() if value is not None}
    says_which = asked.gpu_type or asked.gpu_memory
    # Slurm gives one of both: what the command line says takes the place of the method's other one
    if changes.get("shards") and asked.gpus is None:
        changes["gpus"] = 0
    elif changes.get("gpus") and asked.shards is None:
        changes["shards"] = 0
    shards = changes.get("shards", wanted.shards)
    if asked.gpus is None and says_which and not wanted.gpus and not shards:
        changes["gpus"] = 1  # who says which GPU wants one
    if changes.get("gpus") or says_which:
        changes["optional_gpus"] = "always"
    if changes.get("memory_mb") and (wanted.min_memory_mb or 0) > changes["memory_mb"]:
        raise usage_error(
            f"--memory {asked.memory} is less than this method can do with: "
            f"{wanted.min_memory_mb} MiB.",
            "Its method.json says so: resources.min_memory_mb.",
            "Give it more.",
        )
    return replace(wanted, **changes)


def _count(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 6):
        raise usage_error(f"{option} {text!r} is not a count.", "", f"Such as: {option} 1")
    return int(text)


def _nodes(text: str | None) -> int | None:
    count = _count("--nodes", text)
    if count == 0:
        raise usage_error("--nodes 0: a job runs on one node at least.", "", "Such as: --nodes 2")
    return count


def _size(option: str, text: str | None) -> int | None:
    found = mib(text) if text is not None else None
    if text is not None and found is None:
        raise usage_error(f"{option} {text!r} is not a size.", f"Sizes are: {SIZES}.")
    return found


def _minutes(text: str | None) -> int | None:
    if text is None:
        return None
    found = minutes(text)
    if found is None:
        raise usage_error(f"--time {text!r} is not a time.", f"Times are: {TIMES}")
    if not 1 <= found <= MOST_MINUTES:
        raise usage_error(
            f"--time {text!r} is {'more than ten years' if found else 'no time at all'}.", "",
            "Leave it out where the job may run on without an end.",
        )  # fmt: skip
    return found


def notes(asked: CommandLine) -> tuple[str, ...]:
    """What a job gets in place of what the command line says."""
    said = seconds(asked.time) if asked.time is not None else None
    if not said or said % 60 == 0:
        return ()
    whole = counted(-(-said // 60), "minute")
    return (f"--time {asked.time} becomes {whole}: Slurm's time limits are whole minutes.",)


def noted(answer: Mapping[str, Any], asked: CommandLine) -> dict[str, Any]:
    """The cluster's answer to it with these notes: of several jobs the first has them."""
    jobs = answer.get("jobs")
    if jobs:
        return {**answer, "jobs": [noted(jobs[0], asked), *jobs[1:]]}
    return {**answer, "notes": [*notes(asked), *answer["notes"]]}


def _sets(asked: CommandLine, method: Method) -> tuple[list[dict[str, Value]], list[str]]:
    """The parameter sets, one or those of the table, and what is wrong with them."""
    if asked.array is None:
        given, problems = values.typed(method, asked.parameters)
        return [given], _lines(problems, "-p")
    if asked.parameters:
        raise usage_error(
            "-p and --array exclude each other.", "A table says all the parameters of each job.",
            f"Write the value into each set of {asked.array}.",
        )  # fmt: skip
    sets, problems = values.table(method, _table(asked.array, method), asked.array)
    return sets, _lines(problems, asked.array)


def _table(path: str, method: Method) -> str:
    try:
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        beside = method.folder / os.path.basename(path)
        steps = [f"The method has one: --array {beside}"] if beside.is_file() else []
        raise usage_error(f"The table {path} cannot be read: {why}.", "", *steps) from None
    if len(text) > _MOST_BYTES:
        raise usage_error(f"The table {path} is larger than {_MOST_BYTES >> 20} MiB.")
    return text


def _lines(problems: Sequence[Problem], where: str) -> list[str]:
    lines = []
    for each in problems:
        line = f":{each.line}" if each.line else ""
        part = "" if each.path == "$" else f"{each.path}: "
        lines.append(f"{where}{line}: {part}{each.what} {each.right}")
    return lines


def _last_good(incoming: Incoming, method: str, project: str) -> str:
    """The workspace of the method's newest run that ended well; another user's is none, for root too.

    Raises DshpcError where there is none.
    """
    owner = incoming.owner[0] if incoming.owner else os.getuid()
    for record in records.newest_first(incoming.work, owner):
        job = record.job
        if job.get("kind") == "method" and job.get("name") == method and _ended_well(record):
            return record.folder
    store.find(store.folders(Path(project)), method)  # one that is not there cannot be run first
    raise DshpcError(
        f"It needs the result of the method {method}, of which no run has ended well yet.",
        f"Looked at your workspaces in {incoming.work}.",
        (f"Run that first: dshpc method run {method} --wait",),
    )


def _ended_well(record: Record) -> bool:
    """The job; of an array all of its tasks."""
    tasks = range(record.task_count) if record.task_count else [None]
    results = (record.result(task) for task in tasks)
    return all(result is not None and ended_well(result) for result in results)


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise usage_error(f"The argument {os.fsencode(text)!r} is not valid UTF-8.") from None
