"""What is told of a program that gave no answer in time: that, and never that something is missing."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from dshpc_setup.engine_client import DOCKER
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.machine import CommandResult

_SHOWN = 3  # words of a command line that name it
_LONGEST_SHOWN = 60  # of one: a script is none

AGAIN = (
    "See what keeps this machine busy: uptime",
    "Then run this again: what is done already is not done twice.",
)


def answered(done: CommandResult, unknown: str) -> CommandResult:
    """The result of a question that was answered; raises where its deadline passed first.

    `unknown`: what is not known without the answer, as a clause ("which packages there are").
    """
    if done.state == "timeout":
        raise no_answer(done, unknown)
    return done


def no_answer(done: CommandResult, unknown: str) -> DshpcError:
    """The error for a question that got no answer in time."""
    return DshpcError(
        f"{in_words(done)}.",
        f"It is not known {unknown}: the machine is very busy, or the program hangs.",
        AGAIN,
        Exit.INCOMPLETE,
    )


def in_words(done: CommandResult, name: str = "") -> str:
    """ "docker compose version did not answer within 120 s", by the time that it really had.

    `name`: what to call it where its words do not tell.
    """
    words = done.argv
    if name:
        shown = name
    elif within := DOCKER.within(words):
        shown = f"{_first(within[1])} in {within[0]}"
    else:
        shown = _first(words)
    return f"{shown} did not answer within {max(1, round(done.ms / 1000))} s"


def _first(words: Sequence[str]) -> str:
    return " ".join(takewhile(lambda word: len(word) <= _LONGEST_SHOWN, words[:_SHOWN]))
