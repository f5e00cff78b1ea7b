"""Programs that slurm.conf has Slurm run around jobs: is each there, and can it be run.

slurmctld looks at its own two as it starts. slurmd looks at none (24.11): without its TaskProlog each job
fails, without a Prolog or an Epilog the node is drained at the first job, without its HealthCheckProgram it
writes an error at each interval.

None is run to try it. A Prolog is run by root with a job's number and GPUs, and may mount, reset a GPU or
remove what lies in a shared folder: a trial would do so beside the jobs that run.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice

from dshpc_setup import slurm_releases
from dshpc_setup.container.complaints import shortened, what_to_do
from dshpc_setup.container.config import Candidate
from dshpc_setup.errors import DshpcError, Fix
from dshpc_setup.observed.model import NamedProgram, ProgramFault
from dshpc_setup.slurm import slurm_conf
from dshpc_setup.slurm.slurm_conf import Entry

_PATTERNS = ("prolog", "epilog")  # of which slurmd runs all that match
_KEYS = (
    *_PATTERNS, "taskprolog", "taskepilog", "srunprolog", "srunepilog", "prologslurmctld",
    "epilogslurmctld", "healthcheckprogram",
)  # fmt: skip
_OURS = (
    "/usr/bin/true",
    "/usr/local/lib/dshpc/",
)  # the image's; templates/slurm.conf.j2 names them
_MOST = 100
_FIRST_LINE = 256  # as much of it as the kernel reads
_WORDS: dict[ProgramFault, str] = {
    "missing": "is not there in the container",
    "no_file": "is not a file",
    "not_executable": "is not executable",
    "no_interpreter": "begins with a #! line whose program is not there in the container",
}
_THEN = {
    "taskprolog": "Each job fails.",
    "prolog": "The node is drained at the first job.",
    "epilog": "The node is drained at the first job.",
    "healthcheckprogram": "The node's health is not checked.",
}


def program_error(
    candidate: Candidate, fault: Callable[[str], ProgramFault | None]
) -> DshpcError | None:
    """The first line whose program cannot be run, as `fault` has it."""
    for entry, found in faults(candidate.texts.get("slurm.conf", ""), fault):
        where = f"{candidate.where('slurm.conf')}, line {entry.number}"
        return DshpcError(
            shortened(f"{where}: {told(found)}."),
            f"The line is: {shortened(entry.line)}\n{then(found.key)}",
            what_to_do(
                candidate,
                "slurm.conf",
                "Name a program that the container has and that may be run (chmod +x): one in the "
                "work folder, for example.",
                entry.line,
            ),
            file=candidate.own("slurm.conf"),
        )
    return None


def told(program: NamedProgram) -> str:
    """ "TaskProlog=/x is not executable" """
    return f"{program.key}={program.path} {_WORDS[program.fault]}"


def then(key: str) -> str:
    """What comes of it where the program of such a line cannot be run; a sentence."""
    return _THEN.get(key.lower(), "Jobs can fail.")


def names_prolog(candidate: Candidate) -> bool:
    """Whether Slurm runs a Prolog of the user's before each job."""
    found = slurm_conf.last(candidate.texts.get("slurm.conf", ""), "Prolog")
    return found is not None and not found.startswith(_OURS)


def failed_around(candidate: Candidate, said: str, *, drained: bool) -> DshpcError | None:
    """The program that kept the first job from running, where it was one.

    `said`: what srun said. `drained`: Slurm took the node out for a Prolog. slurmd alone knows that one's
    exit code, and writes it into the container's log.
    """
    task = slurm_releases.says("task_prolog_failed").search(said)
    if task is None and not drained:
        return None
    key = "Prolog" if task is None else "TaskProlog"
    found = next(
        (
            entry
            for entry in slurm_conf.entries(candidate.texts.get("slurm.conf", ""))
            if next(iter(entry.values)) == key.lower()
        ),
        None,
    )
    if found is None:  # an Epilog cannot fail before a job has run
        return None
    path = next(iter(found.values.values()))
    how = "failed" if task is None else f"ended with exit code {task[1]}"
    so = "Slurm drained the node" if task is None else "each job fails"
    where = f"{candidate.where('slurm.conf')}, line {found.number}"
    steps = what_to_do(candidate, "slurm.conf", "", found.line)
    first, *others = (step if isinstance(step, Fix) else Fix(step) for step in steps)
    # slurmd writes "prolog failed status=CODE:SIGNAL"
    look = [Fix("Look at its exit code", "dshpc logs --tail 50", step="look")]
    look = look if task is None else []
    return DshpcError(
        shortened(f"The {key} {path} {how}, so that {so}."),
        "\n".join(filter(None, (f"It is set in {where}: {shortened(found.line)}", said))),
        (
            *look,
            Fix(
                "Correct the program: it must end with exit code 0. Then",
                "dshpc restart",
                does="restart",
            ),
            replace(first, text=f"Or, where the line is wrong: {first.text}", step="alternative"),
            *others,
            Fix(
                "Then release the jobs that Slurm holds for it (dshpc status names them)",
                "dshpc scontrol release JOB",
                step="after",
            ),
        ),
    )


def faults(
    text: str, fault: Callable[[str], ProgramFault | None]
) -> Iterator[tuple[Entry, NamedProgram]]:
    """The lines of a slurm.conf whose program cannot be run."""
    # Slurm runs it only where it is told how often
    checked = (slurm_conf.last(text, "HealthCheckInterval") or "0").strip("0 ") != ""
    for entry in slurm_conf.entries(text):
        name, value = next(iter(entry.values.items()))
        if name == "healthcheckprogram" and not checked:
            continue
        if name not in _KEYS or not value or value.lower() == "none":
            continue
        key = entry.line.partition("=")[0].strip(" \t+-*/")
        for path in _paths(value) if name in _PATTERNS else (value,):
            if not path.startswith(_OURS) and (why := fault(path)) is not None:
                yield entry, NamedProgram(key, path, why)


def _paths(pattern: str) -> list[str]:
    """What a pattern stands for; itself where that is nothing."""
    return list(islice(glob.iglob(pattern), _MOST)) or [pattern]


def fault(path: str) -> ProgramFault | None:
    """Why it cannot be run here, by root; a path that is none from the root on is nowhere."""
    if not os.path.isabs(path) or not os.path.exists(path):
        return "missing"
    if not os.path.isfile(path):
        return "no_file"
    if not os.access(path, os.X_OK):
        return "not_executable"
    return None if _has_interpreter(path) else "no_interpreter"


def _has_interpreter(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            first = file.read(_FIRST_LINE).partition(b"\n")[0]
    except OSError:  # what may be run need not be readable
        return True
    words = first[2:].strip(b" \t").split(None if b"\r" not in first else b" ")
    return not first.startswith(b"#!") or (bool(words) and os.path.exists(words[0]))
