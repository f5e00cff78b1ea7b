"""`dshpc detect`: what this machine has.

The command is declared in looking.py, for its help and for what is wrong with a command line. A line of
its known options, well formed, is read here without typer, whose import takes longer than the
looking.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from dshpc_setup.cli import print_json, put
from dshpc_setup.cli.seen import seen_machine
from dshpc_setup.errors import DshpcError, Exit, usage_error
from dshpc_setup.facts import SECTIONS, HostFacts, Section
from dshpc_setup.probes import DEADLINE_S, gather

if TYPE_CHECKING:
    from dshpc_setup.machine import Machine
    from dshpc_setup.settings import Settings
    from dshpc_setup.settings.lent import Toolkit
    from dshpc_setup.setup.engine_choice import Choice

_LOOK_S = 3.0
_SWITCHES = {"--json": "json", "--explain": "explain"}
_VALUES = {
    "--only": "only",
    "--deadline": "deadline",
    "--root": "root",
    "--machine": "machine",
    "--simulate": "simulate",
    "--node": "node",
}


@dataclass(frozen=True)
class DetectOptions:
    """The options of `dshpc detect`, as they stand on the command line."""

    json: bool = False
    explain: bool = False
    only: str | None = None
    deadline: float = DEADLINE_S
    root: str = "/"
    machine: str | None = None
    simulate: str = ""
    node: str | None = None


def parsed(arguments: Sequence[str]) -> DetectOptions | None:
    """The options where each is known, once there, and has what it needs; else None: ask typer."""
    found: dict[str, str | bool] = {}
    words = iter(arguments)
    for word in words:
        option, equals, value = word.partition("=")
        name = _SWITCHES.get(word) or _VALUES.get(option)
        if name is None or name in found:
            return None
        if word in _SWITCHES:
            found[name] = True
            continue
        if not equals:
            value = next(words, "")
        if not value or value.startswith("-"):
            return None
        found[name] = value
    try:
        deadline = float(found.pop("deadline", DEADLINE_S))
    except ValueError:
        return None
    return DetectOptions(**found, deadline=deadline)  # type: ignore[arg-type]


def detect(asked: DetectOptions) -> int:
    """Look, print, and give the exit code; raises DshpcError for what cannot be asked for."""
    sections = sections_of(asked.only)
    check_deadline(asked.deadline)
    if asked.node is not None:
        from dshpc_setup.cli import detect_node

        return detect_node.detect(asked, asked.node)
    machine = seen_machine(asked.root, asked.machine, asked.simulate)
    facts = gather(machine, only=sections, deadline_s=asked.deadline)
    asks_engine = "docker" in sections
    here = _here(asked) if asks_engine or (facts.gpus.devices and not asked.json) else None
    engine = _engine(machine, facts, here) if asks_engine and here else None
    is_here = asked.machine is None and asked.root == "/" and "gpus" in sections
    kits = _toolkits(machine) if is_here else None
    if asked.json:
        found = facts.to_json(sections, explain=asked.explain)
        more = {
            "cluster_engine": engine.to_json() if engine else None,
            "toolkits": None if kits is None else [each.to_json() for each in kits],
        }
        print_json({**found, **more})
    else:
        _print(facts, sections, asked, here, engine, kits or ())
    return Exit.INCOMPLETE if facts.unanswered(sections) else Exit.OK


def detect_inside(asked: DetectOptions) -> int:
    """The same in a container of the cluster, by the settings that it was given; it has no engine."""
    from dshpc_setup.container import hardware
    from dshpc_setup.machine.local import LocalMachine
    from dshpc_setup.settings import of_container

    sections = tuple(each for each in sections_of(asked.only) if each != "docker")
    settings = of_container(os.environ)
    facts = hardware.look(LocalMachine(), settings.simulate, deadline_s=asked.deadline)
    if asked.json:
        found = facts.to_json(sections, explain=asked.explain)
        print_json({**found, "cluster_engine": None, "toolkits": None})
    else:
        _print(facts, sections, asked, _Here(settings, {}))
    return Exit.INCOMPLETE if facts.unanswered(sections) else Exit.OK


def _print(
    facts: HostFacts,
    sections: tuple[Section, ...],
    asked: DetectOptions,
    here: _Here | None,
    engine: Choice | None = None,
    kits: tuple[Toolkit, ...] = (),
) -> None:
    from dshpc_setup.cli.facts import lines
    from dshpc_setup.facts import explain

    text = lines(facts, sections, *([here.settings] if here else []), engine=engine, kits=kits)
    if asked.explain:
        text += ["", *explain.lines(facts, sections)]
    put("\n".join([*text, ""]))


class _Here(NamedTuple):
    settings: Settings
    runtime: dict[str, Any]


def _here(asked: DetectOptions) -> _Here | None:
    """The project that we stand in, or what holds without one: what jobs call the GPUs here, which they get,
    and which engine it is on. None of another machine, and while the settings are broken."""
    if asked.machine is not None or asked.root != "/":
        return None
    from dshpc_setup import settings
    from dshpc_setup.cli.folders import found_project

    with suppress(DshpcError):
        project = found_project(None)
        if project is None:
            return _Here(settings.load(env=os.environ), {})
        return _Here(project.settings(os.environ), project.runtime())
    return None


def _engine(machine: Machine, facts: HostFacts, here: _Here) -> Choice | None:
    """What configure-environment would start the cluster with; None where sudo does not answer."""
    from dshpc_setup.cli.console import is_interactive
    from dshpc_setup.setup.engine_choice import choose

    with suppress(DshpcError):
        return choose(
            machine,
            here.settings.engine,
            here.runtime,
            interactive=is_interactive(),
            docker=facts.engine.state,
            looks_only=True,
        )
    return None


def _toolkits(machine: Machine) -> tuple[Toolkit, ...] | None:
    """The CUDA and ROCm of this machine that `toolkit: host` would lend to jobs; None where looking did not
    end: they may lie on another machine's disk."""
    from dshpc_setup.setup import toolkits

    ended = machine.apart({"toolkits": lambda say: say(toolkits.here())}, deadline_s=_LOOK_S)
    found = ended["toolkits"].items
    return found[-1] if found else None


def check_deadline(seconds: float) -> None:
    """Raises DshpcError where nobody can wait so long, or so short."""
    if not (0 < seconds < math.inf):
        raise usage_error(
            f"--deadline {seconds:g}: not a usable number of seconds.",
            "",
            "Give seconds, more than 0: --deadline 5",
        )


def sections_of(only: str | None) -> tuple[Section, ...]:
    """The sections that `--only` names, all of them without it."""
    if only is None:
        return SECTIONS
    words = [word.strip() for word in only.split(",")]
    for word in words:
        if word not in SECTIONS:
            import difflib

            near = difflib.get_close_matches(word.lower(), SECTIONS, 1)
            raise usage_error(
                f"There is no section {word!r}.",
                f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(SECTIONS)}.",
                "For example: dshpc detect --only gpus,docker",
            )
    return tuple(section for section in SECTIONS if section in words)
