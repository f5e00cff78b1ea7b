"""`dshpc` and `configure-environment`: the commands that may take the time to import typer."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import typer

from dshpc_setup.cli import ReaderGoneError, interrupted, other_tools, print_json, told, wants_json
from dshpc_setup.cli.command_line import HELP, app, finish, finished
from dshpc_setup.cli.passed_on import show_in_help
from dshpc_setup.errors import DshpcError, Exit, usage_error

# isort: split
# Importing them declares their commands; the help shows them in this order.
from dshpc_setup.cli import setting_up

# isort: split
from dshpc_setup.cli import running

# isort: split
from dshpc_setup.cli import doctoring, looking

# isort: split
from dshpc_setup.cli import submitting

# isort: split
from dshpc_setup.cli import (
    backup,
    compose,
    config,
    demo,
    env,
    image,
    installing,
    jobs,
    key,
    labbing,
    method,
    metrics,
    node,
    rest,
    sshing,
    usage,
    using,
    workflow,
)

__all__ = [
    "app",
    "backup",
    "compose",
    "config",
    "demo",
    "doctoring",
    "env",
    "image",
    "installing",
    "jobs",
    "key",
    "labbing",
    "looking",
    "method",
    "metrics",
    "node",
    "rest",
    "run",
    "running",
    "setting_up",
    "sshing",
    "submitting",
    "usage",
    "using",
    "workflow",
]

show_in_help(app, finish)


def run(arguments: list[str], program: str) -> int:
    """Parse and run."""
    return told(lambda: _run(arguments, program), arguments, program)


def _run(arguments: list[str], program: str) -> int:
    finished.clear()
    group = typer.main.get_command(app)
    command, rest = group, arguments
    if program == "configure-environment":
        command, rest = group.commands["configure"], arguments[1:]  # type: ignore[attr-defined]
    _name_no_types(group)
    try:
        code = command.main(rest, prog_name=program, standalone_mode=False)
    except typer.Abort:  # Ctrl-D at a question, and Ctrl-C where the parser of that version says so
        return interrupted(arguments, program)
    except SystemExit as error:  # how the parser ends where print() met a closed pipe
        if isinstance(error.__context__, BrokenPipeError):
            raise ReaderGoneError from error
        raise
    except Exception as error:
        if not hasattr(error, "format_message"):  # the parser's own, of click or of typer's copy
            raise
        if (other := _of_another_tool(error, arguments)) is not None:
            raise other from None
        return _wrong_usage(error, arguments)
    if finished:
        return finished[-1]
    if code == Exit.INTERRUPTED:  # the parser catches Ctrl-C and says nothing
        return interrupted(arguments, program)
    return code if isinstance(code, int) else 0


def _of_another_tool(error: Any, arguments: list[str]) -> DshpcError | None:
    """What to use in place of an option that is not there, of the commands that submit jobs."""
    option = getattr(error, "option_name", None)
    command = " ".join(arguments[: 1 if arguments[:1] == ["run"] else 2])
    if not isinstance(option, str) or command not in ("run", "method run", "method check"):
        return None
    return other_tools.refusal(command, option)


def _wrong_usage(error: Any, arguments: list[str]) -> int:
    from typer.rich_utils import rich_format_error

    if possible := getattr(error, "possibilities", None):
        error.possibilities = _near(str(getattr(error, "option_name", "")), possible)
    if wants_json(arguments):
        said = usage_error(error.format_message(), "", "See what there is: --help")
        print_json(said.to_object())
    rich_format_error(error)
    return int(Exit.USAGE)


def _near(option: str, possible: Sequence[str]) -> list[str]:
    """Those that it may be a slip of: the parser also compares the dashes, and takes --frob for --root."""
    names = {each.lstrip("-"): each for each in possible}
    return [names[name] for name in difflib.get_close_matches(option.lstrip("-"), list(names))]


def _name_no_types(command: Any) -> None:
    """Keep types of Python's out of the help: a switch takes nothing, an argument has a name."""
    for option in (*command.params, command.get_help_option(typer.Context(command, **HELP))):
        if getattr(option, "is_bool_flag", False):
            option.metavar = ""
        elif getattr(option, "param_type_name", "") == "argument":
            option.display_type_rich = _no_type  # in place of "<list[str]>"
    for each in getattr(command, "commands", {}).values():
        _name_no_types(each)


def _no_type(ctx: Any) -> None:  # noqa: ARG001 -- as the parser calls it
    return None
