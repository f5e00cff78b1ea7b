"""The sbatch call of a submission: a list of words, of which people wrote the name alone. Pure.

Each option is one word (`--mem=1024`), so that no value is taken for an option. The script is always the
same; what shall run stands in the workspace's request.json, which it reads.
"""

from __future__ import annotations

import re

from dshpc_setup.errors import DshpcError
from dshpc_setup.jobs.fit import Fit
from dshpc_setup.jobs.request import Request
from dshpc_setup.jobs.workspace import LAUNCHER, LOG
from dshpc_setup.terminal import sanitize

_LONGEST_NAME = 80
SCRIPT = f"#!{LAUNCHER}\n"
# Slurm's own form: afterok:17, afterok:17:18_3, and several by commas
_DEPENDENCY = re.compile(
    r"[a-z]{5,12}(:[0-9]{1,10}(_[0-9]{1,10})?)*(,[a-z]{5,12}(:[0-9_]{1,21})*)*"
)


def argv(request: Request, fit: Fit, workspace: str) -> tuple[str, ...]:
    """The call; raises DshpcError for a workspace or a dependency that cannot stand in one."""
    wanted = request.resources
    if not workspace.isprintable() or "\\" in workspace:
        raise DshpcError(
            "The path of the work folder holds a backslash, or a character that cannot be printed: "
            f"{workspace!r}.",
            "Slurm would write a job's log to another path.",
            ("Give the work folder another name, and run configure-environment again.",),
        )
    options = [
        ("job-name", _shown_name(request.name)),
        ("chdir", workspace),
        # A path alone would be read in chdir, and that with its %j as a pattern, too (24.11)
        ("output", f"{workspace.replace('%', '%%')}/{_log(request)}"),
        ("array", f"0-{len(request.parameters) - 1}" if request.is_array else None),
        ("partition", request.partition),
        ("time", wanted.time_limit),
        ("nodes", wanted.nodes or 1),
        ("nodelist", fit.node),
        ("exclude", (",".join(fit.without) or None) if fit.node is None else None),
        ("ntasks", wanted.tasks),
        ("cpus-per-task", fit.cpus_per_task),
        ("mem", f"{fit.memory_mib}M" if fit.memory_mib else None),
        ("gres", ",".join(fit.gres) or None),
        ("dependency", _dependency(request.dependency)),
    ]
    words = [f"--{name}={value}" for name, value in options if value is not None]
    # One that waits for what can no longer come is ended, and not left in the queue
    words += ["--kill-on-invalid-dep=yes"] if request.dependency is not None else []
    exclusive = ["--exclusive"] if wanted.exclusive else []
    # A job that ran when the container stopped begins anew at its start; what it printed stays
    return ("sbatch", "--parsable", "--requeue", "--open-mode=append", *words, *exclusive)


def _shown_name(name: str) -> str:
    """As it is told at the submission, and so in all lists; the workspace's folder has it in ASCII."""
    return sanitize.plain(name)[:_LONGEST_NAME].strip() or "job"


def _log(request: Request) -> str:
    return LOG.replace(".", "-%a.", 1) if request.is_array else LOG


def _dependency(text: str | None) -> str | None:
    if text is not None and not _DEPENDENCY.fullmatch(text):
        raise DshpcError(
            f"{text!r} is no dependency that Slurm knows.", "", ("Say afterok:JOBID.",)
        )
    return text
