"""The tools beside the engine: compose of both generations, and the builder plugin."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

from dshpc_setup.facts import Compose, Evidence
from dshpc_setup.machine import CommandResult, Machine
from dshpc_setup.machine.no_answer import in_words, no_answer
from dshpc_setup.probes import plugins
from dshpc_setup.probes.trace import Trace, kept

_V2 = ("docker", "compose")
_V1 = ("docker-compose",)
_BUILDX = ("docker", "buildx", "version")
_MOST_LINKS = 8
_MOST_SAID = 160
_AGAIN_S = 60.0  # where the answer decides, and did not come
_LONG_S = 20.0  # with so much time docker is asked in a second way as well


def find_compose(machine: Machine, deadline_s: float) -> Compose | None:
    """The one to use: the plugin where there is one, else `docker-compose`; None where neither is there.

    One that does not answer is asked once more, with more time. Raises DshpcError (INCOMPLETE) where
    there is no answer then either.
    """
    for ask in (plugin, program):
        found, evidence = ask(machine, deadline_s)
        if evidence.state == "timeout":
            found, evidence = ask(machine, max(deadline_s, _AGAIN_S))
        if evidence.state == "timeout":
            late = CommandResult(
                tuple(evidence.source.split()), "timeout", None, "", "", evidence.ms
            )
            raise no_answer(late, "whether Docker Compose is installed")
        if found is not None:
            return found
    return None


def plugin(machine: Machine, deadline_s: float) -> tuple[Compose | None, Evidence]:
    """`docker compose`, wherever the CLI, or what stands in for it, keeps that plugin.

    Asked and not looked up: starting the CLI takes ten milliseconds, and only it knows its folders.
    """
    return _asked(Trace(machine), _V2, deadline_s)


def program(machine: Machine, deadline_s: float) -> tuple[Compose | None, Evidence]:
    """`docker-compose`: version 1, or version 2 under its name.

    Version 1 takes half a second to say its version, so it is asked only where its script does not
    name it.
    """
    look = Trace(machine)
    path = machine.which(_V1[0])
    version = parse_script(machine.read(_resolved(machine, path)).text or "") if path else None
    if path and version:
        look.saw("compose", "present", path, f"it names version {version}")
        return Compose(version, _V1), _only(look)
    return _asked(look, _V1, deadline_s)


def buildx(machine: Machine, deadline_s: float) -> tuple[str | None, Evidence]:
    """Version of the builder plugin: `github.com/docker/buildx v0.13.1 788433953`."""
    look = Trace(machine)
    result = _run(look, _BUILDX, deadline_s)
    if result.state == "timeout":
        return _otherwise(look, "buildx", result, deadline_s), _only(look)
    # A CLI without the plugin may well end with 0, and a help text.
    mine = result.ok and "docker/buildx" in result.stdout
    version = parse_version(result.stdout) if mine else None
    _saw(look, "buildx", _BUILDX, result, version)
    return version, _only(look)


def _asked(
    look: Trace, argv: tuple[str, ...], deadline_s: float
) -> tuple[Compose | None, Evidence]:
    command = (*argv, "version", "--short")
    result = _run(look, command, deadline_s)
    if result.state == "timeout" and argv == _V2:
        version = _otherwise(look, "compose", result, deadline_s)
        return (Compose(version, argv) if version else None), _only(look)
    version = parse_version(result.stdout) if result.ok else None
    _saw(look, "compose", command, result, version)
    return (Compose(version, argv) if version else None), _only(look)


def _otherwise(
    look: Trace, plugin: plugins.Plugin, late: CommandResult, deadline_s: float
) -> str | None:
    """The version of a plugin that did not answer, as others tell it: silence is no absence."""
    said = in_words(late)
    if deadline_s >= _LONG_S:
        done = look.machine.run(plugins.INFO, deadline_s=deadline_s)
        version = parse_version(plugins.told_by_client(done, plugin) or "")
        if version:
            look.saw(plugin, "present", " ".join(plugins.INFO), f"{version}; {said}")
            return version
    found = plugins.on_disk(look.machine, plugin)
    version = parse_version(found.version or "") if found else None
    if found and version:
        look.saw(plugin, "present", found.source, f"{version}: {found.path}; {said}")
        return version
    there = f", and {found.path} is there" if found else ""
    look.saw(plugin, "timeout", " ".join(late.argv), f"{said}{there}")
    return None


def _run(look: Trace, argv: tuple[str, ...], deadline_s: float) -> CommandResult:
    if look.machine.which(argv[0]) is None:
        return CommandResult(argv, "absent", None, "", "", 0.0)
    return look.machine.run(argv, deadline_s=deadline_s)


def _saw(
    look: Trace, probe: str, argv: Sequence[str], result: CommandResult, version: str | None
) -> None:
    source = " ".join(argv)
    if version:
        look.saw(probe, "present", source, version, result.code)
    elif result.state == "timeout":
        look.saw(probe, "timeout", source, in_words(result))
    elif result.state != "present":
        why = "there is no such program" if result.state == "absent" else kept(result.text)
        look.saw(probe, result.state, source, why or None)
    else:
        # A CLI without the plugin ends with an error, or with its help.
        said = " ".join(kept(result.text).split())[:_MOST_SAID]
        look.saw(probe, "absent", source, said or None, result.code)


def _only(look: Trace) -> Evidence:
    return look.found(None).evidence[-1]


def _resolved(machine: Machine, path: str) -> str:
    """Where the last link leads: Debian's alternatives, a Homebrew cellar."""
    for _ in range(_MOST_LINKS):
        target = machine.readlink(path)
        if target is None:
            break
        path = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    return path


def parse_script(text: str) -> str | None:
    """The version in a script that setuptools wrote: `docker-compose==1.29.2`."""
    if not text.startswith("#!"):
        return None
    match = re.search(r"['\"]docker-compose==(\d{1,4}\.\d{1,4}[\w.+~-]{0,40})['\"]", text, re.ASCII)
    return match[1] if match else None


def parse_version(text: str) -> str | None:
    """The first word like 1.29.2 or v2.26.1-4, without its v."""
    match = re.search(r"(?<![\w.])v?(\d{1,4}\.\d{1,4}(?:\.\d{1,6})?[\w.+~-]*)", text, re.ASCII)
    return match[1] if match else None
