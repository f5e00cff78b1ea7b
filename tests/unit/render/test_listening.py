"""A cluster of several machines: what its files say that those of one machine do not."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from dshpc_setup.plan import plan_cluster, wrong_settings
from dshpc_setup.plan.model import OWNED_NODE, OWNERS, SHARED_NODE
from dshpc_setup.render import stanza
from dshpc_setup.render.configuration import render_slurm
from dshpc_setup.render.labels import is_as_rendered
from dshpc_setup.settings import Place, Settings, load
from tests.unit.render.test_workers import FACTS, NONE

NODE = Place("worker", "lab2", controller="10.0.0.1")


def service(settings: Settings) -> dict[str, Any]:
    plan = plan_cluster(FACTS, settings)
    text = stanza.compose_text(
        Path("/home/ada/lab"), settings, FACTS, plan, NONE, "lab-slurm:none", None
    )
    assert is_as_rendered(text)
    found = yaml.safe_load(text)["services"]["slurm"]
    assert isinstance(found, dict)
    return found


def slurm_conf(settings: Settings) -> list[str]:
    return render_slurm(plan_cluster(FACTS, settings))["slurm.conf"].splitlines()


def test_one_machine_publishes_nothing_and_has_no_other_network() -> None:
    found = service(load(flags={"prefix": "lab"}))
    assert not {"network_mode", "ports"} & found.keys()
    assert found["extra_hosts"] == ["lab:127.0.0.1"]
    lines = slurm_conf(load(flags={"prefix": "lab"}))
    assert not any(line.startswith(("SrunPortRange", "LaunchParameters")) for line in lines)


@pytest.mark.parametrize("rest", ["off", "10.0.0.1:6820"])
def test_with_listen_it_has_the_machines_own(rest: str) -> None:
    found = service(load(flags={"prefix": "lab", "listen": "eth0", "rest": rest}))
    assert found["network_mode"] == "host"
    assert not {"ports", "networks", "extra_hosts"} & found.keys()
    assert found["environment"]["DSHPC_LISTEN"] == "eth0"
    assert found["environment"]["DSHPC_ROLE"] == "controller"


def test_the_daemons_listen_at_one_address_and_srun_at_known_ports() -> None:
    settings = load(
        flags={"listen": "eth0", "srun_ports": "50000-50200", "slurm_ports": "7001,7002"}
    )
    lines = slurm_conf(settings)
    for line in (
        "CommunicationParameters=NoInAddrAny,NoCtldInAddrAny", "SrunPortRange=50000-50200",
        "SlurmctldPort=7001", "SlurmdPort=7002", "LaunchParameters=enable_nss_slurm", "MaxNodeCount=1024",
    ):  # fmt: skip
        assert line in lines
    assert not any(line.startswith("Prolog=") for line in lines)


def test_what_the_user_says_of_it_counts() -> None:
    extra = "SrunPortRange=40000-41000\nProlog=/etc/mine"
    settings = load(flags={"listen": "eth0", "slurm_conf_extra": extra, "prefix": "lab"})
    for each in (settings, settings.joined(NODE)):
        lines = slurm_conf(each)
        assert [
            line for line in lines if line.startswith(("SrunPortRange", "Prolog="))
        ] == extra.split("\n")


def test_a_node_of_one_user_is_in_a_partition_of_such_alone() -> None:
    extra = "PartitionName=night Nodes=ALL MaxTime=60"
    settings = load(flags={"listen": "eth0", "prefix": "lab", "slurm_conf_extra": extra})
    owned = settings.joined(replace(NODE, owner=4711))
    for each, feature in (
        (settings, SHARED_NODE),
        (settings.joined(NODE), SHARED_NODE),
        (owned, OWNED_NODE),
    ):
        lines = slurm_conf(each)
        (node,) = (line for line in lines if line.startswith("NodeName="))
        assert re.search(rf"Feature=\S*\b{feature}\b", node)
        assert f"NodeSet={feature} Feature={feature}" in lines
        nodes = dict(re.findall(r"(?m)^PartitionName=(\S+) Nodes=(\S+)", "\n".join(lines)))
        assert nodes == {"debug": SHARED_NODE, OWNERS: OWNED_NODE, "night": SHARED_NODE}
    assert service(owned)["environment"]["DSHPC_OWNER"] == "4711"
    assert "Nodes=ALL" in "".join(slurm_conf(load(flags={"prefix": "lab"})))


@pytest.mark.parametrize(
    "flags",
    [
        {"partition": "owners"},
        {"partitions": "a,Owners"},
        {"slurm_conf_extra": "PartitionName=owners"},
    ],
)
def test_its_partition_is_no_other_ones(flags: dict[str, str]) -> None:
    assert wrong_settings(load(flags={"listen": "eth0", **flags}))
    assert not wrong_settings(load(flags=flags))


def test_a_node_on_another_machine() -> None:
    settings = load(flags={"listen": "eth0", "prefix": "lab"}).joined(NODE)
    found = service(settings)
    assert (found["hostname"], found["container_name"]) == ("lab2", "lab-slurm")
    environment = found["environment"]
    assert (environment["DSHPC_ROLE"], environment["DSHPC_NODE"]) == ("worker", "lab2")
    # What may change while its jobs run does not make the container anew
    assert (environment["DSHPC_CONTROLLER"], environment["DSHPC_LISTEN"]) == ("elsewhere",) * 2
    assert settings.live_env() == {"DSHPC_CONTROLLER": "10.0.0.1", "DSHPC_LISTEN": "eth0"}
    assert settings.live_digests() == {}
    assert "key:/var/lib/dshpc/key" in found["volumes"]  # it is given the key there
    lines = slurm_conf(settings)
    assert "SlurmctldHost=lab" in lines
    assert "Prolog=/usr/local/lib/dshpc/user-prolog" in lines
    assert 'PrEpPlugins=""' not in lines
