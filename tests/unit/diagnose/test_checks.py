"""The rules of doctor, from made-up facts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dshpc_setup import diagnose
from dshpc_setup.diagnose import CheckInput, Finding
from dshpc_setup.diagnose.model import Check, Verdict
from dshpc_setup.errors import Exit, Fix
from dshpc_setup.facts import (
    Because,
    Compose,
    Cpu,
    Disagreement,
    Engine,
    GpuDevice,
    Gpus,
    HostFacts,
    Memory,
    Platform,
)
from dshpc_setup.observed.cluster_status import ClusterStatus
from dshpc_setup.observed.model import Observed
from dshpc_setup.passthrough import Attempt, Passthrough, proof_key
from dshpc_setup.passthrough.handover import Handover
from dshpc_setup.plan import plan_cluster
from dshpc_setup.settings import Settings
from dshpc_setup.slurm.nodes import Node

GPU = GpuDevice(0, "nvidia", name="T4", slurm_type="t4", device_files=("/dev/nvidia0",))
ENGINE = Engine("present", server_version="28.0", host="unix:///run/docker.sock",
                compose=Compose("2.26.1", ("docker", "compose")))  # fmt: skip
FACTS = HostFacts(
    Platform("linux"), Cpu(4), Memory(8000, 7000), Gpus("present", (GPU,)), ENGINE
)  # fmt: skip
PLAN = plan_cluster(FACTS, Settings())
PROOF = Passthrough(Handover("devices"), "Proven.", key=proof_key(FACTS, PLAN, True))
NODE = Node("p", "idle", None, {"gpu:t4": 1}, {})
CLUSTER = ClusterStatus("/p", "p-slurm", "running", "healthy", phase="ready", nodes=(NODE,),
                        isolation="default")  # fmt: skip
WELL = CheckInput(FACTS, plan=PLAN, proof=PROOF, observed=Observed(cluster=CLUSTER))


def found(known: CheckInput, identity: str) -> Finding:
    (finding,) = (each for each in diagnose.diagnose(known) if each.id == identity)
    return finding


def test_all_is_well() -> None:
    findings = diagnose.diagnose(WELL)
    assert {each.state for each in findings} == {"ok", "info", "skipped"}
    assert diagnose.exit_code(findings) == Exit.OK
    sections = [each.section for each in findings]
    assert sections == sorted(sections, key=sections.index), "each section stands together"


def test_every_check_has_its_finding() -> None:
    for known in (WELL, CheckInput(replace(FACTS, engine=Engine("absent"), gpus=Gpus("absent")))):
        for finding, check in zip(diagnose.diagnose(known), diagnose.catalogue(), strict=True):
            assert (finding.id, finding.section) == (check.id, check.section)


def test_a_check_that_crashes_takes_no_other_along() -> None:
    def crash(known: CheckInput) -> Verdict:
        raise KeyError("x")

    checks = (Check("X-1", "host", "t", "f", crash), *diagnose.catalogue())
    findings = diagnose.diagnose(WELL, checks)
    assert (findings[0].state, findings[1].state) == ("crashed", "ok")
    assert diagnose.exit_code(findings) == Exit.INCOMPLETE


def test_what_needs_a_fault_is_skipped_with_all_that_needs_it() -> None:
    """The last of the chain was not looked at either, and it is the first that is to be repaired."""

    def never(known: CheckInput) -> Verdict:
        raise AssertionError("what it needs was not looked at")

    chain = (
        Check("X-3", "host", "t", "f", never, needs=("X-2",)),
        Check("X-2", "host", "t", "f", never, needs=("X-1",)),
        Check("X-1", "host", "t", "f", lambda _: Verdict("error", "It is broken.")),
    )
    findings = diagnose.diagnose(WELL, chain)
    assert [(each.state, each.blocked_by) for each in findings] == [
        ("skipped", "X-1"),
        ("skipped", "X-1"),
        ("error", None),
    ]


@pytest.mark.parametrize("state", ["absent", "timeout", "error"])
def test_a_dead_endpoint_is_named(state: Any) -> None:
    facts = replace(FACTS, engine=Engine(state, detail="Connection refused"))
    finding = found(replace(WELL, facts=facts, endpoint="tcp://gone:2375"), "DSH-DK-001")
    assert finding.state == "error"
    assert "tcp://gone:2375" in finding.cause
    assert "not installed" not in finding.cause
    assert all(fix.command != "configure-environment" for fix in finding.fix)


def test_again_is_said_only_of_what_was_set_up() -> None:
    facts = replace(FACTS, engine=Engine("absent"))
    first = found(CheckInput(facts), "DSH-DK-001")
    assert [fix.text for fix in first.fix] == [
        "Set it up",
        "Or run the cluster without Docker and without root",
    ]
    again = found(CheckInput(facts, observed=Observed(cluster=CLUSTER)), "DSH-DK-001")
    assert [fix.text for fix in again.fix] == ["Set it up again"]
    assert found(CheckInput(FACTS), "DSH-SL-001").fix[0].text == "Set it up"


def test_a_proof_counts_only_for_the_machine_it_was_made_on() -> None:
    assert found(WELL, "DSH-PT-001").state == "ok"
    others = (
        replace(WELL, facts=replace(FACTS, engine=replace(ENGINE, server_version="29.0"))),
        replace(WELL, whole=False),
        replace(WELL, plan=None),
        replace(WELL, proof=replace(PROOF, key="")),
    )
    for known in others:
        finding = found(known, "DSH-PT-001")
        assert finding.state == "warn"
        assert "before the machine" in finding.cause


def test_a_proof_that_failed_is_an_error() -> None:
    fix = Fix("Register it", "nvidia-ctk runtime configure")
    rows = (
        Attempt("cdi", "impossible", "no specification", "DSH-DK-016"),
        Attempt("runtime", "fails", "it is not registered", "DSH-DK-009", fix=(fix,)),
    )
    failed = replace(PROOF, handover=Handover("none"), reason="no runtime", attempts=rows)
    finding = found(replace(WELL, proof=failed), "DSH-PT-001")
    assert finding.state == "error"
    assert finding.cause == "No container gets the GPUs: it is not registered (DSH-DK-009)."
    assert finding.evidence == (
        "CDI: no specification (DSH-DK-016)",
        "the nvidia runtime: it is not registered (DSH-DK-009)",
    )
    assert finding.fix[0] == fix


def test_gpus_that_are_not_to_be_used_need_no_proof() -> None:
    plan = plan_cluster(FACTS, Settings(gpu="none"))
    known = replace(WELL, plan=plan, proof=replace(PROOF, key="old"))
    assert found(known, "DSH-PT-001").state == "info"


@pytest.mark.parametrize(
    ("cluster", "state", "word"),
    [
        (None, "info", "No cluster is set up"),
        (replace(CLUSTER, state="missing"), "error", "does not exist"),
        (replace(CLUSTER, state="exited"), "error", "has exited"),
        (replace(CLUSTER, state="unknown", problem="It is of /b."), "error", "cannot be asked"),
    ],
)
def test_the_container(cluster: ClusterStatus | None, state: str, word: str) -> None:
    known = replace(WELL, observed=Observed(cluster=cluster))
    finding = found(known, "DSH-SL-001")
    assert finding.state == state
    assert word in finding.cause
    for identity in ("DSH-SL-002", "DSH-FI-001"):
        assert found(known, identity).blocked_by == "DSH-SL-001"


FAILURE = {"brief": "No key.", "details": "empty", "resolution": ["Remove it."]}


@pytest.mark.parametrize(
    ("change", "state", "word"),
    [
        ({"failure": FAILURE, "phase": "failed", "nodes": ()}, "error", "No key."),
        ({"problem": "sinfo: timeout", "nodes": ()}, "error", "sinfo: timeout"),
        ({"phase": "starting: key", "nodes": ()}, "warn", "starting: key"),
        ({"nodes": (replace(NODE, state="drained", reason="a | b"),)}, "error", "a | b"),
        ({"nodes": (replace(NODE, state="idle*"),)}, "error", "idle*"),
        ({"nodes": (replace(NODE, state="completing"),)}, "ok", "completing"),
    ],
)
def test_the_node(change: dict[str, Any], state: str, word: str) -> None:
    finding = found(
        replace(WELL, observed=Observed(cluster=replace(CLUSTER, **change))), "DSH-SL-002"
    )
    assert finding.state == state
    assert word in " ".join(finding.evidence)


def test_the_isolation_in_force() -> None:
    finding = found(WELL, "DSH-SL-003")
    assert finding.state == "info"
    assert "by environment variable" in finding.cause
    enforced = replace(WELL, observed=Observed(cluster=replace(CLUSTER, isolation="enforced")))
    assert found(enforced, "DSH-SL-003").state == "ok"
    none = replace(
        WELL, observed=Observed(cluster=replace(CLUSTER, nodes=(replace(NODE, gres_total={}),)))
    )
    assert found(none, "DSH-SL-003").state == "skipped"


def test_a_refused_configuration_is_an_error_in_its_own_words() -> None:
    known = replace(WELL, observed=Observed(cluster=replace(CLUSTER, kept_last_good=FAILURE)))
    finding = found(known, "DSH-FI-001")
    assert (finding.state, finding.evidence) == ("error", ("No key.", "empty"))
    assert [fix.text for fix in finding.fix] == ["Remove it."]
    assert diagnose.exit_code(diagnose.diagnose(known)) == Exit.ERROR


def test_a_linux_driver_inside_wsl_is_warned_of() -> None:
    layers = (
        Because("/usr/lib/wsl/lib", "libcuda.so.1"),
        Because("the Linux system", "has its own"),
    )
    told = Disagreement("NVIDIA driver in WSL", layers, "remove it", "DSH-NV-031")
    gpus = Gpus("present", (GPU,), disagreements=(told,))
    finding = found(replace(WELL, facts=replace(FACTS, gpus=gpus)), "DSH-NV-031")
    assert (finding.state, finding.section) == ("warn", "driver")
    assert "the Linux system: has its own" in finding.evidence
    assert any("wsl --shutdown" in (fix.command or "") for fix in finding.fix)
    assert found(WELL, "DSH-NV-031").state == "ok"


@pytest.mark.parametrize(
    ("vendor", "version", "state"),
    [
        ("nvidia", "460.91.03", "warn"),
        ("nvidia", "470.256.02", "ok"),
        ("nvidia", None, "ok"),
        ("amd", "6.10.5", "skipped"),
    ],
)
def test_a_driver_that_is_too_old(vendor: Any, version: str | None, state: str) -> None:
    gpu = replace(GPU, vendor=vendor, driver_version=version)
    gpus = Gpus("present", (gpu,), driver_version=version)
    finding = found(replace(WELL, facts=replace(FACTS, gpus=gpus)), "DSH-NV-049")
    assert finding.state == state
    assert bool(finding.fix) == (state == "warn")


@pytest.mark.parametrize(("version", "state"), [("390.157", "warn"), ("6.10.5", "skipped")])
def test_the_age_of_a_driver_that_lists_no_gpu(version: str, state: str) -> None:
    facts = replace(FACTS, gpus=Gpus("error", driver_version=version, detail="no library"))
    assert found(CheckInput(facts), "DSH-NV-049").state == state
