"""Users who are others on the machine that joins are named."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import cast

import pytest

from dshpc_setup.container.joining import KEY_SCHEMA
from dshpc_setup.join import same_users
from dshpc_setup.machine import CommandResult, Machine

USERS = "4711:4711::ada\n1000:1000:/home/bob:bob\n"


class Here:
    """A machine with these lines in its user database."""

    def __init__(self, *lines: str, code: int = 0, error: str = "") -> None:
        self.lines, self.code, self.error = lines, code, error
        self.asked: list[Sequence[str]] = []

    def run(self, argv: Sequence[str], **_: object) -> CommandResult:
        self.asked.append(argv)
        text = "".join(f"{line}\n" for line in self.lines)
        return CommandResult(tuple(argv), "present", self.code, text, self.error, 1.0)


def told(here: Here, users: str = USERS) -> tuple[str, ...]:
    given = json.dumps({"schema": KEY_SCHEMA, "key": "aa", "users": users})
    return same_users.words(cast(Machine, here), given, "lab2")


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ((), ()),
        (("ada:x:4711:1::/:/bin/sh", "bob:x:1000:1000::/home/bob:"), ()),
        (("ada:x:1005:1::/:",), ("has the number 4711 in the cluster, and on lab2 the number 1005:",)),
        (("eve:x:4711:1::/:",), ("on lab2 4711 is eve:", "may read and change the files of eve")),
        (
            ("ada:x:1000:1::/:", "eve:x:4711:1::/:"),
            ("User ada", "the number 1000 and 4711 is eve", "User bob", "on lab2 1000 is ada"),
        ),
        (("ada:x:4711:1::/:", "also:x:4711:1::/:"), ()),  # the first is who a number is
        (("broken", "ada:x:no:1::/:"), ()),
    ],
    ids=["nobody", "same", "other-number", "other-name", "both", "second-name", "damaged"],
)  # fmt: skip
def test_each_conflict_is_told(lines: tuple[str, ...], words: tuple[str, ...]) -> None:
    here = Here(*lines, code=2)
    found = " ".join(told(here))
    assert all(word in found for word in words)
    assert bool(found) == bool(words)
    assert here.asked == [["getent", "passwd", "--", "4711", "ada", "1000", "bob"]]


def test_a_machine_that_does_not_say_is_no_machine_without_conflicts() -> None:
    (found,) = told(Here(code=1, error="sssd is away"))
    assert "is not known: getent says: sssd is away" in found


def test_without_users_nobody_is_asked_about() -> None:
    here = Here()
    assert told(here, "") == ()
    assert here.asked == []
