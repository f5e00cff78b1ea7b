"""What is asked of a container one after the other, in one call: each takes a tenth of a second.

The commands are those that the asking itself runs, found by a rehearsal; what the one call did not
answer is asked by itself.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dshpc_setup.engine_client import DOCKER
from dshpc_setup.machine import CommandResult

_CODE, _NEXT = "\x1d", "\x1c"
# Its stdout goes out at once; then its exit code and its stderr. What fails ends it, as the asking does
_ONE = (
    "{{ said=$({{ {command}; }} 2>&1 1>&3 3>&-); code=$?; }} 3>&1; "
    'printf "\\035%s\\035%s\\034" "$code" "$said"; [ "$code" = 0 ] || exit 0'
)

Run = Callable[..., CommandResult]


def asked_together(
    run: Run,
    container: str,
    ask: Callable[[Run], object],
    deadline_s: float,
    *,
    instead: Mapping[tuple[str, ...], Sequence[str]] | None = None,
) -> Run:
    """A `run` that has the answers to what `ask` would run in the container, in its order.

    `instead`: commands -> quicker ones with the same answer, which are run for them.
    """
    commands = _rehearsed(run, container, ask)
    quick = [(instead or {}).get(command, command) for command in commands]
    asked = run(DOCKER.run_in(container, "sh", "-c", script(quick)), deadline_s=deadline_s)
    told = {
        tuple(DOCKER.run_in(container, *command)): each
        for command, each in zip(commands, answers(asked), strict=False)
    }

    def answered(argv: Sequence[str], **more: Any) -> CommandResult:
        return told.get(tuple(argv)) or run(argv, **more)

    return answered


def _rehearsed(
    run: Run, container: str, ask: Callable[[Run], object]
) -> tuple[tuple[str, ...], ...]:
    """What is asked of a container in which all is well; only the engine is really asked."""
    noted: list[tuple[str, ...]] = []

    def rehearse(argv: Sequence[str], **more: Any) -> CommandResult:
        within = DOCKER.within(argv)
        if within is None or within[0] != container:
            return run(argv, **more)
        noted.append(tuple(within[1]))
        return CommandResult(tuple(argv), "present", 0, '{"ready": true}', "", 0.0)

    ask(rehearse)
    return tuple(noted)


def script(commands: Sequence[Sequence[str]]) -> str:
    """For sh: each command, then its exit code and what it said on stderr."""
    return "\n".join(_ONE.format(command=shlex.join(command)) for command in commands)


def answers(asked: CommandResult) -> tuple[CommandResult, ...]:
    """How each command ended; the last one as the whole did, where that had no good end."""
    *whole, rest = asked.stdout.split(_NEXT)
    found = tuple(filter(None, (_answer(asked, text) for text in whole)))
    if asked.ok:
        return found
    return (
        *found,
        CommandResult(asked.argv, asked.state, asked.code, rest, asked.stderr, asked.ms),
    )


def _answer(asked: CommandResult, text: str) -> CommandResult | None:
    stdout, _, rest = text.partition(_CODE)
    code, _, stderr = rest.partition(_CODE)
    if not code.isdecimal():
        return None
    return CommandResult(asked.argv, "present", int(code), stdout, stderr, asked.ms)
