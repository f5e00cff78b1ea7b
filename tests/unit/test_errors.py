"""Errors as people read them: without the names of our classes."""

from __future__ import annotations

from dshpc_setup.diagnose import diagnose
from dshpc_setup.diagnose.model import Check, CheckInput, Verdict
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import Say, workers
from tests.unit.diagnose.known import known

ERROR = DshpcError("The file cannot be read.", "permission denied")
WORDS = "The file cannot be read. permission denied"


def _raises(_: object) -> Verdict:
    raise ERROR


def test_a_check_that_ends_with_an_error_of_ours() -> None:
    healthy: CheckInput = known("workstation-rtx4090/healthy")
    (found,) = diagnose(healthy, (Check("DSH-FI-001", "files", "x", "y", _raises),))
    assert (found.state, found.evidence) == ("crashed", (WORDS,))


def test_a_question_that_ends_with_an_error() -> None:
    def asks(_: Say) -> None:
        raise ERROR

    def breaks(_: Say) -> None:
        raise KeyError("x")

    said = workers.in_place({"ours": asks, "other": breaks})
    assert (said["ours"].detail, said["other"].detail) == (WORDS, "KeyError: 'x'")
