from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.facts import Cpu, Engine, Gpus, HostFacts, Memory, Platform
from dshpc_setup.passthrough import Passthrough
from dshpc_setup.plan import ClusterPlan, GresLine
from dshpc_setup.render import render_env
from dshpc_setup.settings import load
from dshpc_setup.stanza import compose_text, work_folder

FACTS = HostFacts(
    Platform("linux"), Cpu(2, usable=2), Memory(8000, 8000), Gpus("absent"), Engine("present")
)
PLAN = ClusterPlan("dshpc", "dshpc", "debug", 2, 7200, 3600)
NONE = Passthrough("none", "No GPU was found.")


def compose(
    passthrough: Passthrough = NONE,
    build: dict[str, Any] | None = None,
    facts: HostFacts = FACTS,
    plan: ClusterPlan = PLAN,
    project: str = "/home/ada/lab",
    **flags: str,
) -> dict[str, Any]:
    text = compose_text(
        Path(project), load(flags=flags), facts, plan, passthrough, "dshpc-slurm:none", build
    )
    value = yaml.safe_load(text)
    assert isinstance(value, dict)
    return value


def test_the_container_is_unprivileged() -> None:
    service = compose()["services"]["slurm"]
    assert service["cap_drop"] == ["ALL"]
    assert service["cap_add"] == ["CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in service
    assert "ports" not in service


def test_names_come_from_the_prefix() -> None:
    value = compose(prefix="lab")
    service = value["services"]["slurm"]
    assert (service["container_name"], service["hostname"]) == ("lab-slurm", "lab")
    assert {item["name"] for item in value["volumes"].values()} == {"lab-state", "lab-key"}
    assert "COMPOSE_PROJECT_NAME=lab\n" in render_env("lab")


def test_work_is_seen_under_its_own_path_and_config_read_only() -> None:
    volumes = compose()["services"]["slurm"]["volumes"]
    assert volumes[:2] == [
        "/home/ada/lab/config:/config:ro",
        "/home/ada/lab/work:/home/ada/lab/work",
    ]
    elsewhere = compose(work="/data/ada")["services"]["slurm"]["volumes"]
    assert "/data/ada:/data/ada" in elsewhere


def test_selinux_gets_its_labels() -> None:
    facts = replace(FACTS, platform=Platform("linux", selinux="enforcing"))
    volumes = compose(facts=facts)["services"]["slurm"]["volumes"]
    assert volumes[:2] == [
        "/home/ada/lab/config:/config:ro,z",
        "/home/ada/lab/work:/home/ada/lab/work:z",
    ]


def test_mechanisms() -> None:
    request = compose(Passthrough("device-request", "ok", ids=("GPU-1",)))["services"]["slurm"]
    (device,) = request["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "capabilities": ["gpu"], "device_ids": ["GPU-1"]}
    every = compose(Passthrough("device-request", "ok"))["services"]["slurm"]
    (device,) = every["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "capabilities": ["gpu"], "count": "all"}
    cdi = compose(Passthrough("cdi", "ok", ids=("nvidia.com/gpu=all",)))["services"]["slurm"]
    assert cdi["devices"] == ["nvidia.com/gpu=all"]
    runtime = Passthrough("runtime", "ok", environment={"NVIDIA_VISIBLE_DEVICES": "all"})
    service = compose(runtime)["services"]["slurm"]
    assert service["runtime"] == "nvidia"
    assert service["environment"]["NVIDIA_VISIBLE_DEVICES"] == "all"
    raw = Passthrough("devices", "ok", devices=("/dev/kfd:/dev/kfd",), group_add=(44, 993))
    service = compose(raw)["services"]["slurm"]
    assert (service["devices"], service["group_add"]) == (["/dev/kfd:/dev/kfd"], ["44", "993"])


def test_simulated_gpus_are_labelled() -> None:
    plan = replace(PLAN, simulated=True, gres=(GresLine("h100", "nvidia", ("/dev/nvidia0",), 0),))
    text = compose_text(
        Path("/p"),
        load(flags={"simulate": "h100:1"}),
        FACTS,
        plan,
        Passthrough("simulated", "made up", devices=("/dev/null:/dev/nvidia0",)),
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
    value = compose(Passthrough("none", f"\x1b[31m{reason}"))
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
    labels = value["services"]["slurm"]["labels"]
    assert labels["org.dshpc.project"].replace("$$", "$") == f"/p/{project}"
