"""What the checks of one section are tried with: rows in tables, and one set of tests for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from dshpc_setup.diagnose import Finding
from dshpc_setup.diagnose.model import Check
from tests.unit.diagnose.known import findings


def text(finding: Finding) -> str:
    """All that a user may read of it."""
    steps = (f"{fix.text} {fix.command}" for fix in finding.fix)
    return "\n".join((finding.title, finding.cause, *finding.evidence, *steps))


class Tables:
    """A subclass `Test...` names the tables. A machine is "NAME" or "NAME/CASE" of tests/machines."""

    checks: Sequence[Check]
    before = ""
    """What each name in the tables begins with."""
    fires: Mapping[str, tuple[str, str]]
    """Id -> a machine where it must fire, and its near miss."""
    notes: Mapping[str, tuple[str, str]]
    """The same for what is worth knowing only."""
    states: Mapping[tuple[str, str], str]
    """(id, machine) -> state; "blocked" where it is skipped because of another finding."""
    words: Mapping[tuple[str, str], str]
    """(id, machine) -> words that must stand in what is told."""

    def told(self, name: str, identity: str) -> Finding:
        return findings(self.before + name)[identity]

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        rows: dict[str, tuple[str | tuple[str, str], Any]] = {
            "test_it_fires_here_and_not_there": ("identity", self.fires),
            "test_it_is_worth_knowing_here_and_not_there": ("identity", self.notes),
            "test_its_state": (("identity", "name"), self.states),
            "test_its_words": (("identity", "name"), self.words),
        }
        if metafunc.function.__name__ in rows:
            metafunc.parametrize(*rows[metafunc.function.__name__])

    def test_it_fires_here_and_not_there(self, identity: str) -> None:
        there, near_miss = self.fires[identity]
        finding = self.told(there, identity)
        assert finding.state in ("warn", "error")
        titles = {check.id: check.fault_title for check in self.checks}
        assert finding.title == titles[identity]
        assert finding.cause.endswith(".")
        assert finding.evidence
        assert finding.fix
        other = self.told(near_miss, identity)
        assert other.state in ("ok", "info", "skipped")
        assert other.title != finding.title
        assert other.blocked_by is None

    def test_it_is_worth_knowing_here_and_not_there(self, identity: str) -> None:
        there, near_miss = self.notes[identity]
        assert self.told(there, identity).state == "info"
        assert self.told(there, identity).cause.endswith(".")
        assert self.told(near_miss, identity).state in ("ok", "skipped")

    def test_its_state(self, identity: str, name: str) -> None:
        finding = self.told(name, identity)
        state = "blocked" if finding.blocked_by else finding.state
        assert state == self.states[identity, name]

    def test_its_words(self, identity: str, name: str) -> None:
        assert self.words[identity, name] in text(self.told(name, identity))
