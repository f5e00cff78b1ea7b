"""What fixes a fault, as it can be typed in the container: with its own commands, else on the host."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from dshpc_setup.diagnose import Finding
from dshpc_setup.diagnose.report import Report
from dshpc_setup.errors import DshpcError, Fix
from dshpc_setup.terminal.commands import EXEC_COMMANDS

_NODE = {
    "dshpc reconfigure": "dshpc-node reconfigure",
    "dshpc key rotate": "dshpc-node rotate-key",
    "dshpc status": "dshpc-node status",
}
_SLURMS = "|".join(sorted(EXEC_COMMANDS - {"exec", "shell"}))
_SLURM = re.compile(rf"dshpc (?:exec (?:--root )?-- |(?=(?:{_SLURMS})\b))([^;&|]+)")
_HERE = re.compile(r"(?:nvidia-smi|amd-smi|sbatch)(?: .*)?|(?:cat /proc|ls -ln? /dev)/.*")


def report(made: Report) -> Report:
    """The report for who reads it in the container."""
    return replace(
        made, findings=_findings(made.findings), every=_findings(made.every), inside=True
    )


def _findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(replace(finding, fix=fixes(finding.fix)) for finding in findings)


def fixes(steps: Iterable[Fix]) -> tuple[Fix, ...]:
    """The steps, each command once: one of root's and another user's are the same in here."""
    typed = [_typed(step) for step in steps]
    commands = [step.command for step in typed]
    return tuple(
        step
        for number, step in enumerate(typed)
        if step.command is None or step.command not in commands[:number]
    )


def steps(error: DshpcError) -> tuple[str, ...]:
    """The steps of an error, for who reads it in the container."""
    return tuple(map(str, fixes(error.fixes)))


def _typed(step: Fix) -> Fix:
    if step.command is None:
        return _of_host(step) if step.place else step
    command = _in_here(step.command)
    if command is not None:
        return replace(step, command=command, place=None)
    return _of_host(step)


def _of_host(step: Fix) -> Fix:
    if step.place == "host":
        return step
    return replace(step, text=f"{step.words} (on the host)", place=None)


def _in_here(command: str) -> str | None:
    """The command as it is given in the container; None for one of the host's."""
    if command in _NODE:
        return _NODE[command]
    if found := _SLURM.fullmatch(command):
        return found[1]
    return command if _HERE.fullmatch(command) else None
