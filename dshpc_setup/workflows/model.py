"""A workflow: jobs, and which of them wait for which. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from dshpc_setup.methods.model import Method, Resources, Value

Ending = Literal["COMPLETED", "FAILED", "FINISHED"]
ENDINGS: tuple[Ending, ...] = get_args(Ending)
# Slurm's own dependencies: slurm.schedmd.com/sbatch.html, --dependency
DEPENDENCY: Mapping[Ending, str] = {
    "COMPLETED": "afterok",
    "FAILED": "afternotok",
    "FINISHED": "afterany",
}


@dataclass(frozen=True)
class Need:
    """A job waits for another one, and runs only where that one ends so; FINISHED is any end."""

    job: str
    ending: Ending = "COMPLETED"


@dataclass(frozen=True)
class Job:
    """One job of a workflow, all paths absolute on this machine.

    `argv` is the command of a job without a method. `files` are those that its words name. `notes`
    say what of its words is not followed.
    """

    name: str
    argv: tuple[str, ...] = ()
    method: Method | None = None
    parameters: Mapping[str, Value] = field(default_factory=dict)
    inputs: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    needs: tuple[Need, ...] = ()
    resources: Resources = field(default_factory=Resources)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Workflow:
    """A valid one: each need names one of its jobs, and no job waits for itself in the end.

    `jobs` come in an order in which each stands behind those that it waits for.
    """

    name: str
    file: Path
    jobs: tuple[Job, ...]
    description: str = ""
