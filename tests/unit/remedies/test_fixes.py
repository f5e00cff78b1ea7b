"""The step of an error as text and command."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.remedies.fixes import Fix, of_step


@pytest.mark.parametrize(
    ("step", "text", "command"),
    [
        ("Start it: dshpc restart", "Start it", "dshpc restart"),
        ("See: docker logs a: b", "See", "docker logs a: b"),
        ("In /a: b, do it: configure-environment", "In /a: b, do it", "configure-environment"),
        (
            "Aside: mv a a.old && configure-environment",
            "Aside",
            "mv a a.old && configure-environment",
        ),
    ],
)
def test_a_step_with_a_command(step: str, text: str, command: str) -> None:
    assert of_step(step) == Fix(text, command)


@pytest.mark.parametrize(
    "step",
    [
        "",
        "Did you mean ReturnToService?",
        "dshpc restart",
        "Start it with its name: docker run --hostname x ...",
        "Correct it: the line is wrong",
        "Say: removed things",
    ],
)
def test_a_step_of_words(step: str) -> None:
    assert of_step(step) == Fix(step)


@given(st.text())
def test_no_word_is_lost(step: str) -> None:
    fix = of_step(step)
    assert step == (fix.text if fix.command is None else f"{fix.text}: {fix.command}")
