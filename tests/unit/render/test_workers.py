"""Several nodes in one compose file: each a service, and none changed by what becomes of another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import Cpu, Engine, Gpus, HostFacts, Memory, Platform
from dshpc_setup.passthrough import Passthrough
from dshpc_setup.passthrough.handover import Handover
from dshpc_setup.plan import most_nodes, plan_cluster, refuse_too_many
from dshpc_setup.render import stanza
from dshpc_setup.render.configuration import render_slurm
from dshpc_setup.render.labels import is_as_rendered, part_of, parts, rendered_label
from dshpc_setup.settings import load

FACTS = HostFacts(
    Platform("linux"), Cpu(2, usable=2), Memory(8000, 8000), Gpus("absent"), Engine("present")
)
NONE = Passthrough(Handover("none"), "No GPU was found.")


def written(nodes: str, facts: HostFacts = FACTS, **flags: str) -> str:
    settings = load(flags={"nodes": nodes, **flags})
    workers = []
    for number in range(2, len(settings.profiles) + 1):
        own = settings.of_worker(number)
        devices = ("/dev/null:/dev/nvidia0",) if own.simulate else ()
        workers.append(
            stanza.Worker(
                own,
                plan_cluster(FACTS, own),
                Passthrough(Handover("simulated" if devices else "none", devices=devices), "ok"),
            )
        )
    plan = plan_cluster(FACTS, settings)
    return stanza.compose_text(
        Path("/home/ada/lab"), settings, facts, plan, NONE, "dshpc-slurm:none", None, workers
    )


def services(text: str) -> dict[str, Any]:
    found = yaml.safe_load(text)["services"]
    assert isinstance(found, dict)
    return found


def test_each_node_is_a_service_of_the_same_image() -> None:
    found = services(written("none,none,h100"))
    assert list(found) == ["slurm", "slurm-2", "slurm-3"]
    assert [each["hostname"] for each in found.values()] == ["dshpc", "dshpc-2", "dshpc-3"]
    assert [each["container_name"] for each in found.values()] == [
        "dshpc-slurm", "dshpc-slurm-2", "dshpc-slurm-3",
    ]  # fmt: skip
    assert {each["image"] for each in found.values()} == {"dshpc-slurm:none"}
    assert not any("ports" in each or "extra_hosts" in each for each in found.values())
    assert [each["networks"]["default"]["aliases"] for each in found.values()] == [
        ["dshpc"], ["dshpc-2"], ["dshpc-3"],
    ]  # fmt: skip
    assert found["slurm-3"]["environment"]["DSHPC_SIMULATE"] == "h100"
    assert found["slurm-3"]["environment"]["DSHPC_ROLE"] == "worker"
    assert found["slurm"]["environment"]["DSHPC_ROLE"] == "controller"
    assert "devices" not in found["slurm-2"]
    assert found["slurm-3"]["devices"] == ["/dev/null:/dev/nvidia0"]


def test_a_worker_may_not_write_the_key() -> None:
    found = services(written("2"))
    assert "key:/var/lib/dshpc/key" in found["slurm"]["volumes"]
    assert "key:/var/lib/dshpc/key:ro" in found["slurm-2"]["volumes"]
    others = set(found["slurm"]["volumes"]) ^ set(found["slurm-2"]["volumes"])
    assert others == {"key:/var/lib/dshpc/key", "key:/var/lib/dshpc/key:ro"}


def test_a_node_that_comes_or_goes_changes_no_other() -> None:
    two, four = services(written("2")), services(written("4"))
    assert {name: four[name] for name in two} == two
    other = services(written("none,none,h100,none"))
    assert other["slurm-2"] == services(written("none,none,t4,none"))["slurm-2"]


def test_it_is_known_as_ours_until_somebody_edits_any_node() -> None:
    text = written("3")
    assert is_as_rendered(text)
    assert is_as_rendered(written("1"))
    main, workers = parts(text)
    assert len(workers) == 2
    for part in (main, *workers):
        assert part.splitlines()[-1] in text
    for old, new in (
        ('DSHPC_NODE: "dshpc-3"', 'DSHPC_NODE: "x"'),
        ('shm_size: "1g"', "shm_size: 9g"),
    ):
        assert old in text
        assert not is_as_rendered(text.replace(old, new))
    last = text.rindex(old)
    assert not is_as_rendered(text[:last] + new + text[last + len(old) :])


def test_the_part_of_a_container() -> None:
    text = written("3")
    main, workers = parts(text)
    assert part_of(text, "dshpc-slurm") == main
    assert part_of(text, "dshpc-slurm-3") == workers[1]
    assert part_of(text, "dshpc-slurm-4") is None
    labels = [rendered_label(part) for part in (main, *workers)]
    assert len(set(labels)) == 3


def test_one_node_is_what_it_was() -> None:
    assert services(written("1"))["slurm"]["extra_hosts"] == ["dshpc:127.0.0.1"]
    plan = plan_cluster(FACTS, load())
    assert not any(
        "MaxNodeCount" in text or "look_at_nodes" in text for text in render_slurm(plan).values()
    )


def test_several_nodes_register_themselves() -> None:
    settings = load(flags={"nodes": "2", "slurm_conf_extra": "SlurmdTimeout=300"})
    text = render_slurm(plan_cluster(FACTS, settings))
    assert "MaxNodeCount=1024" in text["slurm.conf"]
    assert "SlurmdTimeout=60" not in text["slurm.conf"]
    assert "a heterogeneous job can never run here" not in text["job_submit.lua"]
    assert "look_at_nodes()" in text["cli_filter.lua"]


def test_what_a_job_gets_by_default_does_for_the_node_with_most_gpus() -> None:
    """Partitions, and with them these values, are the same for all nodes."""
    many = plan_cluster(FACTS, load(flags={"nodes": "none,h100:8"}))
    alone = plan_cluster(FACTS, load())
    assert alone.def_mem_per_gpu_mib is None
    assert many.def_mem_per_gpu_mib == (7200 - 7200 // 8) // 8
    assert many.oversubscribe == 5


def test_a_small_machine_carries_so_many() -> None:
    assert most_nodes(FACTS) == 8000 // 512
    refuse_too_many(FACTS, load(flags={"nodes": "15"}))
    with pytest.raises(
        DshpcError, match="16 nodes are too many for this machine: 15 at most"
    ) as told:
        refuse_too_many(FACTS, load(flags={"nodes": "16"}))
    assert told.value.exit_code == 64
    large = replace(FACTS, memory=Memory(999_999, 999_999))
    assert most_nodes(large) == 32


PODMAN = replace(FACTS, engine=Engine("present", kind="podman", host="podman"))
BUILTIN = replace(FACTS, engine=Engine("present", kind="builtin"))


@pytest.mark.parametrize("facts", [PODMAN, BUILTIN], ids=["podman", "builtin"])
def test_nodes_that_share_the_machines_network_come_and_go_without_the_controller(
    facts: HostFacts,
) -> None:
    two = written("none,h100", facts, slurm_ports="7001,7002,7003,7004")
    three = written("none,h100,h100", facts, slurm_ports="7001,7002,7003,7004,7005")
    assert parts(two)[0] == parts(three)[0]
    assert parts(two)[1][0].split() == parts(three)[1][0].split()
    ports = [each["environment"]["DSHPC_SLURM_PORTS"] for each in services(three).values()]
    assert ports == ["7001,7002,7003", "7001,7004,7003", "7001,7005,7003"]
    shared = [each["environment"].get("DSHPC_SHARED_NETWORK") for each in services(three).values()]
    assert shared == [None, "1", "1"]


def test_podmans_nodes_have_the_machines_network_and_one_alone_has_its_own() -> None:
    several = services(written("2", PODMAN, rest="127.0.0.1:6820"))
    assert {each["network_mode"] for each in several.values()} == {"host"}
    assert not any({"networks", "ports", "extra_hosts"} & set(each) for each in several.values())
    assert "network_mode" not in services(written("1", PODMAN))["slurm"]
