from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dshpc_setup.passthrough import findings
from dshpc_setup.passthrough.causes import RULES, of_refusal
from dshpc_setup.passthrough.handover import MECHANISMS, Mechanism
from tests.unit.passthrough.refusals import CASES, MACHINES, Case

MECHANISM = st.sampled_from(MECHANISMS)
MACHINE = st.sampled_from(sorted(MACHINES))
KNOWN = tuple(case for case in CASES if case.finding and "not permitted" not in case.text)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_refusal_is_named(case: Case) -> None:
    cause = of_refusal(case.text, case.mechanism, MACHINES[case.on])
    assert (cause and cause.finding) == case.finding
    if cause is not None:
        assert cause.says
        assert not cause.says.endswith(".")
        assert "{" not in cause.says
        assert "  " not in cause.says
    if case.command is not None:
        assert cause is not None
        assert case.command in [step.command for step in cause.fix]


def test_every_rule_has_a_title_and_a_case_that_it_decides() -> None:
    decided = set()
    for case in CASES:
        facts = MACHINES[case.on]
        decided.add(
            next((rule for rule in RULES if rule.cause(case.text, facts, case.mechanism)), None)
        )
    for rule in RULES:
        assert rule.finding in findings.TITLES
        assert rule in decided, f"no case for {rule.finding}: {rule.says}"


def test_every_id_has_one_name_and_a_title() -> None:
    named = {
        name: value
        for name, value in vars(findings).items()
        if isinstance(value, str) and re.fullmatch(r"DSH-[A-Z]{2}-\d{3}", value)
    }
    assert len(set(named.values())) == len(named)
    assert set(named.values()) == set(findings.TITLES)
    assert all(
        0 < len(title) <= 72 and not title.endswith(".") for title in findings.TITLES.values()
    )


def test_what_was_seen_stands_in_the_sentence() -> None:
    text = next(case.text for case in CASES if "libEGL_nvidia.so.590" in case.text)
    cause = of_refusal(text, "cdi", MACHINES["spec"])
    assert cause is not None
    assert "/usr/lib/libEGL_nvidia.so.590.48.01, which" in cause.says


def test_braces_in_a_text_are_only_characters() -> None:
    text = "nvidia-container-cli: device error: {0}{x}: unknown device"
    cause = of_refusal(text, "device-request", MACHINES["in-force"])
    assert cause is not None
    assert cause.says == "a GPU was asked for that is not there: {0}{x}"


@given(st.text(), MECHANISM, MACHINE)
def test_any_text_is_taken(text: str, mechanism: Mechanism, machine: str) -> None:
    cause = of_refusal(text, mechanism, MACHINES[machine])
    assert cause is None or cause.finding in findings.TITLES


@given(
    st.sampled_from(KNOWN),
    st.text(st.characters(codec="utf-8"), max_size=200),
    st.text(st.characters(codec="utf-8"), max_size=200),
)
def test_a_known_text_is_found_among_other_lines(case: Case, before: str, after: str) -> None:
    text = f"{before}\n{case.text}\n{after}"
    cause = of_refusal(text, case.mechanism, MACHINES[case.on])
    assert cause is not None
    assert cause.finding == case.finding


# Words of the rules in any order and number: what makes a careless pattern slow.
_PIECES = st.sampled_from(
    ["/dev/", "nvidia", '"', "\\", "error mounting ", " no such file", "unresolvable CDI devices ", "a.com/",
     "exec: ", "stat ", ": ", "sh", "operation not permitted", "unsatisfied condition: ", " ", "\n", "x" * 50,
     "could not select device driver ", "nvidia-container-cli: ", "fork/exec ", "cannot stat "]
)  # fmt: skip


@pytest.mark.timeout(120)  # a pattern that goes back and forth would take hours
@settings(max_examples=40, deadline=None)
@given(st.lists(_PIECES, min_size=1, max_size=4), MACHINE)
def test_no_text_holds_it_up(pieces: list[str], machine: str) -> None:
    text = "".join(pieces) * (20_000 // len("".join(pieces)))
    cause = of_refusal(text, "cdi", MACHINES[machine])
    assert cause is None or cause.finding in (None, *findings.TITLES)
