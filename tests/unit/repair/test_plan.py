"""Which repairs for which findings: recorded machines, near misses, and texts that mean harm."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.diagnose import CheckInput, Finding
from dshpc_setup.diagnose.model import SECTIONS
from dshpc_setup.errors import Fix, Step
from dshpc_setup.facts import CdiSpec
from dshpc_setup.repair import Host, Plan, plan
from dshpc_setup.repair.choice import asked
from dshpc_setup.repair.model import ORDER, Kind
from dshpc_setup.repair.node import taken_out
from dshpc_setup.repair.outcome import planned_lines
from dshpc_setup.slurm.nodes import parse_lines
from tests.unit.diagnose.known import findings, known

HERE = Host(1000, "/home/ada", "systemd", engine_installed=True)
DRAINED = (
    "NodeName=p Arch=x86_64 State=IDLE+DRAIN Reason=Node unexpectedly rebooted "
    "[slurm@2026-01-01T00:00:00]"
)


def here_of(name: str, here: Host = HERE) -> Host:
    """With a project where the case has a cluster."""
    observed = known(name).observed
    if observed.cluster is None:
        return here
    lines = observed.inside.node_lines if observed.inside else ()
    name = observed.cluster.container
    return replace(here, folder="/project", container=name, nodes=taken_out(parse_lines(lines)))


def planned(name: str, here: Host = HERE) -> Plan:
    return plan(tuple(findings(name).values()), known(name), here_of(name, here))


def kinds(found: Plan) -> list[Kind]:
    return [item.kind for item in found.repairs]


def lines(found: Plan) -> list[str]:
    return [line for item in found.repairs for line in item.shown()]


CASES: dict[str, list[Kind]] = {
    "rtx4090-runtime-not-registered": ["register-runtime", "restart-engine"],
    "rtx4090-runtime-not-in-force": ["restart-engine"],
    "rtx4090-toolkit-not-restarted": ["restart-engine"],
    "rtx4090-cdi-old-driver": ["write-cdi"],
    "h100-mig-cdi-stale": ["write-cdi"],
    "rtx4090-rootless": ["write-cdi", "restart-engine"],
    "workstation-rtx4090/slurm-exited": ["start-cluster"],
    "workstation-rtx4090/slurm-missing": ["start-cluster"],
    "workstation-rtx4090/slurm-controller-killed": ["start-daemon"],
    "workstation-rtx4090/slurm-down-after-reboot": ["resume-node"],
    "workstation-rtx4090/slurm-drained-own": ["reconfigure"],
    "workstation-rtx4090/slurm-gpu-not-in-container": ["render"],
    "workstation-rtx4090/slurm-key-readable": ["restrict-key"],
    # near misses
    "rtx4090-toolkit-missing": [],
    "a100x2-version-mismatch": [],  # a restart of the machine fixes it
    "rtx4090-no-cgroups": [],
    "workstation-rtx4090": [],
    "workstation-rtx4090/healthy": [],
    "workstation-rtx4090/slurm-restarting": [],
    "workstation-rtx4090/slurm-down-by-person": [],
    "workstation-rtx4090/slurm-drained-by-person": [],
    "workstation-rtx4090/slurm-drained-kill-task": [],
    "workstation-rtx4090/slurm-drained-unknown-reason": [],
    "workstation-rtx4090/slurm-drained-who-not-known": [],
    "workstation-rtx4090/slurm-key-damaged": [],
    "workstation-rtx4090/slurm-image-without-gpu": [],  # needs a build
}


@pytest.mark.parametrize("name", CASES)
def test_no_repair_is_chosen_by_words_or_commands(name: str) -> None:
    for finding in findings(name).values():
        other = replace(
            finding,
            title="xyzzy",
            cause="xyzzy",
            evidence=("xyzzy",) * len(finding.evidence),
            fix=tuple(replace(fix, text="xyzzy", command="xyzzy") for fix in finding.fix),
        )
        assert asked(other) == asked(finding)


@pytest.mark.parametrize("name", CASES)
def test_a_recorded_machine_gets_these_repairs(name: str) -> None:
    found = planned(name)
    assert kinds(found) == CASES[name]
    for item in found.repairs:
        assert item.fixes
        assert item.commands


def test_what_is_registered_is_in_force_after_a_restart() -> None:
    register, restart = planned("rtx4090-runtime-not-registered").repairs
    assert register.shown() == ("sudo nvidia-ctk runtime configure --runtime=docker",)
    assert register.changes == ("/etc/docker/daemon.json",)
    assert restart.after == (register.key,)
    assert restart.shown() == ("sudo systemctl restart docker",)
    assert restart.stops == "containers"


def test_the_stale_specification_itself_is_written_anew() -> None:
    (write,) = planned("h100-mig-cdi-stale").repairs
    assert write.commands == (
        ("nvidia-ctk", "cdi", "generate", "--output=/var/run/cdi/nvidia.yaml"),
    )
    assert write.changes == ("/var/run/cdi/nvidia.yaml",)


def test_where_there_is_no_specification_units_keep_one_from_toolkit_1_18_on() -> None:
    name = "rtx4090-runtime-not-registered"
    looked = known(name)
    (told,) = [item for item in looked.facts.engine.toolkits if item.vendor == "nvidia"]

    def command(version: str, here: Host = HERE) -> str:
        engine = replace(
            looked.facts.engine, toolkits=(replace(told, version=version),), cdi_specs=()
        )
        facts = replace(looked.facts, engine=engine)
        finding = Finding("DSH-DK-016", "engine", "error", "No CDI specification names the GPUs")
        found = plan((finding,), replace(looked, facts=facts), here)
        return lines(found)[0]

    units = "sudo systemctl enable --now nvidia-cdi-refresh.path nvidia-cdi-refresh.service"
    written = "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
    assert command("1.18.0") == units
    assert command("1.17.8") == written
    assert command("1.18.0", replace(HERE, starter="openrc")) == written


@pytest.mark.parametrize(
    ("starter", "line"),
    [
        ("systemd", "sudo systemctl restart docker"),
        ("openrc", "sudo rc-service docker restart"),
        ("direct", None),
    ],
)
def test_the_engine_is_restarted_by_the_init_system_that_runs(starter: str, line: str) -> None:
    here = replace(HERE, starter=starter)  # type: ignore[arg-type]
    found = planned("rtx4090-toolkit-not-restarted", here)
    assert lines(found) == ([line] if line else [])
    assert bool(found.not_safe) is (line is None)


def test_a_step_that_cannot_be_done_here_is_told_beside_those_that_can() -> None:
    found = planned("rtx4090-runtime-not-registered", replace(HERE, starter="direct"))
    assert kinds(found) == ["register-runtime"]
    assert found.not_safe == {"DSH-DK-009": "There is no init system that could restart it."}
    last = planned_lines(found.repairs, found.not_safe)[-1]
    assert last == "By hand then: DSH-DK-009. There is no init system that could restart it."


def test_a_rootless_engine_is_its_users() -> None:
    write, restart = planned("rtx4090-rootless").repairs
    assert restart.shown() == ("systemctl --user restart docker",)
    assert not restart.root
    found = planned("rtx4090-rootless", replace(HERE, uid=0, home="/root"))
    assert kinds(found) == []
    assert restart.after == (write.key,)


def test_a_stopped_engine_is_started_where_it_is_installed() -> None:
    assert kinds(planned("vm-no-docker")) == ["start-engine"]
    assert kinds(planned("vm-no-docker", replace(HERE, engine_installed=False))) == []


AMD = "mi210x4-toolkit-cdi"


def amd_register(here: Host) -> Plan:
    finding = Finding("DSH-DK-009", "engine", "warn", "The vendor's runtime is not registered")
    return plan((finding,), known(AMD), here)


def test_amds_tool_is_used_for_amd_and_not_where_it_would_take_out_a_feature() -> None:
    assert lines(amd_register(HERE))[0] == "sudo amd-ctk runtime configure --runtime=docker"
    refused = amd_register(replace(HERE, other_features=("containerd-snapshotter",)))
    assert refused.repairs == ()
    assert "containerd-snapshotter" in refused.not_safe["DSH-DK-009"]


def test_uvm_is_loaded_where_it_is_the_root_cause() -> None:
    looked = known("workstation-rtx4090")
    finding = Finding("DSH-NV-015", "driver", "error", "/dev/nvidia-uvm is missing")
    (load,) = plan((finding,), looked, HERE).repairs
    assert load.shown() == ("sudo nvidia-modprobe -u -c=0",)
    folded = replace(finding, caused_by="DSH-NV-001")
    assert plan((folded,), looked, HERE) == Plan((), {})


def test_a_resume_names_the_node_and_the_container() -> None:
    (resume,) = planned("workstation-rtx4090/slurm-down-after-reboot").repairs
    container = known("workstation-rtx4090/healthy").observed.cluster
    assert container is not None
    name = resume.about
    assert resume.commands == (
        ("docker", "exec", container.container, "scontrol", "update", f"nodename={name}",
         "state=resume"),
    )  # fmt: skip


DRAIN_FIX = Fix("Take it back", "as it is typed", repair=("resume-node", ""))
DRAIN = Finding("DSH-SL-012", "slurm", "error", "The node is drained", fix=(DRAIN_FIX,))


def resumed(line: str) -> list[str]:
    here = replace(HERE, folder="/p", container="p-slurm", nodes=taken_out(parse_lines([line])))
    return lines(plan((DRAIN,), known("workstation-rtx4090/healthy"), here))


def test_only_our_own_doing_is_resumed() -> None:
    by = DRAINED.replace
    line = "docker exec p-slurm scontrol update nodename=p state=resume"
    assert resumed(DRAINED) == [line]
    assert resumed(by("slurm@", "ada@")) == []
    assert resumed(by("Node unexpectedly rebooted", "repair on Monday")) == []
    assert resumed(by("IDLE+DRAIN", "IDLE")) == []
    assert resumed(by("IDLE+DRAIN", "IDLE+DRAIN+INVALID_REG")) == ["dshpc reconfigure"]


@pytest.mark.parametrize("name", ["a,b", "n[1-9]", "ALL;x", "-h"])
def test_a_name_that_would_reach_other_nodes_is_refused(name: str) -> None:
    assert resumed(DRAINED.replace("NodeName=p", f"NodeName={name}")) == []


def test_a_command_of_ours_is_not_run_where_something_comes_before_it_by_hand() -> None:
    down = known("workstation-rtx4090/slurm-exited")
    here = here_of("workstation-rtx4090/slurm-exited")
    by_hand = Fix("Take `ports:` out of docker-compose.yml, then", "dshpc up")
    finding = Finding("DSH-SL-035", "slurm", "warn", "A port is open", fix=(by_hand,))
    assert plan((finding,), down, here).repairs == ()
    alone = replace(finding, fix=(replace(by_hand, repair=("start-cluster", "")),))
    assert kinds(plan((alone,), down, here)) == ["start-cluster"]


def ours(name: str, kind: Kind) -> list[Kind]:
    """What a fault that asks for one repair of the cluster gets in a case of the workstation."""
    case = f"workstation-rtx4090/{name}"
    fix = (Fix("Do it", "a command", repair=(kind, "")),)
    finding = Finding("DSH-XX-999", "slurm", "error", "t", fix=fix)
    return kinds(plan((finding,), known(case), here_of(case)))


@pytest.mark.parametrize(
    ("case", "kind", "wanted"),
    [
        ("slurm-exited", "start-cluster", ["start-cluster"]),
        ("slurm-restarting", "start-cluster", []),  # it ends by itself
        ("healthy", "start-cluster", []),
        ("healthy", "restart-cluster", ["restart-cluster"]),
        ("slurm-key-readable", "restart-cluster", []),  # a start refuses such a key
        ("slurm-exited", "restart-cluster", []),
        ("healthy", "reconfigure", ["reconfigure"]),
        ("slurm-exited", "reconfigure", []),
        ("healthy", "render", []),  # of section slurm: it may need a build
    ],
)
def test_a_repair_of_the_cluster_where_it_helps(case: str, kind: Kind, wanted: list[Kind]) -> None:
    assert ours(case, kind) == wanted


def test_what_comes_after_an_unknown_step_is_not_done() -> None:
    register = Fix("Register", "register it", repair=("register-runtime", "nvidia"))
    install = Fix("Install it", "sudo apt-get install nvidia-container-toolkit")
    other = replace(register, step="alternative")

    def wanted(*fix: Fix) -> list[Kind]:
        return [want[0] for want in asked(Finding("X", "engine", "error", "t", fix=fix))]

    assert wanted(register) == ["register-runtime"]
    assert wanted(install, register) == []
    assert wanted(other) == []
    assert wanted(Fix("What it says", "docker info", step="look"), register) == ["register-runtime"]


@pytest.mark.parametrize(
    "command",
    ["sudo nvidia-ctk runtime configure --runtime=docker", "dshpc up", "chmod 600 .env"],
)
def test_a_command_alone_is_no_repair(command: str) -> None:
    fix = (Fix("Do it", command, automatic=True),)
    assert asked(Finding("DSH-XX-999", "engine", "error", "t", fix=fix)) == ()


# -- properties ---------------------------------------------------------------------------------------

TEXT = st.text(max_size=40) | st.sampled_from(
    ["; rm -rf /", "$(reboot)", "--output=/etc/passwd", "`id`", "a\nb", "'", "-h", "../../.env"]
)
WANTS = st.sampled_from(
    [
        *(
            (kind, "")
            for kind in ORDER
            if kind not in ("register-runtime", "write-cdi", "start-daemon")
        ),
        *((kind, of) for kind in ("register-runtime", "write-cdi") for of in ("nvidia", "amd")),
        ("start-daemon", "slurmd"),
    ]
)


@st.composite
def fault_findings(draw: st.DrawFn) -> Finding:
    """Any id, text and command; steps with repairs among those that have none."""
    steps = st.sampled_from(get_args(Step))
    fixes = draw(
        st.lists(
            st.builds(Fix, TEXT, TEXT | st.none(), st.booleans(), steps, repair=WANTS | st.none()),
            max_size=4,
        )
    )
    identity = draw(
        st.sampled_from(["DSH-DK-009", "DSH-DK-017", "DSH-SL-001", "DSH-NV-015"]) | TEXT
    )
    evidence = tuple(draw(st.lists(TEXT, max_size=3)))
    section = draw(st.sampled_from(SECTIONS))
    return Finding(identity, section, "error", draw(TEXT), evidence, draw(TEXT), tuple(fixes))


FULL = replace(HERE, folder="/p", container="p-slurm", nodes=taken_out(parse_lines([DRAINED])))


def argvs(found: Plan) -> list[tuple[str, ...]]:
    return [argv for item in found.repairs for argv in item.commands]


@given(st.lists(fault_findings(), max_size=4), TEXT)
def test_no_text_of_a_finding_gets_into_a_command(texts: list[Finding], other: str) -> None:
    looked = known("workstation-rtx4090/slurm-exited")
    blank = [
        replace(
            item,
            title=other,
            evidence=(other,),
            cause=other,
            fix=tuple(replace(fix, text=other, command=other) for fix in item.fix),
        )
        for item in texts
    ]
    assert argvs(plan(tuple(texts), looked, FULL)) == argvs(plan(tuple(blank), looked, FULL))


@given(st.lists(fault_findings(), max_size=4))
def test_every_command_is_one_of_these(texts: list[Finding]) -> None:
    """And none is a shell, removes, resets or reboots."""
    for argv in argvs(plan(tuple(texts), known("rtx4090-runtime-not-registered"), FULL)):
        assert argv[0] in {
            *("nvidia-modprobe", "nvidia-ctk", "amd-ctk", "systemctl", "chmod", "dshpc"),
            *("docker", "configure-environment"),
        }
        assert not {"sh", "-c", "reboot", "rm", "--gpu-reset", "stop", "disable"} & set(argv)


@given(TEXT.filter(lambda text: "\0" not in text))
def test_a_path_of_the_machine_is_one_argument(name: str) -> None:
    looked: CheckInput = known("rtx4090-cdi-old-driver")
    path = f"/etc/cdi/{name}.yaml"
    engine = replace(looked.facts.engine, cdi_specs=(CdiSpec(path, "present", "nvidia.com/gpu"),))
    finding = Finding("DSH-DK-017", "engine", "warn", "The CDI specification is out of date")
    facts = replace(looked.facts, engine=engine)
    (write,) = plan((finding,), replace(looked, facts=facts), HERE).repairs
    assert write.commands == (("nvidia-ctk", "cdi", "generate", f"--output={path}"),)
    assert write.changes == (path,)


@given(st.lists(fault_findings(), max_size=5))
def test_what_others_depend_on_comes_first_and_each_once(texts: list[Finding]) -> None:
    found = plan(tuple(texts), known("workstation-rtx4090/slurm-exited"), FULL)
    order = [ORDER.index(item.kind) for item in found.repairs]
    assert order == sorted(order)
    keys = [item.key for item in found.repairs]
    assert len(set(keys)) == len(keys)
    for number, item in enumerate(found.repairs):
        assert set(item.after) <= set(keys[:number])
