"""`slurm_conf_extra`: lines of the user's for slurm.conf, and where they clash with ours."""

from __future__ import annotations

import re

from dshpc_setup.plan.model import OWNERS, SHARED_NODE, ExtraLine
from dshpc_setup.settings import Settings, Source, WrongSetting, together

# What the container depends on, and what to do instead; the user's own line would break the start.
_OWN: dict[str, str] = {
    "clustername": "It is the setting prefix.",
    "slurmctldhost": "It is the setting prefix.",
    "slurmctldaddr": "The controller runs in this container.",
    "nodename": "The node is written from what the machine has.",
    "nodeset": "There is one node.",
    "authtype": "Programs of the container know each other by this deployment's key.",
    "credtype": "Programs of the container know each other by this deployment's key.",
    "authinfo": "Programs of the container know each other by this deployment's key.",
    "communicationparameters": "Slurm's ports are open to this container alone by it.",
    "slurmuser": "The container's folders belong to it.",
    "slurmduser": "slurmd starts jobs of every user.",
    "statesavelocation": "It is the state volume.",
    "slurmdspooldir": "It is a folder of the container.",
    "slurmctldpidfile": "It is a folder of the container.",
    "slurmdpidfile": "It is a folder of the container.",
    "grestypes": "It follows the GPUs and the setting gpu_sharing.",
    "proctracktype": "It is part of the setting isolation.",
    "taskplugin": "It is part of the setting isolation.",
    "jobacctgathertype": "It is part of the setting isolation.",
    "jobsubmitplugins": "The names of GPUs are translated by it.",
    "clifilterplugins": "The names of GPUs are translated by it.",
    "plugstackconfig": "It tells each job its GPUs; a TaskProlog of your own runs beside it.",
    "selecttype": "GPUs need select/cons_tres.",
    "include": "The configuration is one file of its own.",
    "plugindir": "Plugins are those of the image.",
}


# Keys that Slurm reads several times, and that begin a line of several Key=Value; of each other one the
# line is the key and its value alone
_OF_SEVERAL = frozenset(("partitionname", "downnodes"))

_KEY = r"[A-Za-z][A-Za-z0-9]*"
_VALUE = r'(?:"[^"#]*"|[^\s"#]+)'  # Slurm takes a # for a comment in quotes, too
_WORD = rf"({_KEY})\s*=\s*({_VALUE})"
_ONE = re.compile(rf"{_WORD}\s*(?:#.*)?")
_SEVERAL = re.compile(rf"{_WORD}(?:\s+{_KEY}\s*=\s*{_VALUE})*\s*(?:#.*)?")


def lines(settings: Settings) -> tuple[ExtraLine, ...]:
    """The lines, without blank ones and comments. Raises SettingsError (usage) for those of `wrong`."""
    found, bad = _read(settings)
    if bad:
        raise together(bad)
    return tuple(found)


def wrong(settings: Settings) -> tuple[WrongSetting, ...]:
    """Those that are no Key=Value, that repeat another or that say what the plan itself must say. A key
    that Slurm does not know is found by Slurm, at the start."""
    return tuple(_read(settings)[1])


def _read(settings: Settings) -> tuple[list[ExtraLine], list[WrongSetting]]:
    found: list[ExtraLine] = []
    bad: list[WrongSetting] = []
    said: set[str] = set()
    taken = {settings.partition.lower(), *(name.lower() for name, _ in settings.partitions)}
    taken |= {OWNERS} if settings.listens else set()
    for number, text in enumerate(settings.slurm_conf_extra.split("\n"), 1):
        line = text.strip()
        if not line or line.startswith("#"):
            continue
        key, own = _key(line)
        why = own or _malformed(line, key)
        if why is None and key.lower() == "partitionname":
            why = _bad_partition(line, taken)
        elif why is None and key.lower() in said:
            why = f"says {key} a second time."
        if why is not None:
            bad.append(_refused(settings, number, line, why, own=own is not None))
            continue
        kept = line.partition("#")[0].rstrip()
        if (
            settings.listens and key.lower() == "partitionname"
        ):  # a node of one user's is not for all
            kept = re.sub(r"(?i)\bNodes=ALL\b", f"Nodes={SHARED_NODE}", kept)
        found.append(ExtraLine(key, kept))
        if key.lower() not in _OF_SEVERAL:
            said.add(key.lower())
    return found, bad


def _key(line: str) -> tuple[str, str | None]:
    """What the line begins with, and why it may not stand there if it is ours to say."""
    match = re.match(rf"({_KEY})\s*[-+*/]?=", line) or re.match(r"(?i)(include)\s", line)
    key = match[1] if match else ""
    own = _OWN.get(key.lower())
    return key, None if own is None else f"clashes: {key} is written here. {own}"


def _malformed(line: str, key: str) -> str | None:
    """Why Slurm would not read it as the one setting that it looks like; None where it would."""
    if not key:
        return "is not Key=Value."
    if "\\" in line:
        return "contains a backslash, which Slurm reads as a line continuation."
    if key.lower() in _OF_SEVERAL:
        return None if _SEVERAL.fullmatch(line) else "is not a list of Key=Value."
    if _ONE.fullmatch(line):
        return None
    return (
        "has more than one value: each setting needs a line of its own, and a value with blanks "
        'needs quotes ("...").'
        if _ONE.match(line)
        else "is not Key=Value."
    )


def _bad_partition(line: str, taken: set[str]) -> str | None:
    """Why this PartitionName line cannot stand beside ours; its name is added to those taken."""
    words = {key.lower(): value.strip('"') for key, value in re.findall(_WORD, line)}
    name = words["partitionname"].lower()
    if not re.fullmatch(r"[a-z0-9_.-]+", name):
        return f"has no name of a partition: {words['partitionname']!r}."
    if name in taken:
        return f"clashes: there is a partition {name}."
    if words.get("default", "no").lower() == "yes":
        return "clashes: the default partition is the one of the setting partition."
    taken.add(name)
    return None


def _refused(
    settings: Settings, number: int, line: str, why: str, *, own: bool = False
) -> WrongSetting:
    source = settings.sources.get("slurm_conf_extra", Source("default", "slurm_conf_extra"))
    place = source.of_item(number - 1)
    mark = " Or make slurm.conf your own with the line # USER_CUSTOMIZED=true." if own else ""
    return WrongSetting(
        "value",
        source.origin,
        place.where,
        place.said(f"slurm_conf_extra, line {number} {why}"),
        f"The line is: {line}",
        "slurm_conf_extra",
        steps=(f"{'Take the line out' if own else 'Correct the line or take it out'}.{mark}",),
    )
