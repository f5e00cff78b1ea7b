"""Man pages of the commands, in roff: `dshpc.1`, and `dshpc-COMMAND.1` for each that is not Slurm's own."""

from __future__ import annotations

from collections.abc import Iterator

from dshpc_setup.cli import manual
from dshpc_setup.cli.passed_on import PANEL

_INTRO = (
    "One command from a bare machine to a running Slurm in a container, configured from the hardware that is "
    "there. Slurm's commands run in the cluster as the caller, with their exit codes, streams and signals."
)
_EXITS = (
    ("0", "All is well."),
    ("1", "Warnings of doctor, or a job that failed (its own code where there is one)."),
    ("2", "An error."),
    ("3", "Something could not be asked in time."),
    ("64", "Wrong usage."),
)


def pages() -> dict[str, str]:
    """File name -> roff. The same words as `--help`; no date, so that they change with the words alone."""
    all_of_them = manual.commands()
    own = [each for each in all_of_them if each.panel != PANEL]
    found = {f"dshpc-{each.words[0]}.1": _page(each) for each in own}
    return {"dshpc.1": _overview(all_of_them), **found}


def _overview(commands: tuple[manual.Command, ...]) -> str:
    lines = [*_head("dshpc", "Slurm in a container"), _bold("dshpc"), "COMMAND [ARGUMENTS]"]
    lines += [".SH DESCRIPTION", _plain(_INTRO)]
    panel = ""
    for each in commands:
        if each.panel != panel and each.panel:
            panel = each.panel
            lines.append(f'.SH "{_plain(panel).upper()}"')
        lines += [".TP", _bold(each.name), _plain(each.help)]
    lines += [".SH EXIT STATUS"]
    for code, words in _EXITS:
        lines += [".TP", code, _plain(words)]
    own = (f"dshpc-{each.words[0]}" for each in commands if each.panel != PANEL)
    lines += [".SH SEE ALSO", ", ".join(f"\\fB{_plain(name)}\\fR(1)" for name in own)]
    return "\n".join([*lines, ""])


def _page(command: manual.Command) -> str:
    return "\n".join(
        [*_head("-".join(("dshpc", *command.words)), command.help), *_body(command), ""]
    )


def _head(name: str, about: str) -> list[str]:
    return [
        f'.TH "{_plain(name).upper()}" 1 "" "dsHPC setup"',
        ".SH NAME",
        f"{_plain(name)} \\- {_plain(about.partition(chr(10))[0].rstrip('.'))}",
        ".SH SYNOPSIS",
    ]


def _body(command: manual.Command, *, below: bool = False) -> Iterator[str]:
    yield f"{_bold(command.name)} {_plain(command.usage.removeprefix(command.name).strip())}"
    if not below:
        yield ".SH DESCRIPTION"
    yield from ([".PP"] if below else [])
    yield _plain(command.help)
    for typed, says in command.arguments:
        yield from (".TP", f"\\fI{_plain(typed)}\\fR", _plain(says))
    if command.options and not below:
        yield ".SH OPTIONS"
    for option in command.options:
        names = ", ".join(f"\\fB{_plain(name)}\\fR" for name in option.names)
        yield from (".TP", f"{names} \\fI{_plain(option.takes)}\\fR", _plain(option.help))
    if command.examples:
        yield from (
            ".PP" if below else ".SH EXAMPLES",
            ".nf",
            *map(_plain, command.examples),
            ".fi",
        )
    for each in command.commands:
        yield f'.SH "{_plain(each.name)}"'
        yield from _body(each, below=True)


def _bold(text: str) -> str:
    return f"\\fB{_plain(text)}\\fR"


def _plain(text: str) -> str:
    """One line that roff prints as it is."""
    words = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{words}" if words[:1] in (".", "'") else words
