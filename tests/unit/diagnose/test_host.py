"""The machine's own checks: where each fires, where it must not, and in which words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dshpc_setup.diagnose import CheckInput, Finding, diagnose
from dshpc_setup.diagnose.host import CHECKS
from dshpc_setup.facts import Evidence
from dshpc_setup.settings import Settings, WrongSetting, read
from tests.unit.diagnose.known import findings, known
from tests.unit.diagnose.tables import Tables

W = "workstation-rtx4090"
FIRES = {
    "DSH-HO-001": ("wsl1", "wsl2-engine-inside"),
    "DSH-HO-008": (f"{W}/host-project-full", f"{W}/host-project-small"),
    "DSH-HO-009": (f"{W}/host-tmp-full", f"{W}/host-tmp-small"),
    "DSH-HO-012": (f"{W}/host-unknown-setting", f"{W}/files-unknown-setting"),
    "DSH-HO-013": ("vm-pci-denied", "engine-garbage"),
}
"""Id -> a machine where it must fire, and its near miss."""

NOTES = {
    "DSH-HO-001": ("macos-arm", "wsl2-engine-inside"),
    "DSH-HO-004": ("macos-arm-desktop-limits", "desktop-linux-whole"),
    "DSH-HO-010": ("container-none-handed-over", "container-hosts-docker"),
    "DSH-HO-011": ("selinux-enforcing", "selinux-permissive"),
}
"""The same for what is worth knowing only."""

MORE = {
    ("DSH-HO-002", W): "ok",
    ("DSH-HO-003", "macos-arm-colima"): "ok",
    ("DSH-HO-004", "container-cgroup-v2-limits"): "info",
    ("DSH-HO-004", "container-cgroup-v2-no-limits"): "ok",
    ("DSH-HO-005", "gb10-unified-memory"): "ok",
    ("DSH-HO-006", "wsl1"): "skipped",
    ("DSH-HO-006", "nano-old-nodes"): "ok",
    ("DSH-HO-007", "vm-rootless-docker"): "skipped",
    ("DSH-HO-008", f"{W}/host-no-inodes"): "warn",
    ("DSH-HO-008", f"{W}/host-work-full"): "warn",
    ("DSH-HO-008", W): "skipped",
    ("DSH-HO-009", f"{W}/healthy"): "skipped",
    ("DSH-HO-011", "vm-kvm-guest"): "skipped",
    ("DSH-HO-013", "workstation-rtx4090-nvml-hangs"): "warn",
    ("DSH-HO-013", "vm-docker-denied"): "ok",
    ("DSH-HO-013", "workstation-rtx4090-no-driver"): "ok",
}

WORDS = {
    ("DSH-HO-001", "wsl1"): "wsl --set-version NAME 2",
    ("DSH-HO-001", "macos-arm"): "CPU only",
    ("DSH-HO-004", "macos-arm-desktop-limits"): "Settings, Resources, Memory",
    ("DSH-HO-004", "container-cgroup-v2-limits"): "control group",
    ("DSH-HO-008", f"{W}/host-project-full"): "300 of 200000 MiB free",
    ("DSH-HO-008", f"{W}/host-no-inodes"): "inodes are used up",
    ("DSH-HO-008", f"{W}/host-work-full"): "/scratch: 3 of 200000 MiB free",
    ("DSH-HO-009", f"{W}/host-tmp-full"): "/tmp is nearly full",
    ("DSH-HO-010", "container-none-handed-over"): "reaches no Docker engine",
    ("DSH-HO-012", f"{W}/host-unknown-setting"): "env | grep DSHPC_",
    ("DSH-HO-013", "workstation-rtx4090-nvml-hangs"): "no answer within 10.0 s",
    ("DSH-HO-013", "rocm-smi-hangs"): "dshpc detect --deadline",
}


def found(about: CheckInput, identity: str) -> Finding:
    return next(finding for finding in diagnose(about, CHECKS) if finding.id == identity)


class TestHost(Tables):
    checks = CHECKS
    fires = FIRES
    notes = NOTES
    states = MORE
    words = WORDS


def changed(part: str, **fields: Any) -> CheckInput:
    """The workstation with other facts."""
    here = known(W)
    new = replace(getattr(here.facts, part), **fields)
    return replace(here, facts=replace(here.facts, **{part: new}))


@pytest.mark.parametrize(
    ("identity", "part", "fields", "state"),
    [
        ("DSH-HO-002", "memory", {"limit_mib": 1024}, "warn"),
        ("DSH-HO-002", "memory", {"limit_mib": 1200}, "ok"),
        ("DSH-HO-003", "cpu", {"usable": 1, "limited_by": "cgroup quota"}, "info"),
        ("DSH-HO-003", "cpu", {"usable": 2}, "ok"),
        ("DSH-HO-003", "cpu", {"usable": None}, "skipped"),
        ("DSH-HO-004", "memory", {"limit_mib": 32767, "limited_by": "cgroup"}, "info"),
        ("DSH-HO-004", "memory", {"limit_mib": 32768, "limited_by": "cgroup"}, "ok"),
        ("DSH-HO-004", "memory", {"total_mib": None}, "skipped"),
        ("DSH-HO-005", "engine", {"arch": "ppc64le"}, "info"),
        ("DSH-HO-005", "engine", {"arch": "arm64"}, "ok"),
        ("DSH-HO-006", "platform", {"kernel": "3.10.0-1160.el7.x86_64"}, "info"),
        ("DSH-HO-006", "platform", {"kernel": "4.0.9"}, "ok"),
        ("DSH-HO-006", "platform", {"kernel": None}, "skipped"),
        ("DSH-HO-006", "engine", {"cgroup_version": 1}, "ok"),
    ],
)
def test_of_other_facts(identity: str, part: str, fields: dict[str, Any], state: str) -> None:
    finding = found(changed(part, **fields), identity)
    assert finding.state == state
    assert state == "ok" or finding.cause.endswith(".")


ENFORCED = Settings(isolation="enforced")


def test_the_tier_enforced_on_an_engine_that_cannot_keep_it() -> None:
    finding = found(known("vm-rootless-docker", ENFORCED), "DSH-HO-007")
    assert (finding.state, finding.title) == ("error", CHECKS[6].fault_title)
    assert "rootless" in finding.cause
    assert [fix.command for fix in finding.fix] == [
        "docker context use default", "dshpc config set isolation default",
    ]  # fmt: skip
    assert found(known("vm-kvm-guest", ENFORCED), "DSH-HO-007").state == "ok"
    assert found(known("vm-no-docker", ENFORCED), "DSH-HO-007").state == "skipped"


def test_the_tier_enforced_with_control_groups_of_version_1() -> None:
    here = known(W, ENFORCED)
    old = replace(
        here, facts=replace(here.facts, engine=replace(here.facts.engine, cgroup_version=1))
    )
    assert "version 1" in found(old, "DSH-HO-006").cause
    assert found(here, "DSH-HO-006").state == "ok"


def wrong_settings(*wrong: WrongSetting) -> dict[str, Finding]:
    """The findings of a machine without GPUs where these settings are wrong."""
    here = known("vm-no-gpu")
    there = replace(here, observed=replace(here.observed, settings_wrong=wrong))
    return {finding.id: finding for finding in diagnose(there)}


def test_each_wrong_setting_is_told_once_with_its_own_command() -> None:
    in_file = read(yaml_text="work: x\nisolation: enforce\ngpuu: amd\n")
    outside = read(env={"DSHPC_LOG_SIZE": "big"}, remembered={"shm_size": "2"})
    found = wrong_settings(*in_file.wrong, *outside.wrong)
    file, other = found["DSH-FI-011"], found["DSH-HO-012"]
    assert [line.split(": ")[0] for line in file.evidence if not line.startswith(" ")] == [
        "dshpc.yaml:2:1",
        "dshpc.yaml:3:1",
    ]
    assert [fix.command for fix in file.fix][:2] == [
        "dshpc config unset gpuu",
        "dshpc config unset isolation",
    ]
    assert [fix.command for fix in other.fix] == [
        "env | grep DSHPC_",
        "unset DSHPC_LOG_SIZE",
        "dshpc config unset shm_size",
    ]


def test_only_the_file_is_blamed_for_what_stands_in_it() -> None:
    found = wrong_settings(*read(yaml_text="isolation: enforce\ngpu_sharing: shard:1\n").wrong)
    assert found["DSH-FI-011"].state == "error"
    assert found["DSH-HO-012"].state == "ok"
    assert found["DSH-GP-001"].state == "info", "these say nothing of which GPUs there are to be"


@pytest.mark.parametrize("text", ["simulate: h200x\n", "gpu: voodoo\n", "simulat: mig\n", "gpu: ["])
def test_a_choice_of_gpus_that_is_unread_is_not_taken_for_none(text: str) -> None:
    found = wrong_settings(*read(yaml_text=text).wrong)
    assert found["DSH-FI-011"].state == "error"
    assert found["DSH-GP-001"].state == "skipped"


def test_what_did_not_answer_is_folded_under_what_explains_it() -> None:
    assert findings("workstation-rtx4090-nvml-hangs")["DSH-HO-013"].caused_by == "DSH-NV-022"
    assert findings("a100x2-nvml-denied")["DSH-HO-013"].caused_by == "DSH-NV-003"
    assert findings("rocm-smi-hangs")["DSH-HO-013"].caused_by == "DSH-GP-001"
    assert findings("vm-docker-denied")["DSH-HO-013"].state == "ok", "DSH-DK-074 says it"
    late = findings("engine-never-answers")["DSH-HO-013"]
    assert (late.state, late.title) == ("ok", "Every other question got an answer")
    assert findings("vm-no-gpu")["DSH-HO-013"].title == "Every question got an answer"


def test_a_late_answer_of_no_section() -> None:
    here = known("vm-no-gpu")
    late = Evidence("drm", "timeout", "/sys/class/drm", 9600.0)
    facts = replace(here.facts, evidence=(*here.facts.evidence, late))
    finding = found(replace(here, facts=facts), "DSH-HO-013")
    assert (finding.state, finding.caused_by) == ("warn", None)
    assert finding.evidence == ("drm: no answer in time",)


def test_a_container_with_an_engine_is_not_called_the_machine_itself() -> None:
    told = findings("container-hosts-docker")["DSH-HO-010"]
    assert told.state == "ok"
    assert told.title == "This runs in a container that reaches a Docker engine"
