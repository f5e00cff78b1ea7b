"""Configuration files as a report holds them: keys and values of programs, and nobody's own words.

What is in a comment is for those who keep the cluster, and so is what a key holds that no program has.
Slurm's files are read by `slurm`, YAML (docker-compose.yml, dshpc.yaml) by `yaml`; the words of what is
left are looked at by the scrubber, as those of every text are.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from dshpc_setup import gpu_vendors, resources
from dshpc_setup.files import ownership
from dshpc_setup.record import vocabulary
from dshpc_setup.settings import BY_NAME

_COMMENT = "# (a comment)"
_REMOVED = "removed"
_PAIR = re.compile(
    r"(?P<key>(?<!\S)[^\s=]{1,80})(?P<mark>\s{0,9}=\s{0,9})(?P<value>\"[^\"\n]*\"?|'[^'\n]*'?|[^\s#]*)"
)
# Of Slurm's keys those whose values are somebody's words; no check reads them
_FREE = re.compile(r"(?i:\w*comment|reason|description|extra|mailprog|maildomain|licenses\w*)")
_VARIABLE = re.compile(
    r"^(?P<before>\s*(?:-\s+)?[\"']?)(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<mark>[\"']?\s*[:=]\s*)(?P<value>\S.*)$"
)
# The variables that dshpc writes, and those that say which GPUs a container gets
_OWN_VARIABLE = re.compile(r"DSHPC_\w+|NVIDIA_DISABLE_REQUIRE|TZ")
_SHOUTED = re.compile(r"[A-Z][A-Z0-9_]{2,}")


def _is_ours(name: str) -> bool:
    vendors = gpu_vendors.all_of_them()
    told = {each.runtime_variable for each in vendors if each.runtimes}
    told.update(*(each.capabilities for each in vendors))
    return name in told | gpu_vendors.variables() or bool(_OWN_VARIABLE.fullmatch(name))


@cache
def _ours() -> frozenset[str]:
    """The comments of our own templates, which say nothing of anybody."""
    files = (*resources.templates().glob("*.j2"), resources.share() / "docker-compose.yml.j2")
    lines = (line.strip() for file in files for line in file.read_text("utf-8").splitlines())
    return frozenset(line for line in lines if line.startswith("#") and "{" not in line)


def _comment(text: str) -> str:
    """What stands for a comment, `text` from its sign on."""
    plain = text.strip()
    return plain if not plain or plain in _ours() or ownership.is_marked(plain) else _COMMENT


def slurm(text: str) -> str:
    """slurm.conf, gres.conf, cgroup.conf and pieces of them."""
    return _each_line(text, _slurm_line)


def _slurm_line(line: str) -> str:
    plain, mark, behind = line.partition("#")
    told = _PAIR.sub(_pair, plain)
    return f"{told}{_comment(mark + behind)}"


def _pair(found: re.Match[str]) -> str:
    key = found["key"]
    known = vocabulary.is_listed(key) and not _FREE.fullmatch(key)
    return found[0] if known or not found["value"] else f"{key}{found['mark']}{_REMOVED}"


def yaml(text: str, *, settings: bool = False) -> str:
    """A file of YAML; `settings`: it is dshpc.yaml, whose keys are known."""
    return _each_line(text, _setting_line if settings else _yaml_line)


def _yaml_line(line: str) -> str:
    plain, comment = _at_comment(line)
    found = _VARIABLE.match(plain)
    if found and _SHOUTED.fullmatch(found["name"]) and not _is_ours(found["name"]):
        return f"{_without(found)}{_comment(comment)}"
    return f"{plain}{_comment(comment)}"


def _setting_line(line: str) -> str:
    plain, comment = _at_comment(line)
    found = _VARIABLE.match(plain)
    if found and found["before"] == "" and found["name"] not in BY_NAME:
        plain = _without(found)
    elif found and found["before"].strip() == "" and "=" in found["mark"]:
        plain = _PAIR.sub(_pair, plain)  # of slurm_conf_extra
    return f"{plain}{_comment(comment)}"


def _without(found: re.Match[str]) -> str:
    value = found["value"].rstrip()
    quote = next((mark for mark in "\"'" if len(value) > 1 and value[0] == value[-1] == mark), "")
    inside = found["before"].rstrip().endswith(('"', "'"))  # - "NAME=value"
    end = value[-1] if inside and value[-1] in "\"'" else ""
    told = f"{quote}{_REMOVED}{quote}" if not inside else f"{_REMOVED}{end}"
    return f"{found['before']}{found['name']}{found['mark']}{told}"


def _at_comment(line: str) -> tuple[str, str]:
    """The line before its comment, and the comment: a "#" behind a blank and in no quotes."""
    quote = ""
    for at, char in enumerate(line):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char == "#" and (at == 0 or line[at - 1] in " \t"):
            return line[:at], line[at:]
    return line, ""


def _each_line(text: str, told: Callable[[str], str]) -> str:
    return "\n".join(map(told, text.split("\n")))
