from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.builtin_client import compose as builtin_compose
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.facts import (
    Compose,
    Cpu,
    Engine,
    EngineKind,
    GpuDevice,
    Gpus,
    HostFacts,
    Memory,
    Platform,
)
from dshpc_setup.passthrough.handover import Handover
from dshpc_setup.passthrough.model import Passthrough
from dshpc_setup.plan import ClusterPlan, GresLine
from dshpc_setup.podman_client import service as podman_service
from dshpc_setup.render.configuration import render_env
from dshpc_setup.render.gpu_stanza import NO_PROFILING, PROFILING_REASON
from dshpc_setup.render.labels import gpus_label
from dshpc_setup.render.stanza import compose_text, ulimits
from dshpc_setup.render.volumes import work_folder
from dshpc_setup.settings import load

FACTS = HostFacts(
    Platform("linux"), Cpu(2, usable=2), Memory(8000, 8000), Gpus("absent"), Engine("present")
)
PLAN = ClusterPlan("dshpc", "dshpc", "debug", 2, 7200, 3600)
NONE = Passthrough(Handover("none"), "No GPU was found.")
V1 = Compose("1.29.2", ("docker-compose",))
V2 = Compose("v2.40.3", ("docker", "compose"))
KFD = Handover("devices", devices=("/dev/kfd:/dev/kfd",), group_add=(44, 993))


def written(
    passthrough: Passthrough = NONE,
    build: dict[str, Any] | None = None,
    facts: HostFacts = FACTS,
    project: str = "/home/ada/lab",
    **flags: str,
) -> str:
    return compose_text(
        Path(project), load(flags=flags), facts, PLAN, passthrough, "dshpc-slurm:none", build
    )


def compose(
    passthrough: Passthrough = NONE,
    build: dict[str, Any] | None = None,
    facts: HostFacts = FACTS,
    project: str = "/home/ada/lab",
    **flags: str,
) -> dict[str, Any]:
    text = written(passthrough, build, facts, project, **flags)
    value = yaml.safe_load(text)
    assert isinstance(value, dict)
    return value


def with_compose(tool: Compose | None, facts: HostFacts = FACTS) -> HostFacts:
    return replace(facts, engine=replace(facts.engine, compose=tool))


def service(
    handover: Handover, facts: HostFacts = FACTS, amd_profiling: str = "no"
) -> dict[str, Any]:
    text = written(Passthrough(handover, "ok"), facts=facts, amd_profiling=amd_profiling)
    value = yaml.safe_load(text)["services"]["slurm"]
    assert isinstance(value, dict)
    return value


def heading(text: str) -> list[str]:
    """The comment lines at the top."""
    return [line for line in text.split("\n\n")[0].splitlines() if line.startswith("#")]


def test_the_container_is_unprivileged() -> None:
    service = compose()["services"]["slurm"]
    assert service["cap_drop"] == ["ALL"]
    assert service["cap_add"] == ["CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in service
    assert "ports" not in service


@pytest.mark.parametrize("kind", ["builtin", "podman"])
def test_the_engines_of_our_own_carry_out_what_is_rendered_for_them(kind: Any) -> None:
    """A new key belongs into their lists: CONTRIBUTING, "A new compose key"."""
    facts = replace(FACTS, engine=replace(FACTS.engine, kind=kind))
    text = written(facts=facts, rest="127.0.0.1:6820")
    folder = Path("/home/ada/lab")
    if kind == "builtin":
        assert builtin_compose.planned_of(text, folder, "dshpc", {})
    else:
        here = podman_service.Here(rootless=True, controllers=frozenset(("pids", "memory")))
        assert podman_service.wanted(text, folder, "dshpc", {}, here)


@pytest.mark.parametrize(
    ("rest", "kind", "ports", "listen"),
    [
        ("off", "engine", None, None),
        ("on", "engine", None, None),
        ("127.0.0.1:6820", "engine", ["127.0.0.1:6820:6820"], "0.0.0.0:6820"),
        ("[::1]:6820", "podman", ["[::1]:6820:6820"], "0.0.0.0:6820"),
        ("127.0.0.1:6820", "builtin", None, None),
    ],
)
def test_the_rest_api_is_published_where_the_setting_says(
    rest: str, kind: Any, ports: list[str] | None, listen: str | None
) -> None:
    facts = replace(FACTS, engine=replace(FACTS.engine, kind=kind))
    service = compose(facts=facts, rest=rest)["services"]["slurm"]
    assert service.get("ports") == ports
    assert service["environment"].get("DSHPC_REST_LISTEN") == listen
    assert service["environment"].get("DSHPC_REST") == rest


def test_real_gpus_are_told_to_other_clusters_and_made_up_ones_are_not() -> None:
    cards = (
        GpuDevice(0, "nvidia", uuid="GPU-2", device_files=("/dev/nvidia0",)),
        GpuDevice(1, "nvidia", uuid="GPU-1", device_files=("/dev/nvidia1",)),
        GpuDevice(2, "amd", device_files=("/dev/dri/renderD128",)),
    )
    lines = (GresLine("h100", "nvidia", ("/dev/nvidia0",), 0),)
    plan = ClusterPlan("c", "n", "debug", 8, 1000, 100, gres=lines, gpus=cards)
    assert gpus_label(plan) == {"org.dshpc.gpus": "/dev/dri/renderD128,GPU-1,GPU-2"}
    assert gpus_label(replace(plan, simulated=True)) == {}
    assert gpus_label(replace(plan, gres=())) == {}


def test_names_come_from_the_prefix() -> None:
    value = compose(prefix="lab")
    service = value["services"]["slurm"]
    assert (service["container_name"], service["hostname"]) == ("lab-slurm", "lab")
    assert {item["name"] for item in value["volumes"].values()} == {
        "lab-state",
        "lab-key",
        "lab-home",
    }
    assert "COMPOSE_PROJECT_NAME=lab\n" in render_env("lab")


def test_work_is_seen_under_its_own_path_and_the_other_folders_read_only() -> None:
    volumes = compose()["services"]["slurm"]["volumes"]
    assert volumes[:3] == [
        "/home/ada/lab/config:/config:ro",
        "/home/ada/lab/work:/home/ada/lab/work",
        "/home/ada/lab/methods:/home/ada/lab/methods:ro",
    ]
    elsewhere = compose(work="/data/ada")["services"]["slurm"]["volumes"]
    assert "/data/ada:/data/ada" in elsewhere


def test_selinux_gets_its_labels() -> None:
    facts = replace(FACTS, platform=Platform("linux", selinux="enforcing"))
    volumes = compose(facts=facts)["services"]["slurm"]["volumes"]
    assert volumes[:3] == [
        "/home/ada/lab/config:/config:ro,z",
        "/home/ada/lab/work:/home/ada/lab/work:z",
        "/home/ada/lab/methods:/home/ada/lab/methods:ro,z",
    ]


def test_the_mechanism_is_written_for_the_compose_tool_that_is_here() -> None:
    chosen = Handover("device-request", ids=("GPU-1",))
    wanted = {"driver": "nvidia", "capabilities": ["gpu"], "device_ids": ["GPU-1"]}
    for tool in (None, V1):
        reserving = service(chosen, with_compose(tool))
        assert reserving["deploy"]["resources"]["reservations"]["devices"] == [wanted]
        assert "gpus" not in reserving
    newest = service(chosen, with_compose(V2))
    assert newest["gpus"] == [{"driver": "nvidia", "device_ids": ["GPU-1"]}]
    assert "deploy" not in newest


def test_what_the_mechanism_brings_joins_what_is_there() -> None:
    wsl = Handover(
        "devices",
        devices=("/dev/dxg:/dev/dxg",),
        volumes=("/usr/lib/wsl:/usr/lib/wsl:ro",),
        environment={"LD_LIBRARY_PATH": "/usr/lib/wsl/lib"},
    )
    found = service(wsl)
    assert found["volumes"][-2:] == ["home:/var/lib/dshpc/home", "/usr/lib/wsl:/usr/lib/wsl:ro"]
    assert found["environment"] == {
        "DSHPC_PREFIX": "dshpc",
        "LD_LIBRARY_PATH": "/usr/lib/wsl/lib",
    }
    raw = service(KFD)
    assert (raw["devices"], raw["group_add"]) == (["/dev/kfd:/dev/kfd"], ["44", "993"])


def test_nvidias_variable_stands_only_with_nvidias_mechanisms() -> None:
    name = "NVIDIA_DRIVER_CAPABILITIES"
    cdi = Handover("cdi", ids=("nvidia.com/gpu=all",))
    for chosen in (cdi, Handover("device-request"), Handover("runtime")):
        assert service(chosen)["environment"][name] == "compute,utility"
    for other in (KFD, Handover("none"), Handover("cdi", ids=("amd.com/gpu=all",))):
        assert name not in service(other)["environment"]


def test_the_comment_says_what_was_proven() -> None:
    reason = "Proven by a test container: 1 GPU by device nodes."
    text = written(Passthrough(KFD, reason))
    assert heading(text)[1] == f"# GPU: {reason}"
    assert len(heading(text)) == 4


def test_profiling_is_opened_where_asked_for_and_explained() -> None:
    text = written(Passthrough(KFD, "ok"), amd_profiling="yes")
    assert heading(text)[1:3] == ["# GPU: ok", f"# {PROFILING_REASON}"]
    found = yaml.safe_load(text)["services"]["slurm"]
    assert found["security_opt"] == ["no-new-privileges:true", "seccomp=unconfined"]
    assert found["cap_add"][-1] == "SYS_PTRACE"
    unasked = compose(Passthrough(KFD, "ok"))["services"]["slurm"]
    assert unasked["security_opt"] == ["no-new-privileges:true"]
    assert unasked["cap_add"] == found["cap_add"][:-1]


def test_profiling_without_amd_opens_nothing_and_says_so() -> None:
    text = written(Passthrough(Handover("device-request"), "ok"), amd_profiling="yes")
    assert heading(text)[1:3] == ["# GPU: ok", f"# {NO_PROFILING}"]
    found = yaml.safe_load(text)["services"]["slurm"]
    assert found["security_opt"] == ["no-new-privileges:true"]
    assert "SYS_PTRACE" not in found["cap_add"]


def on(kind: EngineKind, *, rootless: bool = False, nested: bool = False) -> HostFacts:
    return replace(
        FACTS,
        platform=Platform("linux", in_container=nested),
        engine=Engine("present", kind=kind, rootless=rootless, compose=V2),
    )


def test_limits_for_pinned_memory_and_deep_stacks() -> None:
    assert service(Handover("none"), with_compose(V2))["ulimits"] == {
        "memlock": -1,
        "stack": {"soft": 67108864, "hard": -1},
    }
    # compose v1 refuses a soft limit "greater" than a hard one of -1
    assert service(Handover("none"), with_compose(V1))["ulimits"] == {
        "memlock": -1,
        "stack": 67108864,
    }


@pytest.mark.parametrize(
    "facts",
    [
        on("engine", rootless=True),
        on("podman", rootless=True),
        on("builtin"),
        on("engine", nested=True),
        on("podman", nested=True),
        replace(FACTS, platform=replace(FACTS.platform, raises_limits=False)),
    ],
)
def test_who_may_not_raise_limits_or_does_it_unasked_is_not_asked_to(facts: HostFacts) -> None:
    assert ulimits(facts) == {}
    assert "ulimits" not in service(Handover("none"), facts)


@pytest.mark.parametrize(
    "facts",
    [
        FACTS,
        on("engine"),
        on("podman"),
        on("desktop"),
        on("desktop", nested=True),
        on("remote", nested=True),
    ],
)
def test_an_engine_with_all_rights_raises_limits(facts: HostFacts) -> None:
    assert set(ulimits(facts)) == {"memlock", "stack"}


@pytest.mark.parametrize(("handed", "without"), [((0, 1), None), ((1,), "/dev/nvidia0")])
def test_simulated_gpus_that_are_left_out_are_not_missed(
    handed: tuple[int, ...], without: str | None
) -> None:
    files = tuple(f"/dev/nvidia{number}" for number in handed)
    lines = tuple(GresLine("h100", "nvidia", (file,), 0) for file in files)
    text = compose_text(
        Path("/home/ada/lab"),
        load(flags={"simulate": "h100:2", "devices": ",".join(map(str, handed))}),
        FACTS,
        replace(PLAN, simulated=True, gres=lines),
        Passthrough(
            Handover("simulated", devices=tuple(f"/dev/null:{f}" for f in files)), "made up"
        ),
        "dshpc-slurm:none",
        None,
    )
    environment = yaml.safe_load(text)["services"]["slurm"]["environment"]
    assert environment.get("DSHPC_SIMULATE_WITHOUT") == without


def test_simulated_gpus_are_labelled() -> None:
    plan = replace(PLAN, simulated=True, gres=(GresLine("h100", "nvidia", ("/dev/nvidia0",), 0),))
    text = compose_text(
        Path("/p"),
        load(flags={"simulate": "h100:1"}),
        FACTS,
        plan,
        Passthrough(Handover("simulated", devices=("/dev/null:/dev/nvidia0",)), "made up"),
        "i",
        None,
    )
    assert "# SIMULATED" in text
    assert yaml.safe_load(text)["services"]["slurm"]["environment"]["DSHPC_SIMULATE"] == "h100:1"


def test_the_build_can_be_repeated_by_compose() -> None:
    build = {
        "build": {"context": "./.dshpc/build", "args": {"GPU_TYPE": "nvidia", "HTTP_PROXY": None}},
        "secrets": {"ca": {"file": "./.dshpc/a$b.pem"}},
    }
    value = compose(build=build)
    assert value["services"]["slurm"]["build"] == build["build"]
    assert value["secrets"] == {"ca": {"file": "./.dshpc/a$$b.pem"}}
    assert "build" not in compose()["services"]["slurm"]


def test_the_label_follows_every_change_of_the_text() -> None:
    one = compose()["services"]["slurm"]["labels"]["org.dshpc.rendered"]
    assert one == compose()["services"]["slurm"]["labels"]["org.dshpc.rendered"]
    assert one != compose(shm_size="2g")["services"]["slurm"]["labels"]["org.dshpc.rendered"]


@pytest.mark.parametrize(
    "work",
    [
        "/",
        "/etc",
        "/etc/ssl",
        "/usr",
        "/usr/lib",
        "/usr/local",
        "//usr/local",
        "/lib64/x",
        "/libx32",
        "/boot/x",
        "/dev/shm/x",
        "/proc/1",
        "/run/slurm",
        "/run/dshpc",
        "/var/run/x",
        "/var/spool",
        "/var/spool/slurmd",
        "/var/lib",
        "/var/lib/dshpc/state",
        "/opt",
        "/opt/dshpc/x",
        "/config",
        "/tmp",
        "/root",
        "a:b",
        "a\x9bb",
        "a\udcffb",
        "/x/../etc",
        "~nobody-of-that-name/x",
    ],
)
def test_a_work_folder_that_would_hide_the_system_is_refused(work: str) -> None:
    with pytest.raises(DshpcError) as caught:
        work_folder(Path("/p"), load(flags={"work": work}))
    assert caught.value.exit_code == Exit.USAGE


@pytest.mark.parametrize(
    "work",
    [
        "/data",
        "/home/ada",
        "/library",
        "/media",
        "/mnt",
        "/opt/data",
        "/opt/dshpc-data",
        "/root/lab",
        "/run/media/ada/disk",
        "/srv",
        "/tmp/x",
        "/usrdata",
        "/var/lib/lab",
        "/var/scratch",
    ],
)
def test_folders_of_ones_own_are_taken(work: str) -> None:
    assert str(work_folder(Path("/p"), load(flags={"work": work}))) == work


@given(st.text())
def test_whatever_the_engine_said_compose_stays_readable(reason: str) -> None:
    value = compose(Passthrough(Handover("none"), f"\x1b[31m{reason}"))
    assert set(value) == {"services", "volumes"}


SEGMENT = st.text(
    st.characters(min_codepoint=32, max_codepoint=0x2FFF, exclude_characters=":/\x7f"), min_size=1
).filter(lambda text: text not in (".", "..") and text.isprintable())


@given(SEGMENT, SEGMENT)
def test_any_path_reaches_compose_unchanged(project: str, work: str) -> None:
    value = compose(project=f"/p/{project}", work=f"/w/{work}")
    volumes = value["services"]["slurm"]["volumes"]
    # compose itself turns $$ into $
    assert volumes[1].replace("$$", "$") == f"/w/{work}:/w/{work}"
    assert volumes[2].replace("$$", "$") == f"/p/{project}/methods:/p/{project}/methods:ro"
    labels = value["services"]["slurm"]["labels"]
    assert labels["org.dshpc.project"].replace("$$", "$") == f"/p/{project}"
