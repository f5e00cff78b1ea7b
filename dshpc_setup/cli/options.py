"""The settings as command-line options, made from their declarations: each is declared once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import typer

from dshpc_setup.settings import DECLARATIONS


def with_settings(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command one option per setting; it receives them as the mapping `flags`."""
    own = [
        parameter
        for parameter in inspect.signature(function, eval_str=True).parameters.values()
        if parameter.name != "flags"
    ]
    made = [
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
    ]

    def command(**values: Any) -> None:
        flags = {item.name: values.pop(item.name) for item in DECLARATIONS}
        function(flags=flags, **values)

    command.__name__ = function.__name__
    command.__doc__ = function.__doc__
    parameters = [item.replace(kind=inspect.Parameter.KEYWORD_ONLY) for item in own] + made
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {item.name: item.annotation for item in parameters}
    return command
