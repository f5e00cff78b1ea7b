"""Slurm's complaints made words for people: file, line, what is wrong and what would be right."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from dshpc_setup import slurm_releases
from dshpc_setup.container.config import Candidate
from dshpc_setup.errors import DshpcError, Fix

_MOST_LINES = 12  # of what Slurm says; a file of noise makes one complaint a line
_MOST_ERRORS = 20  # that are looked at
_MOST_VALUES = 5
_LONGEST = 300
_INCLUDE = "Include"
_UNKNOWN_KEY = slurm_releases.says("unknown_key")
_NOT_PARSED = slurm_releases.says("not_parsed")


def explain(said: str, candidate: Candidate) -> DshpcError:
    """Slurm's words as an error that names file, line, what is wrong and what would be right."""
    last = said.strip().split("\n")[-1]
    errors = [shortened(text) for text in _errors(said)[:_MOST_ERRORS] or [last]]
    name, number, line, key = _culprit(errors, candidate)
    details = "\n".join(errors[:_MOST_LINES])
    if not number:
        # Of GPUs without a file, gres.conf is to say more; else the user's own file is suspected
        about_gres = "file-less GPU" in details and "gres.conf" in candidate.customized
        suspect = "gres.conf" if about_gres else next(iter(candidate.customized), "slurm.conf")
        return DshpcError(
            "Slurm refuses this configuration.",
            details,
            what_to_do(candidate, suspect, ""),
            file=candidate.own(suspect),
        )
    import difflib

    near = difflib.get_close_matches(key, _known_keys(candidate, key), 1, 0.75) if key else []
    right = f"Did you mean {near[0]}?" if near else ""
    if key == _INCLUDE:  # config/ is read, and nothing in it but the files that we render
        right = "Write the lines of that file in the place of this one."
    return DshpcError(
        f"{candidate.where(name)}, line {number}: {_why(errors, key)}",
        f"The line is: {shortened(line.strip())}\n{details}",
        what_to_do(candidate, name, right, line),
        file=candidate.own(name),
    )


def _why(errors: list[str], key: str) -> str:
    if not key:
        return "Slurm cannot read it."
    if key == _INCLUDE:
        return "the file that it includes is not there in the container."
    if any(map(_UNKNOWN_KEY.search, errors)):
        return f"Slurm knows no {key!r} there."
    return f"{errors[-1].rstrip('.')}."


def _errors(said: str) -> list[str]:
    """Its complaints, without the time and the program's name, each once."""
    found = []
    for line in said.split("\n"):
        match = slurm_releases.says("complaint").search(line)
        if match and not slurm_releases.says("harmless").search(match[1]):
            # Of our own copies people know only the names
            text = re.sub(r"\S*/(?:ask|slurm)\.conf\b", "slurm.conf", shortened(match[1].strip()))
            found.append(re.sub(r"\S*/((?:gres|cgroup)\.conf)\b", r"\1", text))
    return list(dict.fromkeys(found))


def _culprit(errors: Sequence[str], candidate: Candidate) -> tuple[str, int, str, str]:
    """(file, line number, line, key) that the errors speak of; number 0 where none is found.

    The key is "" for a line that is no Key=Value at all.
    """
    texts = [(n, t.split("\n")) for n, t in candidate.texts.items() if n.endswith(".conf")]
    for name, lines in texts:
        if found := _by_key(errors, lines):
            return name, *found
    for error in errors:
        match = _NOT_PARSED.match(error)
        lines = dict(texts).get(match[1], []) if match else []
        if match and 0 < int(match[2]) <= len(lines):
            return match[1], int(match[2]), lines[int(match[2]) - 1], ""
    for name, lines in texts:
        if found := _by_include(errors, lines):
            return name, *found
    for name, lines in texts:
        if found := _by_value(errors, lines):
            return name, *found
    return "", 0, "", ""


_Found = tuple[int, str, str]
"""Line number, line, key."""


def _by_key(errors: Sequence[str], lines: Sequence[str]) -> _Found | None:
    """The first line with a key that Slurm does not know."""
    for error in errors:
        match = _UNKNOWN_KEY.search(error)
        if match is None:
            continue
        key = re.compile(rf"(?i)(?:^|\s){re.escape(match[1])}\s*[+\-*/]?=")
        if found := _first(lines, key):
            return *found, match[1]
    return None


def _by_include(errors: Sequence[str], lines: Sequence[str]) -> _Found | None:
    """The first Include of a file that Slurm does not find."""
    for error in errors:
        missing = slurm_releases.says("not_included").search(error)
        if missing is None:
            continue
        included = rf"(?i)^\s*include\s+(?:\S*/)?{re.escape(missing[1])}\s*$"
        if found := _first(lines, re.compile(included)):
            return *found, _INCLUDE
    return None


def _by_value(errors: Sequence[str], lines: Sequence[str]) -> _Found | None:
    """The first line with a value that an error quotes."""
    for error in errors:
        quoted = re.findall(r"[\"'(]([\w/.,:+-]{3,})[\"')]|\b([a-z_]+/[a-z_0-9]+)\b", error)
        for value in (first or second for first, second in quoted[:_MOST_VALUES]):
            if found := _first(lines, re.compile(re.escape(f"={value}"))):
                return *found, found[1].partition("=")[0].strip()
    return None


def _first(lines: Sequence[str], pattern: re.Pattern[str]) -> tuple[int, str] | None:
    """Number and text of the first line that has it before a comment."""
    numbered = enumerate(lines, 1)
    return next((each for each in numbered if pattern.search(each[1].partition("#")[0])), None)


def _known_keys(candidate: Candidate, but: str) -> list[str]:
    keys = {
        word
        for name, text in candidate.rendered.items() or candidate.texts.items()
        if name.endswith(".conf")
        for line in text.split("\n")
        for word in re.findall(r"\b(\w+)\s*=", line.partition("#")[0])
    }
    return sorted((keys | set(_COMMON_KEYS)) - {but})


_COMMON_KEYS = (
    "AccountingStorageTRES AccountingStorageType AuthType AutoDetect ClusterName ConstrainCores "
    "ConstrainDevices ConstrainRAMSpace CoresPerSocket CPUs DefMemPerCPU DefMemPerGPU Epilog Feature "
    "GresTypes InactiveLimit JobSubmitPlugins KillWait MaxJobCount MaxTime MpiDefault NodeName "
    "OverSubscribe PartitionName PriorityType PrivateData ProctrackType Prolog RealMemory "
    "ReturnToService SchedulerParameters SchedulerType SelectType SelectTypeParameters "
    "SlurmctldDebug SlurmctldHost SlurmctldParameters SlurmctldPort SlurmctldTimeout SlurmdDebug "
    "SlurmdPort SlurmdSpoolDir SlurmdTimeout SlurmUser Sockets StateSaveLocation TaskPlugin "
    "ThreadsPerCore Type File Count Cores Flags Links MultipleFiles Name"
).split()


def what_to_do(
    candidate: Candidate, name: str, right: str, line: str = ""
) -> tuple[str | Fix, ...]:
    """The next steps for whoever owns the file: `right` first; `line` is the one that is wrong."""
    steps: list[str | Fix] = [right] if right else []
    if name in candidate.customized:
        steps += [Fix(f"Correct config/{name}", place="project"), _BY_RESTART]
        if candidate.customized[name] == "edited":
            steps += [
                Fix(
                    "Or have the text for what is here laid beside yours",
                    "configure-environment",
                    step="alternative",
                    place="project",
                ),
                Fix("Then take it", f"dshpc config accept {name}", step="after"),
            ]
        else:  # nothing is laid beside a file that is marked as the user's
            aside = f"mv config/{name} config/{name}.old && configure-environment"
            text = "Or put yours aside, to have it written again"
            steps.append(Fix(text, aside, step="alternative", place="project"))
    elif line.strip() and line.strip() in (text.strip() for text in candidate.extra):
        # A container has the settings of its last configure-environment: one that was taken out since then
        # is told by no other command
        steps += [
            Fix(
                "The line comes from the setting slurm_conf_extra. See what that is now",
                "dshpc config show",
            ),
            Fix(
                "Correct it there, or take all of its lines out",
                "dshpc config unset slurm_conf_extra",
            ),
            Fix(
                "Then put it into effect, also where it is corrected already (reconfigure and restart read "
                "no settings)",
                "configure-environment",
                step="after",
            ),
        ]
    elif name == "gres.conf":
        steps.append(Fix("Have the devices handed in", "configure-environment", place="host"))
    else:
        steps.append(
            "This file was rendered by dsHPC setup: please report this with the text above."
        )
    return tuple(steps)


_IN_FORCE = "Then put it into effect"
_BY_RESTART = Fix(_IN_FORCE, "dshpc restart", step="after", place="project", does="put-into-effect")
_BY_RECONFIGURE = Fix(_IN_FORCE, "dshpc reconfigure", step="after", place="project")


def while_up(error: DshpcError) -> DshpcError:
    """The same for a cluster that runs: there a corrected file needs no restart."""
    return replace(error, steps=tuple(_while_up(step) for step in error.steps))


def _while_up(step: str | Fix) -> str | Fix:
    late = isinstance(step, Fix) and step.does == "put-into-effect"
    return _BY_RECONFIGURE if late else step


def shortened(text: str) -> str:
    """As much of a line as a person reads."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} [...]"
