"""Several commands in one `docker exec`: what is asked, and whose each answer is."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.checkup.batched import Run, answers, asked_together, script
from dshpc_setup.machine import CommandResult

_WORDS = st.lists(st.text(st.characters(exclude_characters="\0"), max_size=6), min_size=1)
_TEXT = st.text(st.characters(exclude_characters="\x1c\x1d"), max_size=8)


def result(stdout: str, state: Any = "present", code: int | None = 0) -> CommandResult:
    return CommandResult(("docker",), state, code, stdout, "", 1.0)


def ask(run: Run) -> None:
    """Two commands, the second where the first went well."""
    if run(("docker", "exec", "c", "first"), deadline_s=1).ok:
        run(("docker", "exec", "c", "second", "a b"), deadline_s=1)


class Engine:
    """Answers the one call, and whatever comes after it."""

    def __init__(self, answer: CommandResult) -> None:
        self.answer = answer
        self.ran: list[tuple[str, ...]] = []

    def run(self, argv: Sequence[str], **_: Any) -> CommandResult:
        self.ran.append(tuple(argv))
        return self.answer if argv[3] == "sh" else result("by itself")


def test_each_command_has_its_own_answer() -> None:
    engine = Engine(result("one\n\x1d0\x1d\x1ctwo\x1d3\x1dno such thing\x1c"))
    run = asked_together(engine.run, "c", ask, 4.0)
    first = run(("docker", "exec", "c", "first"), deadline_s=1)
    second = run(("docker", "exec", "c", "second", "a b"), deadline_s=1)
    assert (first.stdout, first.code) == ("one\n", 0)
    assert (second.stdout, second.code, second.stderr) == ("two", 3, "no such thing")
    ((*_, told),) = engine.ran
    assert "{ first; }" in told
    assert "{ second 'a b'; }" in told


def test_what_was_not_asked_together_is_asked_by_itself() -> None:
    engine = Engine(result("one\x1d1\x1dno\x1c"))
    run = asked_together(engine.run, "c", ask, 4.0)
    assert run(("docker", "exec", "c", "first"), deadline_s=1).code == 1
    for other in (("second", "a b"), ("third",)):
        assert run(("docker", "exec", "c", *other), deadline_s=1).stdout == "by itself"


def test_a_quicker_command_answers_for_another() -> None:
    engine = Engine(result("one\x1d0\x1d\x1ctwo\x1d0\x1d\x1c"))
    instead: dict[tuple[str, ...], Sequence[str]] = {("first",): ("cat", "report")}
    run = asked_together(engine.run, "c", ask, 4.0, instead=instead)
    assert run(("docker", "exec", "c", "first"), deadline_s=1).stdout == "one"
    assert run(("docker", "exec", "c", "second", "a b"), deadline_s=1).stdout == "two"
    ((*_, told),) = engine.ran
    assert "{ cat report; }" in told
    assert "first" not in told


@pytest.mark.parametrize(("state", "code"), [("timeout", None), ("present", 1), ("absent", None)])
def test_what_came_before_a_bad_end_is_kept(state: Any, code: int | None) -> None:
    first, last = answers(result("one\x1d0\x1d\x1ctw", state, code))
    assert (first.stdout, first.ok) == ("one", True)
    assert (last.stdout, last.state, last.code) == ("tw", state, code)


@given(st.lists(st.tuples(_TEXT, st.integers(0, 255), _TEXT), max_size=4))
def test_answers_are_read_back(given: list[tuple[str, int, str]]) -> None:
    told = "".join(f"{out}\x1d{code}\x1d{err}\x1c" for out, code, err in given)
    assert [(each.stdout, each.code, each.stderr) for each in answers(result(told))] == given


@given(st.text(max_size=30))
def test_any_answer_is_read(text: str) -> None:
    assert all(each.state == "present" for each in answers(result(text)))


@given(st.lists(_WORDS, max_size=3))
def test_words_stay_words(commands: list[list[str]]) -> None:
    text = script(commands)
    for command in commands:
        assert f"{{ {shlex.join(command)}; }} 2>&1" in text
