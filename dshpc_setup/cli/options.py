"""The settings as command-line options, made from their declarations: each is declared once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from dshpc_setup.errors import usage_error
from dshpc_setup.settings import DECLARATIONS


def _refuse(folder: Path | None) -> None:
    if folder is not None:
        raise usage_error(
            "A recorded machine can be looked at, not run.",
            f"--machine {folder} is for commands that only look.",
            "Leave it out, or look: dshpc detect --machine DIR",
        )


def _recorded(text: str) -> Path:
    if not text:
        raise usage_error(
            "--machine names nothing.",
            "",
            "Name a folder of `dshpc record`, or a report (.tar.gz).",
        )
    return Path(text)


Machine = Annotated[
    Path | None,
    typer.Option(
        "--machine",
        metavar="DIR|FILE",
        help="Replay a recorded machine, or a report (.tar.gz).",
        parser=_recorded,
    ),
]
"""For a command that looks at a machine."""

NoMachine = Annotated[
    Path | None, typer.Option("--machine", metavar="DIR", hidden=True, callback=_refuse)
]
"""For a command that acts on one: refused with a sentence."""

Root = Annotated[
    Path,
    typer.Option("--root", metavar="DIR", help="Read /proc, /sys, /dev and /etc under DIR."),
]


def gathered(
    into: str, options: Sequence[inspect.Parameter]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command these options in the place of its parameter `into`, which receives them as a mapping."""

    def decorated(function: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(function, eval_str=True).parameters.values()
        parameters = [
            each.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for item in own
            for each in (options if item.name == into else (item,))
        ]

        def command(**values: Any) -> None:
            mapping = {item.name: values.pop(item.name) for item in options}
            function(**{into: mapping}, **values)

        command.__name__ = function.__name__
        command.__doc__ = function.__doc__
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {item.name: item.annotation for item in parameters}
        return command

    return decorated


with_settings = gathered(
    "flags",
    [
        inspect.Parameter(
            item.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=typer.Option(
                None,
                item.flag,
                help=item.help,
                metavar=item.metavar,
                rich_help_panel="Settings (also DSHPC_* variables and dshpc.yaml; remembered)",
            ),
            annotation=str | None,
        )
        for item in DECLARATIONS
    ],
)
"""One option for each setting, as the mapping `flags`."""


FollowLog = Annotated[bool, typer.Option("--follow", "-f", help="Follow the log as it grows.")]
Tail = Annotated[
    int | None, typer.Option("--tail", "-n", min=0, metavar="N", help="Show only the last lines.")
]
