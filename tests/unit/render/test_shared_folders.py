"""Homes and mounts in the compose file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from dshpc_setup.facts import HostFacts, Platform
from dshpc_setup.render.stanza import compose_text
from dshpc_setup.settings import load
from tests.unit.render.test_stanza import FACTS, NONE, PLAN


def service(
    *homes: str, facts: HostFacts = FACTS, project: str = "/home/ada/lab", **flags: str
) -> dict[str, Any]:
    settings = replace(load(flags=flags), homes=homes)
    text = compose_text(Path(project), settings, facts, PLAN, NONE, "image", None)
    found = yaml.safe_load(text)["services"]["slurm"]
    assert isinstance(found, dict)
    return found


def test_what_lies_deeper_is_mounted_later_and_what_is_ours_is_covered() -> None:
    mounts = "/home/ada/lab/data/in:ro,/data"
    found = service("/home", "/export/home", mounts=mounts, work="/data/lab")["volumes"]
    assert found[:8] == [
        "/home/ada/lab/config:/config:ro",
        "/home:/home",
        "/data:/data",
        "/data/lab:/data/lab",
        "/export/home:/export/home",
        "/home/ada/lab/methods:/home/ada/lab/methods:ro",
        "/home/ada/lab/.dshpc/hidden:/home/ada/lab/.dshpc:ro",
        "/home/ada/lab/data/in:/home/ada/lab/data/in:ro",
    ]
    elsewhere = service("/home", project="/srv/lab")["volumes"]
    assert not [each for each in elsewhere if "hidden" in each]


def test_the_container_knows_where_homes_are() -> None:
    assert service("/home", "/users")["environment"]["DSHPC_HOMES"] == "/home:/users"
    assert "DSHPC_HOMES" not in service()["environment"]


def test_without_them_nothing_changes() -> None:
    assert [each.split(":")[1] for each in service()["volumes"]] == [
        "/config", "/home/ada/lab/work", "/home/ada/lab/methods", "/var/lib/dshpc/state",
        "/var/lib/dshpc/key", "/var/lib/dshpc/home",
    ]  # fmt: skip


def test_no_label_is_written_on_what_is_others() -> None:
    facts = replace(FACTS, platform=Platform("linux", selinux="enforcing"))
    found = service("/home", facts=facts, mounts="/data:ro")
    assert {"/home:/home", "/data:/data:ro"} <= set(found["volumes"])
    assert "label=disable" in found["security_opt"]
    assert "label=disable" not in service(facts=facts)["security_opt"]


def test_settings_that_change_while_jobs_run_make_no_other_container() -> None:
    plain = service()
    assert service(partitions="short", slurm_conf_extra="KillWait=9", idle_gpu="5m") == plain
    assert service(gres_type="index") != plain
    settings = load(flags={"partitions": "short", "gres_type": "index"})
    assert settings.live_env() == {"DSHPC_PARTITIONS": "short"}
    assert settings.container_env() == {"DSHPC_GRES_TYPE": "index"}


def test_toolkits_are_for_reading_and_the_container_knows_of_them() -> None:
    settings = replace(
        load(flags={"toolkit": "host", "mounts": "/opt/cuda"}),
        toolkits=(
            "cuda:/opt/cuda-12:/opt/cuda",
            "cuda:/opt/cuda-12:/opt/cuda-12",
            "rocm:/opt/rocm:/opt/rocm",
        ),
    )
    text = compose_text(Path("/lab"), settings, FACTS, PLAN, NONE, "image", None)
    found = yaml.safe_load(text)["services"]["slurm"]
    seen = [each for each in found["volumes"] if "/opt/" in each]
    assert seen == ["/opt/cuda:/opt/cuda", "/opt/cuda-12:/opt/cuda-12:ro", "/opt/rocm:/opt/rocm:ro"]
    assert found["environment"]["DSHPC_TOOLKITS"] == "cuda=/opt/cuda:rocm=/opt/rocm"
