"""Which mechanism is taken, when no more are tried, and what a proof is kept for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dshpc_setup import passthrough
from dshpc_setup.facts import CdiSpec, HostFacts, MigInstance, Platform, Toolkit
from dshpc_setup.machine import CommandResult
from dshpc_setup.passthrough import Bench, Passthrough, findings
from dshpc_setup.passthrough.handover import MECHANISMS, Handover, Mechanism
from dshpc_setup.passthrough.image import enforces
from dshpc_setup.plan import ClusterPlan
from tests.unit.passthrough.docker import NOTHING_LEFT, Docker
from tests.unit.passthrough.made import (
    COMMON,
    CUT,
    LIBRARIES,
    PARTS,
    TIMEOUT,
    amd,
    card,
    ended,
    facts,
    inside,
    on,
    planned,
    seen,
    told,
    two_cards_spec,
    uuid,
)

TWO = facts(card(0), card(1))
PLAN = planned(TWO)
SPEC = two_cards_spec()
ALL_WAYS = on(TWO, cdi_devices=told(SPEC), cdi_specs=(SPEC,), runtimes=("nvidia", "runc"))
ERROR = "docker: Error response from daemon: "
NO_DRIVER = ended(
    125, "", f'{ERROR}could not select device driver "" with capabilities: [[gpu]].'
)  # fmt: skip
STALE = ended(
    127, "", f"{ERROR}CDI device injection failed: failed to inject devices: failed to stat CDI host device "
    '"/dev/nvidia2": no such file or directory',
)  # fmt: skip


def prove(machine: Docker, found: HostFacts = TWO, **more: Any) -> Passthrough:
    return passthrough.prove(machine, found, planned(found), Bench("base"), **more)  # type: ignore[arg-type]


def states(proof: Passthrough) -> list[str]:
    return [row.state for row in proof.attempts]


def test_the_first_mechanism_that_shows_all_gpus_is_taken() -> None:
    machine = Docker(ended(0, seen(0, 1)))
    proof = prove(machine)
    assert (proof.handover.mechanism, proof.works, proof.failures) == ("device-request", True, ())
    assert proof.reason == "Proven by a test container: 2 GPUs by a device request (--gpus)."
    assert states(proof) == ["impossible", "works", "impossible", "impossible"]
    (call,) = machine.calls
    assert call[:3] == ("docker", "run", "--rm")
    assert call[call.index("--gpus") + 1] == "all"


def test_cdi_is_tried_first_and_every_failure_is_kept() -> None:
    machine = Docker(STALE, NOTHING_LEFT, NO_DRIVER, NOTHING_LEFT, ended(0, seen(0, 1)))
    proof = prove(machine, ALL_WAYS)
    assert proof.handover.mechanism == "runtime"
    assert [row.finding for row in proof.failures] == [
        findings.STALE_CDI_SPEC,
        findings.NOT_RESTARTED,
    ]
    assert "failed to stat CDI host device" in proof.attempts[0].evidence[0]
    assert proof.to_fix is None


def test_what_comes_after_the_first_that_works_is_not_tried() -> None:
    machine = Docker(ended(0, seen(0, 1)))
    proof = prove(machine, ALL_WAYS)
    assert states(proof) == ["works", "untested", "untested", "impossible"]
    assert proof.attempts[1].reason == "it was not tested: CDI works"
    assert proof.attempts[1].handover is not None


def test_every_mechanism_is_tried_where_all_are_asked_for_and_the_best_is_taken() -> None:
    machine = Docker(STALE, NOTHING_LEFT, ended(0, seen(0, 1)), ended(0, seen(0, 1)))
    proof = prove(machine, ALL_WAYS, every=True)
    assert states(proof) == ["fails", "works", "works", "impossible"]
    assert proof.handover.mechanism == "device-request"


def test_after_a_hang_no_other_container_is_started() -> None:
    machine = Docker(TIMEOUT, ended(0))
    proof = prove(machine, ALL_WAYS, every=True)
    assert states(proof) == ["fails", "untested", "untested", "impossible"]
    assert proof.attempts[1].reason == "it was not tested: the test of CDI hung"
    assert not proof.works
    assert proof.reason.startswith("CDI: the test container did not end within")
    assert len(machine.started) == 1


def test_where_none_works_the_cause_worth_fixing_is_the_reason() -> None:
    machine = Docker(ended(125, "", "something new"), NOTHING_LEFT, NO_DRIVER, NOTHING_LEFT,
                     ended(125, "", "something else"), NOTHING_LEFT)  # fmt: skip
    proof = prove(machine, ALL_WAYS)
    assert proof.to_fix is proof.attempts[1]
    assert proof.reason.startswith("a device request (--gpus): the NVIDIA Container Toolkit")
    assert proof.reason.endswith(".")
    assert (proof.handover, proof.works) == (Handover("none"), False)


def test_an_engine_elsewhere_is_said_once_and_nothing_is_started() -> None:
    proof = prove(Docker(), on(TWO, kind="remote", host="ssh://far"))
    assert proof.reason == (
        "the engine at ssh://far runs on another machine, which does not have these GPUs."
    )


@pytest.mark.parametrize(
    ("result", "word"),
    [
        (ended(0, inside()), "none of the 2 GPUs"),
        (ended(0, seen(0)), "1 of 2 GPUs"),
        (ended(0, seen(0, 1).replace("open /dev/nvidia1 -", "closed /dev/nvidia1 - sh: Permission denied")),
         "may not open /dev/nvidia1"),
        (ended(0, seen(0, 1, uuids=None).replace("end\n", "listing 6\nsays No devices were found\nend\n")),
         "No devices were found"),
        (ended(0, seen(0, 1, uuids=(uuid(0),))), uuid(1)),
        (TIMEOUT, "did not end within"),
        (ended(125, "", "something new"), "something new"),
        (ended(1), "without a word"),
        (ended(0), "said nothing"),
    ],
)  # fmt: skip
def test_what_is_no_proof(result: CommandResult, word: str) -> None:
    proof = prove(Docker(result, *([NOTHING_LEFT] if result.code != 0 else [result])))
    assert not proof.works
    assert word in proof.reason


def test_a_mig_instance_is_proven_by_its_capability_nodes_and_its_uuid() -> None:
    found = facts(CUT)
    plan = planned(found, devices="MIG-b")
    said = inside(*PARTS[1].device_files, *COMMON, libraries=LIBRARIES, uuids=(uuid(0), "MIG-b"))
    machine = Docker(ended(0, said))
    proof = passthrough.prove(machine, found, plan, Bench("base"), whole=False)  # type: ignore[arg-type]
    assert proof.works
    (call,) = machine.calls
    nodes = call[call.index("sh") + 1 : len(call) - 1 - call[::-1].index("--")]
    assert nodes == (*PARTS[1].device_files, *COMMON)  # what the container is asked for


def test_the_hosts_numbers_are_compared() -> None:
    other = seen(0, 1).replace("open /dev/nvidia1 -", "open /dev/nvidia1 195:9")
    proof = prove(Docker(ended(0, other), NOTHING_LEFT, numbers={"/dev/nvidia1": (195, 1)}))
    assert proof.attempts[1].finding == findings.OTHER_GPUS
    assert prove(Docker(ended(0, other))).works  # not known here: nothing to compare


def test_an_engine_that_has_more_gpus_is_asked_for_ours_by_name() -> None:
    """In a container or a job that was given some of the machine's GPUs, "all" is too many."""
    more = ended(0, seen(0, 1, uuids=(uuid(0), uuid(1), uuid(7))))
    machine = Docker(more, ended(0, seen(0, 1)))
    proof = prove(machine)
    assert proof.works
    assert proof.handover.ids == (uuid(0), uuid(1))
    assert proof.key == passthrough.proof_key(TWO, PLAN, True)  # as the next run looks for it


def test_where_names_do_not_help_either_the_first_answer_stands() -> None:
    more = ended(0, seen(0, 1, uuids=(uuid(0), uuid(1), uuid(7))))
    proof = prove(Docker(more, TIMEOUT, NOTHING_LEFT))
    assert proof.to_fix is not None
    assert proof.to_fix.finding == findings.MORE_GPUS


# -- the image's wishes -----------------------------------------------------------------------------


def test_an_image_that_wants_a_newer_cuda_is_not_started() -> None:
    bench = Bench("pytorch:1", environment={"NVIDIA_REQUIRE_CUDA": "cuda>=13.0"})
    proof = passthrough.prove(Docker(), TWO, PLAN, bench)  # type: ignore[arg-type]
    assert states(proof) == ["impossible", "fails", "impossible", "impossible"]
    assert proof.attempts[1].finding == findings.IMAGE_TOO_NEW
    assert "the image needs CUDA 13.0, and the driver 550.163.01 offers CUDA 12.4" in proof.reason


def test_a_cdi_device_does_not_look_at_requirements_within_the_major_version() -> None:
    bench = Bench("pytorch:1", environment={"NVIDIA_REQUIRE_CUDA": "cuda>=12.9"})
    machine = Docker(ended(0, seen(0, 1)))
    proof = passthrough.prove(machine, ALL_WAYS, PLAN, bench, every=True)  # type: ignore[arg-type]
    assert states(proof) == ["works", "fails", "fails", "impossible"]
    assert [row.finding for row in proof.attempts[1:3]] == [findings.IMAGE_TOO_NEW] * 2
    assert [cause.finding for cause in proof.warnings] == [findings.IMAGE_TOO_NEW]
    assert "compiled at run time" in proof.warnings[0].says


@pytest.mark.parametrize(
    ("version", "mode", "docker", "enforced"),
    [
        ("1.17.8", None, "28.5.2", ("device-request", "runtime")),
        ("1.17.8", "auto", "28.5.2", ("device-request", "runtime")),
        ("1.17.8", "cdi", "28.5.2", ("device-request",)),
        ("1.18.0", "auto", "28.5.2", ("device-request",)),  # the runtime goes by CDI
        ("1.18.0", "legacy", "28.5.2", ("device-request", "runtime")),
        ("1.18.0", "csv", "28.5.2", ("device-request", "runtime")),
        ("1.17.8", None, "29.2.0", ("runtime",)),  # --gpus goes by CDI
        (None, None, "28.5.2", ("device-request",)),  # not known: the engine says it itself
        ("without ctk", None, "28.5.2", ("device-request", "runtime")),  # older than 1.10
    ],
)
def test_which_mechanisms_refuse_an_image(
    version: str | None, mode: str | None, docker: str, enforced: tuple[Mechanism, ...]
) -> None:
    ctk = None if version == "without ctk" else "/usr/bin/nvidia-ctk"
    known = version if ctk else None
    toolkit = Toolkit("nvidia", "present", known, mode=mode, ctk=ctk)
    found = on(TWO, server_version=docker, toolkits=(toolkit,))
    assert tuple(each for each in MECHANISMS if enforces(found, each)) == enforced


def test_a_newer_major_version_of_cuda_is_not_started_by_cdi_either() -> None:
    bench = Bench("pytorch:1", environment={"CUDA_VERSION": "13.0.1"})
    consumer = facts(card(0, name="NVIDIA GeForce RTX 4090"))
    found = on(consumer, cdi_devices=told(SPEC), cdi_specs=(SPEC,))
    proof = passthrough.prove(Docker(), found, planned(found), bench)  # type: ignore[arg-type]
    assert states(proof)[:2] == ["fails", "fails"]
    assert proof.attempts[0].finding == findings.NO_FORWARD_COMPATIBILITY


def test_a_wish_that_may_yet_be_met_is_a_warning() -> None:
    bench = Bench("old:1", environment={"NVIDIA_DRIVER_CAPABILITIES": "utility"})
    machine = Docker(ended(0, seen(0, 1)))
    proof = passthrough.prove(machine, TWO, PLAN, bench)  # type: ignore[arg-type]
    assert proof.works
    assert [cause.finding for cause in proof.warnings] == [findings.NO_COMPUTE_CAPABILITY]
    assert prove(Docker(ended(0, seen(0, 1)))).warnings == ()


# -- nothing to test, and not tested ----------------------------------------------------------------


def test_simulated_gpus_need_no_test() -> None:
    plan = replace(PLAN, simulated=True)
    proof = passthrough.without_test(plan, ("/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia9"))
    assert proof is not None
    assert proof.handover == Handover(
        "simulated", devices=("/dev/null:/dev/nvidia0", "/dev/null:/dev/nvidia1")
    )
    assert passthrough.without_test(PLAN, ()) is None


def test_no_gpu_needs_none_either() -> None:
    none = passthrough.without_test(planned(facts()), ())
    assert none is not None
    assert (none.works, none.attempts) == (False, ())
    assert none.reason


def test_untested_is_the_best_that_may_be_had() -> None:
    unproven = passthrough.untested(ALL_WAYS, PLAN, True, "Not tested: why.")
    assert (unproven.handover.mechanism, unproven.reason) == ("cdi", "Not tested: why.")
    assert unproven.key == ""  # no proof of anything
    far = passthrough.untested(on(TWO, kind="remote"), PLAN, True, "Not tested: why.")
    assert far.handover == Handover("none")
    assert "runs on another machine" in far.reason  # the true one


# -- what a proof is kept for -----------------------------------------------------------------------


def test_a_proof_is_kept_for_the_same_machine() -> None:
    proof = prove(Docker(ended(0, seen(0, 1))))
    assert Passthrough.from_json(proof.to_json()) == proof
    assert proof.key == passthrough.proof_key(TWO, PLAN, True)
    assert proof.user == (0, 0)  # whose jobs it was made for


def test_the_order_in_which_an_engine_lists_things_does_not_count() -> None:
    def key(found: HostFacts) -> str:
        return passthrough.proof_key(found, PLAN, True)

    one, other = CdiSpec("/etc/cdi/a.yaml", "present"), CdiSpec("/etc/cdi/b.yaml", "present")
    lists: dict[str, tuple[Any, ...]] = {
        "runtimes": ("a", "b"),
        "cdi_devices": ("x", "y"),
        "cdi_specs": (one, other),
        "toolkits": (Toolkit("nvidia", "present"), Toolkit("amd", "absent")),
    }
    backwards = {name: value[::-1] for name, value in lists.items()}
    assert key(on(TWO, **lists)) == key(on(TWO, **backwards))


OTHERS: dict[str, tuple[HostFacts, ClusterPlan, bool]] = {
    "engine": (on(TWO, server_version="29.0"), PLAN, True),
    "restarted": (on(TWO, newer=("/usr/bin/nvidia-container-runtime-hook",)), PLAN, True),
    "runtimes": (on(TWO, runtimes=("nvidia",)), PLAN, True),
    "names": (on(TWO, cdi_devices=("nvidia.com/gpu=all",)), PLAN, True),
    "specification": (on(TWO, cdi_specs=(two_cards_spec(driver_version="535.54.03"),)), PLAN, True),
    "toolkit": (on(TWO, toolkits=(Toolkit("nvidia", "present", "1.99"),)), PLAN, True),
    "driver": (replace(TWO, gpus=replace(TWO.gpus, driver_version="560.1")), PLAN, True),
    "selinux": (replace(TWO, platform=replace(TWO.platform, selinux="enforcing")), PLAN, True),
    "platform": (replace(TWO, platform=Platform("wsl2")), PLAN, True),
    "selection": (TWO, planned(TWO, devices="0"), False),
    "whole": (TWO, PLAN, False),
    "groups": (TWO, planned(facts(card(0, group_ids=(44,)), card(1))), True),
    "instances": (
        TWO,
        planned(facts(card(0, mig_mode="enabled", mig=(MigInstance("1g", "M", 1, ("/dev/x",)),)), card(1))),
        True,
    ),
    "vendor": (facts(amd(0)), planned(facts(amd(0))), True),
}  # fmt: skip


@pytest.mark.parametrize("what", sorted(OTHERS))
def test_another_machine_needs_another_proof(what: str) -> None:
    assert passthrough.proof_key(*OTHERS[what]) != passthrough.proof_key(TWO, PLAN, True)
