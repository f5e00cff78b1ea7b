"""The engine, its tools, the vendors' toolkits: where each check fires, and where it must not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dshpc_setup import remedies
from dshpc_setup.diagnose import CheckInput, Finding, catalogue, diagnose
from dshpc_setup.diagnose.engine import CHECKS
from dshpc_setup.engine import refusals
from dshpc_setup.facts import Compose, Engine, Evidence, Toolkit
from dshpc_setup.machine import Reply
from dshpc_setup.observed.model import Disk, Observed
from dshpc_setup.passthrough import Attempt, Cause, findings
from dshpc_setup.passthrough.handover import Handover
from dshpc_setup.probes.engine import ThisMachine, parse
from dshpc_setup.settings import Settings
from tests.unit.diagnose.known import FOLDER, known
from tests.unit.diagnose.proofs import after_test, beside, refused
from tests.unit.passthrough.made import card, facts

Case = str | CheckInput
RTX4090 = "workstation-rtx4090"
BY_ID = {check.id: check for check in catalogue()}


def on(name: str, **engine: Any) -> CheckInput:
    """A recorded machine with another engine."""
    told = known(name)
    return replace(told, facts=replace(told.facts, engine=replace(told.facts.engine, **engine)))


def forbidden() -> CheckInput:
    """An engine whose authorization plugin says no: its socket is open."""
    told = on("vm-docker-denied", detail="authorization denied by plugin opa: not allowed")
    seen = Evidence("engine", "denied", SOCKET, 1.0, told.facts.engine.detail, 403)
    return replace(told, facts=replace(told.facts, evidence=(*told.facts.evidence, seen)))


def disk(free_mib: int, free_inodes: int | None = None) -> CheckInput:
    seen = Disk("engine", "/var/lib/docker", free_mib, 100_000, free_inodes)
    return replace(known(RTX4090), observed=Observed(disks=(seen,)))


def client(*, there: bool) -> CheckInput:
    return replace(known(RTX4090), observed=Observed(docker_command=there))


def toolkit(**more: Any) -> tuple[Toolkit, ...]:
    (told,) = known("rtx4090-runtime-not-registered").facts.engine.toolkits
    return (replace(told, **more),)


def found(case: Case, identity: str) -> Finding:
    where = known(case) if isinstance(case, str) else case
    return next(each for each in diagnose(where) if each.id == identity)


UNTOLD = {"runtimes": ("runc",), "registered": (), "cdi_devices": (), "cdi_specs": ()}
PODMAN = {**UNTOLD, "kind": "podman", "server_version": "5.4.2"}
OLD_COMPOSE = Compose("1.27.4", ("docker-compose",))

FIRES: dict[str, tuple[Case, Case]] = {
    "DSH-DK-001": ("vm-no-docker", "vm-no-gpu"),
    "DSH-DK-002": ("container-hosts-docker", "compose-v1-only"),
    "DSH-DK-007": ("rtx4090-toolkit-missing", "rtx4090-toolkit-not-restarted"),
    "DSH-DK-008": ("rtx4090-toolkit-not-restarted", "rtx4090-toolkit-updated"),
    "DSH-DK-009": ("rtx4090-runtime-not-registered", "rtx4090-runtime-not-in-force"),
    "DSH-DK-010": (on(RTX4090, kind="snap", **UNTOLD), "vm-snap-docker"),
    "DSH-DK-011": ("rtx4090-rootless", "rtx4090-rootless-no-cgroups"),
    "DSH-DK-012": ("rtx4090-no-cgroups", "rtx4090-rootless-no-cgroups"),
    "DSH-DK-016": (on(RTX4090, **PODMAN), on(RTX4090, kind="podman", server_version="5.4.2")),
    "DSH-DK-017": ("rtx4090-cdi-old-driver", "rtx4090-cdi-old-replaced"),
    "DSH-DK-032": (refused("DSH-DK-032"), beside("DSH-DK-032")),
    "DSH-DK-033": ("wsl2-rancher-desktop", "wsl2-rtx3080"),
    "DSH-DK-034": (on(RTX4090, kind="remote", host="ssh://elsewhere"), "engine-remote-smaller"),
    "DSH-DK-035": (refused("DSH-DK-035"), beside("DSH-DK-035")),
    "DSH-DK-036": (
        on(RTX4090, composes=(OLD_COMPOSE,), compose=OLD_COMPOSE),
        on(RTX4090, compose=Compose("1.29.2", ("docker-compose",))),
    ),
    "DSH-DK-037": ("engine-api-too-old", "engine-garbage"),
    "DSH-DK-063": (
        on("rtx4090-runtime-not-registered", toolkits=toolkit(mode="cdi")),
        on("rtx4090-runtime-not-registered", toolkits=toolkit(mode="legacy")),
    ),
    "DSH-DK-074": ("vm-docker-denied", "vm-no-docker"),
    "DSH-DK-075": ("rtx4090-cdi-broken", "rtx4090-cdi-denied"),
    "DSH-DK-081": (disk(3000), disk(6000)),
    "DSH-DK-086": (client(there=False), client(there=True)),
    "DSH-DK-083": (on("vm-no-gpu", server_version="19.03.15"), on("vm-no-gpu", server_version="20.10.24")),
}  # fmt: skip

# What only a container tells, by the words of engines; those above are told by facts as well.
FIRES |= {
    check.id: (refused(check.id), beside(check.id))
    for check in CHECKS
    if check.id in findings.TITLES
    and check.id not in FIRES
    and check.id != findings.IMAGE_HIDES_GPUS
}

HIDES = Cause(
    findings.IMAGE_HIDES_GPUS,
    "the image sets NVIDIA_VISIBLE_DEVICES to 'void'",
    remedies.visible_devices(facts(card(0))),
)
WORKS = Attempt("cdi", "works", "the GPU was seen", handover=Handover("cdi"))
FIRES[findings.IMAGE_HIDES_GPUS] = (
    after_test(facts(card(0)), WORKS, warnings=(HIDES,)),
    after_test(facts(card(0)), WORKS, warnings=(replace(HIDES, finding=findings.IMAGE_TOO_NEW),)),
)

NOTES: dict[str, tuple[Case, Case]] = {
    "DSH-DK-060": ("a100x2", "h100-mig"),
    "DSH-DK-061": (on(RTX4090, server_version="24.0.9"), RTX4090),
    "DSH-DK-082": ("desktop-linux", "vm-no-gpu"),
    "DSH-DK-084": ("compose-v1-only", "compose-v1-and-v2"),
    "DSH-DK-085": ("compose-v1-only", on("compose-v1-only", server_version="20.10.24")),
}


@pytest.mark.parametrize("identity", FIRES)
def test_it_fires_here_and_not_beside(identity: str) -> None:
    where, near = FIRES[identity]
    told = found(where, identity)
    assert told.state in ("warn", "error"), told
    assert told.title
    assert told.cause.endswith(".")
    assert told.fix
    assert found(near, identity).state in ("ok", "info", "skipped")


@pytest.mark.parametrize("identity", NOTES)
def test_it_is_a_note_here_and_none_beside(identity: str) -> None:
    where, near = NOTES[identity]
    told = found(where, identity)
    assert (told.state, told.cause[-1]) == ("info", ".")
    assert told.title == BY_ID[identity].fault_title
    assert found(near, identity).state == "ok"


def test_every_check_has_a_row() -> None:
    assert {check.id for check in CHECKS} == {*FIRES, *NOTES}
    wanted = {identity for identity in findings.TITLES if "-DK-" in identity}
    assert wanted <= {check.id for check in CHECKS}


@pytest.mark.parametrize(
    ("identity", "words"),
    [
        ("DSH-DK-007", ("toolkit is missing", "not installed", "nvidia-container-toolkit")),
        ("DSH-DK-008", ("not restarted", "after Docker started", "systemctl restart docker")),
        ("DSH-DK-009", ("not registered", "runtime configure --runtime=docker")),
        ("DSH-DK-010", ("snap", "snap remove docker")),
        ("DSH-DK-011", ("rootless", "cdi generate", "no-cgroups=true")),
        ("DSH-DK-012", ("no-cgroups", "no-cgroups=false")),
        ("DSH-DK-017", ("out of date", "550.163.01", "570.124.06", "nvidia-ctk cdi generate")),
        ("DSH-DK-034", ("another machine", "ssh://elsewhere", "docker context use default")),
        ("DSH-DK-036", ("Compose is too old", "1.27.4", "1.28")),
        ("DSH-DK-037", ("API", "too old", "1.41")),
        ("DSH-DK-072", ("disk is full", "no space left on device", "docker system df")),
        ("DSH-DK-073", ("does not answer", "systemctl start docker")),
        ("DSH-DK-074", ("may not use", "Permission denied", "usermod -aG docker")),
        ("DSH-DK-081", ("nearly full", "2.9 of 97.7 GiB", "docker system df")),
        ("DSH-DK-083", ("too old", "19.03.15", "20.10")),
    ],
)
def test_the_words_that_people_search_for(identity: str, words: tuple[str, ...]) -> None:
    told = found(FIRES[identity][0], identity)
    steps = [f"{fix.text} {fix.command}" for fix in told.fix]
    text = " ".join([told.title, told.cause, *told.evidence, *steps])
    assert [word for word in words if word not in text] == []


# -- why no engine answers --------------------------------------------------------------------------

SOCKET = "unix:///var/run/docker.sock"


@pytest.mark.parametrize(
    ("case", "title", "step"),
    [
        ("vm-no-docker", "Docker is not installed, or stopped", "configure-environment"),
        ("engine-rootless-not-chosen", "The Docker engine is stopped", "docker context use rootless"),
        (on("vm-no-gpu", state="absent", host=SOCKET), "The Docker engine is stopped",
         "sudo systemctl start docker"),
        (on("wsl2-engine-inside", state="absent", host=SOCKET), "The Docker engine is stopped",
         "sudo service docker start"),
        ("macos-intel", "The Docker engine is stopped", "open -a Docker"),
        ("wsl1", "Docker cannot run in WSL 1", "wsl --set-version NAME 2"),
        ("vm-docker-denied", "This user may not use the Docker engine",
         'sudo usermod -aG docker "$USER"'),
        (on("wsl2-rtx3080", os_type="windows"), "The engine runs Windows containers",
         '& "$Env:ProgramFiles\\Docker\\Docker\\DockerCli.exe" -SwitchLinuxEngine'),
        (on("vm-no-gpu", state="timeout", host=SOCKET), "The Docker engine does not answer in time",
         "sudo systemctl restart docker"),
        ("engine-never-answers", "The engine at tcp://10.20.0.4:2376 does not answer",
         "unset DOCKER_HOST DOCKER_CONTEXT; docker context use default"),
        ("engine-garbage", "The engine at tcp://10.20.0.4:2376 answers with an error", "docker version"),
    ],
)  # fmt: skip
def test_why_no_engine_answers(case: Case, title: str, step: str) -> None:
    told = found(case, "DSH-DK-001")
    assert (told.state, told.title) == ("error", title)
    assert step in [fix.command for fix in told.fix]
    assert told.evidence


def test_stopped_is_told_from_not_installed_where_that_was_looked_at() -> None:
    bare = known("vm-no-docker")
    for there, title in (
        (True, "The Docker engine is stopped"),
        (False, "Docker is not installed"),
        (None, "Docker is not installed, or stopped"),
    ):
        seen = replace(bare, observed=Observed(engine_installed=there))
        assert found(seen, "DSH-DK-001").title == title
    refused_it = on("vm-no-docker", detail="Connection refused")
    assert "stopped" in found(refused_it, "DSH-DK-001").cause


@pytest.mark.parametrize(
    ("endpoint", "command"),
    [
        ("unix:///run/user/1000/docker.sock", "systemctl --user start docker"),
        ("unix:///run/user/1000/podman/podman.sock", "systemctl --user start podman.socket"),
        ("unix:///home/ada/.docker/desktop/docker.sock", "systemctl --user start docker-desktop"),
        ("unix:///Users/ada/.colima/default/docker.sock", "colima start"),
    ],
)
def test_an_engine_of_ones_own_is_started_by_oneself(endpoint: str, command: str) -> None:
    told = found(replace(on("vm-no-gpu", state="absent"), endpoint=endpoint), "DSH-DK-001")
    assert told.fix[0].command == command
    assert endpoint in told.title
    away = replace(on("vm-no-gpu", state="absent"), endpoint="tcp://10.0.0.1:2375")
    assert found(away, "DSH-DK-001").fix[0].command == "docker version"


def test_an_engine_that_was_not_asked_is_not_called_broken() -> None:
    told = found(replace(known(RTX4090), facts=replace(known(RTX4090).facts, engine=Engine("unsupported"))),
                 "DSH-DK-001")  # fmt: skip
    assert told.state == "skipped"


def test_the_cause_stands_on_top() -> None:
    assert found("vm-docker-denied", "DSH-DK-001").caused_by == "DSH-DK-074"
    assert found("engine-api-too-old", "DSH-DK-001").caused_by == "DSH-DK-037"
    assert found("vm-no-docker", "DSH-DK-001").caused_by is None
    blocked = found("vm-no-docker", "DSH-DK-002")
    assert (blocked.state, blocked.blocked_by) == ("skipped", "DSH-DK-001")


def test_the_errors_of_a_set_up_name_the_same_findings() -> None:
    api = Engine(
        "error", detail="client version 1.41 is too old. Minimum supported API version is 1.44"
    )
    for error, identity in (
        (refusals.hangs(Engine("timeout")), "DSH-DK-001"),
        (refusals.dead_endpoint("tcp://gone:2375", Engine("absent")), "DSH-DK-001"),
        (refusals.answers_nonsense(Engine("error", detail="boom")), "DSH-DK-001"),
        (refusals.answers_nonsense(api), "DSH-DK-037"),
        (refusals.wsl1(), "DSH-DK-001"),
    ):
        assert error.resolution[-1] == f"More about it: dshpc explain {identity}"
        assert identity in BY_ID


# -- the disk, and what is only worth knowing -------------------------------------------------------


@pytest.mark.parametrize(
    ("free_mib", "free_inodes", "state"),
    [
        (1023, None, "error"),
        (1024, None, "warn"),
        (5 * 1024 - 1, None, "warn"),
        (5 * 1024, None, "ok"),
        (50_000, 9_999, "warn"),
        (50_000, 10_000, "ok"),
    ],
)
def test_the_disk(free_mib: int, free_inodes: int | None, state: str) -> None:
    assert found(disk(free_mib, free_inodes), "DSH-DK-081").state == state


def test_a_disk_without_inodes_is_not_said_to_fill_up() -> None:
    told = found(disk(50_000, 0), "DSH-DK-081")
    assert "inodes" in told.cause
    assert "takes some GiB" not in told.cause
    assert "takes some GiB" in found(disk(3000, 0), "DSH-DK-081").cause


def test_a_disk_that_nobody_looked_at_is_not_called_well() -> None:
    assert found(RTX4090, "DSH-DK-081").state == "skipped"


# -- GPUs: what is foreseen without a test-run ------------------------------------------------------


def test_another_way_makes_it_worth_knowing_only() -> None:
    amd_machine = found("mi210x4-xgmi", "DSH-DK-007")
    assert amd_machine.state == "info"
    assert "by device nodes" in amd_machine.cause
    assert amd_machine.fix == ()


def test_a_proof_that_works_silences_what_was_foreseen() -> None:
    told = known("rtx4090-runtime-not-registered")
    assert found(told, "DSH-DK-009").state == "warn"
    way = Handover("device-request")
    rows = (
        Attempt("cdi", "impossible", "no specification", "DSH-DK-016"),
        Attempt("device-request", "works", "the GPU was seen", handover=way),
        Attempt("runtime", "impossible", "it is not registered", "DSH-DK-009"),
    )
    proven = after_test(told.facts, *rows)
    for identity in ("DSH-DK-009", "DSH-DK-016"):
        seen = found(proven, identity)
        assert seen.state == "info"
        assert "reach containers by a device request" in seen.cause


def test_a_proof_of_another_machine_fires_nothing() -> None:
    told = refused(findings.DRIVER_IN_IMAGE)
    assert found(told, findings.DRIVER_IN_IMAGE).state == "error"
    assert told.proof is not None
    stale = replace(told, proof=replace(told.proof, key="another"))
    assert found(stale, findings.DRIVER_IN_IMAGE).state == "skipped"
    assert found(replace(told, whole=False), findings.DRIVER_IN_IMAGE).state == "skipped"


def test_where_one_way_was_tried_what_cannot_be_had_is_no_fault_of_its_own() -> None:
    told = known("rtx4090-toolkit-missing")
    assert found(told, "DSH-DK-007").state == "error"
    assert found(told, "DSH-DK-016").state == "info"


def test_a_rootless_engine_that_has_the_gpus_by_cdi_is_well() -> None:
    with_cdi = on(RTX4090, rootless=True)
    assert with_cdi.facts.engine.cdi_devices
    assert found(with_cdi, "DSH-DK-011").state == "info"
    without = on(RTX4090, rootless=True, cdi_devices=(), cdi_specs=())
    assert found(without, "DSH-DK-011").state == "warn"


def test_a_toolkit_that_was_removed_after_it_was_registered() -> None:
    gone = Toolkit("nvidia", "absent")
    engine: dict[str, Any] = {"toolkits": (gone,), "cdi_devices": (), "cdi_specs": ()}
    told = found(on(RTX4090, **engine), "DSH-DK-007")
    assert (told.state, "was removed" in told.cause) == ("warn", True)
    assert "nvidia-container-toolkit" in (told.fix[-3].command or "")
    assert found(on(RTX4090, cdi_devices=(), cdi_specs=()), "DSH-DK-007").state == "ok"
    unseen = on(RTX4090, kind="remote", **engine)
    assert "was removed" not in found(unseen, "DSH-DK-007").cause


def test_without_gpus_nothing_is_wrong_with_handing_them_over() -> None:
    for name in ("vm-snap-docker", "vm-podman", "vm-rootless-docker", "desktop-linux"):
        states = {each.id: each.state for each in diagnose(known(name), CHECKS)}
        assert {states[identity] for identity in findings.TITLES if identity in states} <= {
            "skipped",
            "ok",
        }
    none = known("rtx4090-toolkit-missing", Settings(gpu="none"))
    assert found(none, "DSH-DK-007").state == "skipped"


FAULTY = {
    "h100-microvm": "DSH-DK-001",  # no engine
    "h100-mig-cdi-stale": "DSH-DK-017",
    "rtx4090-cdi-broken": "DSH-DK-075",
    "rtx4090-cdi-old-driver": "DSH-DK-017",
    "rtx4090-no-cgroups": "DSH-DK-012",
    "rtx4090-rootless": "DSH-DK-011",
    "rtx4090-runtime-not-in-force": "DSH-DK-008",
    "rtx4090-runtime-not-registered": "DSH-DK-009",
    "rtx4090-toolkit-missing": "DSH-DK-007",
    "rtx4090-toolkit-not-restarted": "DSH-DK-008",
    # Docker without NVIDIA's toolkit, so that no container gets these GPUs
    "laptop-rtx4060-intel-display": "DSH-DK-007",
    "rtx4090-beside-rx7900xtx": "DSH-DK-007",
    "t4-nvidia-smi-only": "DSH-DK-007",
    "wsl2-rancher-desktop": "DSH-DK-033",
    "wsl2-rancher-desktop-off": "DSH-DK-001",
}


def with_gpus() -> list[str]:
    folders = (path.parent for path in sorted(FOLDER.glob("*/conclusion.yaml")))
    return [
        folder.name
        for folder in folders
        if "gpus: present" in (folder / "conclusion.yaml").read_text()
        and (folder / "docker.json").exists()
    ]


@pytest.mark.parametrize("name", with_gpus())
def test_a_machine_whose_gpus_are_well_has_only_the_fault_that_it_is_named_after(name: str) -> None:
    assert {
        each.id for each in diagnose(known(name)) if each.section in ("engine", "passthrough")
        and each.state in ("warn", "error", "crashed")
    } == ({FAULTY[name]} if name in FAULTY else set())  # fmt: skip


@pytest.mark.parametrize("name", sorted(path.parent.name for path in FOLDER.glob("*/root.txtar")))
def test_no_check_crashes_on_any_machine(name: str) -> None:
    mine = [check for check in BY_ID.values() if check.section in ("engine", "passthrough")]
    assert [each.id for each in diagnose(known(name), mine) if each.state == "crashed"] == []


@pytest.mark.parametrize("name", sorted(path.parent.name for path in FOLDER.glob("*/root.txtar")))
def test_each_fault_tells_what_was_read(name: str) -> None:
    faults = [each for each in diagnose(known(name)) if each.state in ("warn", "error")]
    assert [each.id for each in faults if not each.evidence] == []


def test_a_container_without_an_engine_is_sent_to_its_machine() -> None:
    told = found(on("container-none-handed-over", state="absent", host=SOCKET), "DSH-DK-001")
    assert (told.state, told.title) == ("error", "No Docker engine is in this container")
    assert [fix.command for fix in told.fix] == [
        *("dshpc doctor", "configure-environment", "configure-environment --engine builtin")
    ]
    lxc = found(on("container-lxc", state="absent", host=SOCKET), "DSH-DK-001")
    assert lxc.title == "Docker is not installed, or stopped"


def test_wsl_1_is_said_once() -> None:
    assert found("wsl1", "DSH-DK-001").caused_by == "DSH-HO-001"


def test_one_full_disk_is_one_fault() -> None:
    here = known("workstation-rtx4090/host-project-full")
    full = Disk("engine", "/", 300, 200_000)
    others = tuple(disk for disk in here.observed.disks if disk.what != "engine")
    both = replace(here, observed=replace(here.observed, disks=(*others, full)))
    assert found(both, "DSH-HO-008").caused_by == "DSH-DK-081"
    assert found(here, "DSH-HO-008").caused_by is None


@pytest.mark.parametrize(
    ("endpoint", "title"),
    [
        ("garbage", "garbage is no address of a Docker engine"),
        ("http//x", "http//x is no address of a Docker engine"),
        ("tcp://10.20.0.4:2376", "The engine at tcp://10.20.0.4:2376 answers with an error"),
    ],
)
def test_a_wrong_address_is_one_fault_that_a_variable_fixes(endpoint: str, title: str) -> None:
    here = on("vm-no-docker", state="error", detail="Invalid bind address format", host=endpoint)
    told = found(replace(here, endpoint=endpoint), "DSH-DK-001")
    assert told.title == title
    assert "unset DOCKER_HOST" in (told.fix[-1].command or "")


def test_an_engine_that_answers_with_an_error_has_answered() -> None:
    here = on("vm-no-docker", state="error", detail="500")
    told = found(replace(here, endpoint=None), "DSH-DK-001")
    assert told.title == "The Docker engine answers with an error"


def test_an_authorization_plugins_refusal_is_no_matter_of_a_group() -> None:
    for identity in ("DSH-DK-074", "DSH-DK-001"):
        told = found(forbidden(), identity)
        assert (told.state, told.title) == (
            "error",
            "The authorization plugin opa refuses this user",
        )
        steps = " ".join(f"{fix.text} {fix.command}" for fix in told.fix)
        assert "authorization-plugins" in steps
        assert "usermod" not in steps
    error = refusals.unfit(forbidden().facts)
    assert error is not None
    assert error.brief == "The Docker engine's authorization plugin opa refuses this user"
    assert "plugin opa" in error.details
    proxied = forbidden().facts
    proxied = replace(proxied, engine=replace(proxied.engine, detail="Forbidden"))
    error = refusals.unfit(proxied)
    assert error is not None
    assert error.brief == "The Docker engine's policy refuses this user"
    assert not isinstance(error, refusals.EngineDeniedError), "sudo would change nothing"


def test_rancher_desktop_without_its_engine_is_told_and_nothing_is_installed() -> None:
    told = found(known("wsl2-rancher-desktop-off"), "DSH-DK-001")
    assert told.title == "Rancher Desktop's engine does not answer"
    error = refusals.unfit(known("wsl2-rancher-desktop-off").facts)
    assert error is not None
    for steps in (" ".join(error.resolution), " ".join(fix.text for fix in told.fix)):
        assert "dockerd (moby)" in steps
        assert "WSL, Integrations" in steps


def test_an_engine_that_rancher_desktop_was_given_the_toolkit_for_is_not_refused() -> None:
    told = on("wsl2-rancher-desktop", runtimes=("nvidia", "runc"))
    assert found(told, "DSH-DK-033").state != "error"


@pytest.mark.parametrize(
    ("info", "kind", "product"),
    [
        ({"OperatingSystem": "Rancher Desktop WSL Distribution"}, "desktop", "Rancher Desktop"),
        (
            {"OperatingSystem": "Rancher Desktop WSL Distribution (containerized)"},
            "desktop",
            "Rancher Desktop",
        ),
        (
            {"OperatingSystem": "Alpine Linux v3.21", "Name": "lima-rancher-desktop"},
            "desktop",
            "Rancher Desktop",
        ),
        ({"OperatingSystem": "Docker Desktop"}, "desktop", None),
        ({"OperatingSystem": "Ubuntu 24.04", "Name": "rancher"}, "engine", None),
    ],
)
def test_who_brings_the_engine(info: dict[str, str], kind: str, product: str | None) -> None:
    value = {"version": {"Version": "29.5.3"}, "info": info, "host": "unix:///var/run/docker.sock"}
    fact = parse(Reply("present", value), ThisMachine("6.6", "here"))
    assert (fact.kind, fact.product) == (kind, product)


def test_an_engine_of_windows_containers_is_refused() -> None:
    error = refusals.unfit(on("wsl2-rtx3080", os_type="windows").facts)
    assert error is not None
    assert "SwitchLinuxEngine" in error.resolution[0]
    assert refusals.unfit(known("wsl2-rtx3080").facts) is None


def test_podmans_own_command_that_is_silent_is_called_podman() -> None:
    told = found(on("vm-no-gpu", state="timeout", host="podman"), "DSH-DK-001")
    assert told.title == "Podman does not answer in time"
    assert [fix.command for fix in told.fix] == ["podman info"]


def test_the_built_in_engine_that_is_silent_is_not_called_docker() -> None:
    told = found(on("vm-no-gpu", state="timeout", kind="builtin"), "DSH-DK-001")
    assert told.title == "This machine is too busy to be asked"
    assert [fix.command for fix in told.fix] == ["uptime", "dshpc doctor"]
