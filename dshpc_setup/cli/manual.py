"""Our commands as values, read off the parser: the site's reference and the man pages are made from them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dshpc_setup.cli.passed_on import PANEL

_PANELS = ("Set up", "Run", "Methods and jobs", PANEL, "Inspect")


@dataclass(frozen=True)
class Option:
    names: tuple[str, ...]
    takes: str  # what stands behind it; "" for a switch
    help: str


@dataclass(frozen=True)
class Command:
    """One command: its words behind `dshpc`, what it takes, and the commands below it."""

    words: tuple[str, ...]
    panel: str  # under which heading `dshpc --help` has it
    help: str
    arguments: tuple[tuple[str, str], ...]  # as typed, and what each is
    options: tuple[Option, ...]
    examples: tuple[str, ...]
    commands: tuple[Command, ...] = ()

    @property
    def name(self) -> str:
        return " ".join(("dshpc", *self.words))

    @property
    def usage(self) -> str:
        """The line to type. Slurm's own commands take what Slurm's take."""
        if self.commands:
            return f"{self.name} COMMAND"
        taken = ["ARGUMENTS"] if self.panel == PANEL else [typed for typed, _ in self.arguments]
        options = ["[OPTIONS]"] if self.options else []
        return " ".join((self.name, *options, *taken))


def commands() -> tuple[Command, ...]:
    """Those right behind `dshpc`, by panel and name: the parser's order is that in which modules came."""
    import typer

    from dshpc_setup.cli.app import app

    group: Any = typer.main.get_command(app)
    return tuple(sorted(_below(group, ()), key=_place))


def _place(command: Command) -> tuple[int, str, tuple[str, ...]]:
    known = command.panel in _PANELS
    return (_PANELS.index(command.panel) if known else len(_PANELS), command.panel, command.words)


def _below(group: Any, words: tuple[str, ...]) -> Iterator[Command]:
    for name, command in group.commands.items():
        if command.hidden:
            continue
        mine = (*words, name)
        shown = [each for each in command.params if not getattr(each, "hidden", False)]
        yield Command(
            mine,
            getattr(command, "rich_help_panel", None) or "",
            inspect.cleandoc(command.help or ""),
            tuple(_argument(each) for each in shown if each.param_type_name == "argument"),
            tuple(_option(each) for each in shown if each.param_type_name == "option"),
            _examples(command.epilog or ""),
            tuple(_below(command, mine)) if hasattr(command, "commands") else (),
        )


def typed(argument: Any) -> str:
    """An argument as a usage line names it."""
    name: str = argument.metavar or argument.name.upper()
    if name.startswith("["):
        return name
    name += "..." if argument.nargs == -1 and not name.endswith("...") else ""
    return name if argument.required else f"[{name}]"


def _argument(parameter: Any) -> tuple[str, str]:
    return typed(parameter), parameter.help or ""


def _option(parameter: Any) -> Option:
    switch = getattr(parameter, "is_flag", False)
    names = (*sorted(parameter.opts, key=len), *parameter.secondary_opts)
    takes = "" if switch else parameter.metavar or parameter.type.name.upper()
    return Option(names, takes, parameter.help or "")


def _examples(epilog: str) -> tuple[str, ...]:
    """As `examples` of command_line made them: lines with a blank one between, brackets escaped for rich."""
    _, _, lines = epilog.partition("\n\n")
    return tuple(each.strip().replace(r"\[", "[") for each in lines.split("\n\n") if each.strip())
