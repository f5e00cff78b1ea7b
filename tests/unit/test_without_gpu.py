"""No GPU can be used: an error with a page to look up where one was asked for, else notes."""

from __future__ import annotations

import pytest

from dshpc_setup import without_gpu
from dshpc_setup.fixes import Fix
from dshpc_setup.handover import Handover
from dshpc_setup.passthrough import Attempt, Passthrough
from dshpc_setup.settings import load

NOTHING = Handover("none")
TOOLKIT = Attempt(
    "cdi", "fails", "the toolkit is not installed", "DSH-DK-007", fix=(Fix("Install it", "apt x"),)
)
UNKNOWN = Attempt("cdi", "fails", "the test saw no GPU")


@pytest.mark.parametrize("flags", [{"gpu": "nvidia"}, {"gpu": "amd"}, {"devices": "0"}])
@pytest.mark.parametrize(
    ("rows", "finding"),
    [((TOOLKIT,), "DSH-DK-007"), ((UNKNOWN,), "DSH-PT-001"), ((), "DSH-GP-001")],
)
def test_one_was_asked_for(
    flags: dict[str, str | None], rows: tuple[Attempt, ...], finding: str
) -> None:
    error = without_gpu.refusal(load(flags=flags), Passthrough(NOTHING, "No GPU was found.", rows))
    assert error is not None
    assert error.resolution[-1] == f"More about it: dshpc explain {finding}"
    assert ("Install it: apt x" in error.resolution) is (rows == (TOOLKIT,))
    assert error.details.startswith("No GPU was found." if not rows else "CDI: ")


@pytest.mark.parametrize("gpu", ["auto", "none"])
def test_none_was_asked_for(gpu: str) -> None:
    settings = load(flags={"gpu": gpu})
    assert without_gpu.refusal(settings, Passthrough(NOTHING, "", (TOOLKIT,))) is None


def test_one_that_works_is_neither_refused_nor_noted() -> None:
    works = Passthrough(Handover("cdi"), "It works.")
    assert without_gpu.refusal(load(flags={"gpu": "nvidia"}), works) is None
    assert without_gpu.notes(works) == ()


def test_notes_are_steps_where_something_can_be_mended() -> None:
    assert without_gpu.notes(Passthrough(NOTHING, "No GPU was found.")) == (
        "CPU only: No GPU was found.",
    )
    assert without_gpu.notes(Passthrough(NOTHING, "", (TOOLKIT,))) == (
        "CPU only, until that is mended:",
        "1. Install it: apt x",
        "2. Then run this again.",
    )
