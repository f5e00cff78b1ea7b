"""The isolation tiers: rights in the compose file, refusals, and what Slurm is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import (
    Compose,
    Cpu,
    Engine,
    GpuDevice,
    Gpus,
    HostFacts,
    Memory,
    MigInstance,
    Platform,
)
from dshpc_setup.passthrough.handover import Handover
from dshpc_setup.passthrough.model import Passthrough
from dshpc_setup.plan import ClusterPlan, plan_cluster
from dshpc_setup.render import seccomp
from dshpc_setup.render.configuration import render_slurm
from dshpc_setup.render.isolation import Rights, refusal, rights
from dshpc_setup.render.stanza import compose_file, compose_text, profile_file
from dshpc_setup.settings import Settings, load

SECCOMP = "name=seccomp,profile=builtin"
ENGINE = Engine("present", rootless=False, cgroup_driver="systemd", security_options=(SECCOMP,))
TWO = (
    GpuDevice(0, "nvidia", device_files=("/dev/nvidia0",)),
    GpuDevice(1, "nvidia", device_files=("/dev/nvidia1",)),
)


def facts_of(*devices: GpuDevice, simulated: bool = False, engine: Engine = ENGINE) -> HostFacts:
    return HostFacts(
        Platform("linux"),
        Cpu(2, usable=2),
        Memory(8000, 8000),
        Gpus("present" if devices else "absent", devices, simulated=simulated),
        engine,
    )


def plan_of(facts: HostFacts, **settings: Any) -> ClusterPlan:
    return plan_cluster(facts, Settings(isolation="enforced", **settings))


def service(engine: Engine, at: str = "/home/ada/lab", **flags: str) -> dict[str, Any]:
    facts = facts_of(engine=engine)
    none = Passthrough(Handover("none"), "No GPU was found.")
    text = compose_text(
        Path(at), load(flags=flags), facts, plan_of(facts), none, "dshpc:none", None
    )
    found = yaml.safe_load(text)["services"]["slurm"]
    assert isinstance(found, dict)
    return found


# --- rights ------------------------------------------------------------------------------------


@pytest.mark.parametrize("security", [(SECCOMP,), (SECCOMP, "name=apparmor", "name=selinux")])
def test_the_default_tier_gets_no_right(security: tuple[str, ...]) -> None:
    assert rights("default", replace(ENGINE, security_options=security)) == Rights()


def test_enforced_needs_one_capability_and_a_profile_of_ours() -> None:
    found = rights("enforced", ENGINE)
    assert (found.cap_add, found.security_opt) == (("SYS_ADMIN",), ())
    assert found.seccomp == seccomp.profile(None)
    assert rights("enforced", ENGINE, profiling=True).seccomp == seccomp.profile(
        None, profiling=True
    )


def test_an_engine_without_seccomp_is_given_no_profile() -> None:
    assert rights("enforced", replace(ENGINE, security_options=())) == Rights(("SYS_ADMIN",))


@pytest.mark.parametrize(
    ("said", "option"),
    [("name=apparmor", "apparmor=unconfined"), ("name=selinux", "label=disable")],
)
def test_what_keeps_a_container_from_its_groups_is_opened_where_it_is_in_force(
    said: str, option: str
) -> None:
    engine = replace(ENGINE, security_options=(said, SECCOMP))
    assert rights("enforced", engine).security_opt == (option,)


def test_the_service_of_an_enforced_cluster() -> None:
    engine = replace(ENGINE, security_options=("name=apparmor", SECCOMP))
    before, now = service(engine), service(engine, isolation="enforced")
    assert now["cap_add"] == [*before["cap_add"], "SYS_ADMIN"]
    name = seccomp.file_name(seccomp.profile(None))
    assert now["security_opt"] == [
        "no-new-privileges:true",
        "apparmor=unconfined",
        f"seccomp=/home/ada/lab/.dshpc/{name}",
    ]
    assert now["environment"]["DSHPC_ISOLATION"] == "enforced"
    for one in (before, now):
        for key in ("cap_add", "security_opt", "environment", "labels"):
            del one[key]
    assert now == before  # no privileged mode, no mount, no namespace of the host


def test_a_path_that_compose_would_cut_is_given_from_the_folder_of_the_file() -> None:
    """At "=": its value would be a file that is not there, and no container starts."""
    (option,) = service(ENGINE, at="/srv/a=b", isolation="enforced")["security_opt"][1:]
    assert option == f"seccomp=.dshpc/{seccomp.file_name(seccomp.profile(None))}"


def test_profiling_does_not_open_what_the_tier_closes() -> None:
    """Its "seccomp=unconfined" gave every job of a user all capabilities in a namespace."""
    facts = facts_of(GpuDevice(0, "amd", device_files=("/dev/kfd", "/dev/dri/renderD128")))
    devices = Handover("devices", devices=("/dev/kfd:/dev/kfd",))
    settings = load(flags={"isolation": "enforced", "amd_profiling": "yes"})
    file = compose_file(
        Path("/lab"), settings, facts, plan_of(facts), Passthrough(devices, "Proven."), "dshpc:amd", None
    )  # fmt: skip
    options = (*file.rights.security_opt, *file.gpu.security_opt)
    assert [each for each in options if each.startswith("seccomp")] == [
        f"seccomp=/lab/{profile_file(seccomp.profile(None, profiling=True))}"
    ]
    assert "unconfined" not in "".join(file.gpu_comment)
    assert "SYS_PTRACE" in file.gpu.cap_add


def test_the_service_of_a_default_cluster_has_the_rights_of_always() -> None:
    found = service(replace(ENGINE, security_options=("name=apparmor", SECCOMP)))
    assert found["cap_add"] == ["CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID"]
    assert found["security_opt"] == ["no-new-privileges:true"]


# --- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "word"),
    [
        (replace(ENGINE, rootless=True), "rootless"),
        (replace(ENGINE, security_options=(SECCOMP, "name=userns")), "userns-remap"),
        (replace(ENGINE, cgroup_driver="none"), "cgroup driver is none"),
    ],
)
def test_engines_that_cannot(engine: Engine, word: str) -> None:
    facts = facts_of(*TWO, engine=engine)
    refused = refusal(engine, plan_of(facts))
    assert refused is not None
    assert word in refused.details
    assert refused.resolution[-1] == "Or keep the default tier: dshpc config set isolation default"


@pytest.mark.parametrize(
    "engine",
    [
        ENGINE,
        replace(ENGINE, rootless=None, cgroup_driver=None, security_options=()),
        replace(ENGINE, cgroup_driver="cgroupfs", cgroup_version=1),
        replace(ENGINE, kind="desktop"),
        replace(ENGINE, compose=Compose("1.29.2", ("docker-compose",))),
        replace(ENGINE, security_options=("name=cgroupns", SECCOMP)),
    ],
)
def test_engines_that_can_or_that_only_a_start_can_tell(engine: Engine) -> None:
    assert refusal(engine, plan_of(facts_of(*TWO, engine=engine))) is None


def test_gpus_behind_one_device_file() -> None:
    both = tuple(replace(gpu, device_files=("/dev/dxg",)) for gpu in TWO)
    refused = refusal(ENGINE, plan_of(facts_of(*both)))
    assert refused is not None
    assert "2 GPUs stand behind one device file (/dev/dxg)" in refused.details
    assert refused.resolution[0] == "Use one of them: dshpc config set devices 0"
    assert refusal(ENGINE, plan_of(facts_of(*both), devices=("0",))) is None  # as it advises


def test_instances_of_one_card_have_nodes_of_their_own() -> None:
    def instance(number: int) -> MigInstance:
        files = ("/dev/nvidia0", f"/dev/nvidia-caps/nvidia-cap{number}")
        return MigInstance("1g.10gb", f"MIG-{number}", device_files=files)

    card = replace(TWO[0], mig_mode="enabled", mig=(instance(12), instance(21)))
    assert refusal(ENGINE, plan_of(facts_of(card))) is None


def test_simulated_gpus_are_names_of_dev_null() -> None:
    refused = refusal(ENGINE, plan_of(facts_of(*TWO, simulated=True)))
    assert refused is not None
    assert "/dev/null" in refused.details
    assert refusal(ENGINE, plan_of(facts_of(simulated=True))) is None


def test_a_refusal_comes_before_a_compose_file() -> None:
    with pytest.raises(DshpcError, match="isolation = enforced cannot be kept"):
        service(replace(ENGINE, rootless=True), isolation="enforced")
    assert service(replace(ENGINE, rootless=True))  # the default tier asks for nothing


# --- what Slurm is told ------------------------------------------------------------------------


def lines(text: str) -> dict[str, str]:
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line and line[0] != "#")
    return dict(pairs)


def test_slurm_of_the_default_tier_touches_no_control_group() -> None:
    texts = render_slurm(plan_cluster(facts_of(*TWO), Settings()))
    slurm = lines(texts["slurm.conf"])
    assert slurm["ProctrackType"] == "proctrack/linuxproc"
    assert slurm["TaskPlugin"] == "task/none"
    assert slurm["JobAcctGatherType"] == "jobacct_gather/linux"
    assert lines(texts["cgroup.conf"]) == {"CgroupPlugin": "disabled"}


def test_slurm_of_the_enforced_tier_constrains_all_three() -> None:
    texts = render_slurm(plan_of(facts_of(*TWO)))
    slurm, cgroup = lines(texts["slurm.conf"]), lines(texts["cgroup.conf"])
    assert slurm["ProctrackType"] == "proctrack/cgroup"
    assert slurm["TaskPlugin"] == "task/cgroup"
    assert slurm["JobAcctGatherType"] == "jobacct_gather/cgroup"
    assert cgroup["CgroupPlugin"] == "autodetect"
    assert cgroup["IgnoreSystemd"] == "no"
    for name in ("Devices", "Cores", "RAMSpace", "SwapSpace"):
        assert cgroup[f"Constrain{name}"] == "yes"


# --- images ------------------------------------------------------------------------------------


def test_jobs_in_images_need_two_namespaces_and_a_capability() -> None:
    engine = replace(ENGINE, security_options=("name=apparmor", SECCOMP))
    found = service(engine, containers="on")
    assert found["cap_add"][-2:] == ["SETUID", "SETFCAP"]
    name = seccomp.file_name(seccomp.for_images())
    assert found["security_opt"] == [
        "no-new-privileges:true",
        "apparmor=unconfined",
        f"seccomp=/home/ada/lab/.dshpc/{name}",
    ]
    own = rights("default", replace(ENGINE, kind="builtin"))
    assert own == Rights(("SETFCAP",)), "its own filter lets jobs into images"


def test_images_and_enforced_exclude_each_other() -> None:
    with pytest.raises(DshpcError, match="exclude each other"):
        service(ENGINE, containers="on", isolation="enforced")
