"""No GPU can be used: an error with a page to look up where one was asked for, else notes."""

from __future__ import annotations

import pytest

from dshpc_setup.errors import Fix
from dshpc_setup.facts import HostFacts
from dshpc_setup.passthrough import Attempt, Passthrough
from dshpc_setup.passthrough.handover import Handover
from dshpc_setup.plan import ClusterPlan
from dshpc_setup.settings import load
from dshpc_setup.setup import without_gpu
from tests.unit.diagnose.known import known

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


def test_notes_are_steps_where_something_can_be_fixed() -> None:
    assert without_gpu.notes(Passthrough(NOTHING, "No GPU was found.")) == (
        "CPU only: No GPU was found.",
    )
    assert without_gpu.notes(Passthrough(NOTHING, "", (TOOLKIT,))) == (
        "Running CPU-only. To enable GPUs:",
        "1. Install it: apt x",
        "2. Then run this again.",
    )


# -- a plan without GPUs: the cause is doctor's, with its steps --------------------------------------


def planned(name: str) -> tuple[HostFacts, ClusterPlan]:
    here = known(name)
    assert here.plan is not None
    return here.facts, here.plan


@pytest.mark.parametrize(
    ("name", "finding", "command"),
    [
        ("workstation-rtx4090-no-driver", "DSH-NV-062", "sudo nvidia-modprobe -c=0 -u"),
        ("workstation-rtx4090-nouveau", "DSH-NV-002", "sudo ubuntu-drivers install"),
        ("a100x2-version-mismatch", "DSH-NV-001", "sudo reboot"),
        ("nvidia-smi-without-a-card", "DSH-GP-004", "dshpc detect --explain"),
        ("mi300x-no-kfd", "DSH-AM-039", "sudo dmesg | grep -i kfd"),
        ("arc-b580-no-driver", "DSH-GP-020", "sudo modprobe -a i915 xe"),
    ],
)
def test_a_card_that_cannot_be_used_has_steps(name: str, finding: str, command: str) -> None:
    facts, plan = planned(name)
    proof = Passthrough(NOTHING, "why")
    root = without_gpu.cause(facts, plan, load())
    assert root is not None
    assert root.id == finding
    told = without_gpu.notes(proof, root)
    assert told[1] == "Running CPU-only. To enable GPUs:"
    assert told[2].startswith("1. ")
    assert any(command in line for line in told)
    assert told[-1].endswith(". Then run this again.")
    vendor = {"DSH-AM-039": "amd", "DSH-GP-020": "intel"}.get(finding, "nvidia")
    settings = load(flags={"gpu": vendor})
    error = without_gpu.refusal(settings, proof, without_gpu.cause(facts, plan, settings))
    assert error is not None
    assert command in " ".join(error.resolution)
    assert error.resolution[-1].endswith(finding)


def test_another_vendors_cause_is_none_of_what_was_asked_for() -> None:
    settings = load(flags={"gpu": "nvidia"})
    for name in ("mi300x-no-kfd", "arc-b580-no-driver", "vm-no-gpu"):
        assert without_gpu.cause(*planned(name), settings) is None
    error = without_gpu.refusal(settings, Passthrough(NOTHING, "there is none"))
    assert error is not None
    assert error.resolution[0] == "Or continue without a GPU: --gpu none.", "nothing to do before"


@pytest.mark.parametrize(
    "name", ["vm-no-gpu", "macos-arm", "h100x2-one-vfio", "container-none-handed-over"]
)
def test_where_nothing_is_wrong_there_is_nothing_to_fix(name: str) -> None:
    facts, plan = planned(name)
    assert plan.gres or without_gpu.cause(facts, plan, load()) is None
