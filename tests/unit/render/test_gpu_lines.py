"""The GPU lines of a compose file are read back as they were wanted, in each form that we write."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from dshpc_setup.documents import yaml_nodes
from dshpc_setup.errors import DshpcError
from dshpc_setup.passthrough.candidates import candidates
from dshpc_setup.passthrough.handover import DeviceRequest, GpuStanza
from dshpc_setup.plan import plan_cluster
from dshpc_setup.render import gpu_lines
from dshpc_setup.render.gpu_lines import Claim, cluster_lines, lines, parts, read
from dshpc_setup.render.gpu_stanza import gpu_stanza
from dshpc_setup.settings import Settings
from tests.unit.machine.test_machines import NAMES, look

AGAIN = "a key is in parts and _CLUSTER of render/gpu_lines.py; a Claim in claims of this file"
# Among keys of the cluster's own: docker-compose.yml.j2 and render/stanza.py
IN_TEMPLATE = {("environment",), ("volumes",), ("security_opt",), ("cap_add",)}
COMPOSE = ("1.29.2", "2.26.1", "2.40.0")


@cache
def stanzas() -> tuple[GpuStanza, ...]:
    """Each one that some machine may get, by each mechanism and for each form of compose."""
    found: dict[str, GpuStanza] = {}
    for name in NAMES:
        facts = look(name)
        try:
            plan = plan_cluster(facts, Settings())
        except DshpcError:
            continue
        for row in candidates(facts, plan, True) if plan.gres else ():
            for version in COMPOSE if row.handover is not None else ():
                assert row.handover is not None
                stanza = gpu_stanza(row.handover, version, profiling=True)
                found[repr(stanza)] = stanza
    return tuple(found.values())


def claims(stanza: GpuStanza) -> set[Claim]:
    """What the stanza says, without its lines."""

    def of(request: DeviceRequest) -> Iterator[Claim]:
        if request.driver == "cdi":
            yield from (Claim("cdi", name) for name in request.ids)
        else:
            yield Claim("request", request.driver, request.ids or ("all",))

    found = {claim for each in (*stanza.gpus, *stanza.reservations) for claim in of(each)}
    for device in stanza.devices:
        outside, _, inside = device.partition(":")
        is_node = device.startswith("/")
        found.add(Claim("node", outside, (inside or outside,)) if is_node else Claim("cdi", device))
    found |= {Claim("group", str(group)) for group in stanza.group_add}
    if stanza.runtime:
        found.add(Claim("runtime", stanza.runtime))
    return found


def said(written: list[str]) -> dict[str, Any]:
    return yaml_nodes.load("\n".join(written)) or {}


def test_what_is_written_is_read_back() -> None:
    assert len(stanzas()) > 50
    for stanza in stanzas():
        variables = {Claim("variable", *_pair(item)) for item in stanza.environment.items()}
        assert set(read(said(lines(stanza)))) == claims(stanza) | variables, AGAIN
        assert set(read(said(cluster_lines(stanza)))) == claims(stanza), AGAIN


def _pair(item: tuple[str, str]) -> tuple[str, tuple[str, ...]]:
    return item[0], (item[1],)


def test_each_key_is_in_the_clusters_own_file() -> None:
    found = {part.path for stanza in stanzas() for part in parts(stanza)}
    assert found == {*gpu_lines._CLUSTER, *IN_TEMPLATE}, (
        "into _CLUSTER, or into docker-compose.yml.j2 and IN_TEMPLATE"
    )


def test_a_part_alone_says_the_same_as_its_lines() -> None:
    for stanza in stanzas():
        apart = {claim for part in parts(stanza) for claim in read(part.below(part.path))}
        assert apart == set(read(said(lines(stanza))))


def test_every_claim_has_its_place() -> None:
    for stanza in stanzas():
        service = said(lines(stanza))
        for claim in read(service):
            at: Any = service
            for step in claim.place:
                at = at[step]
            assert at is not None


RESERVED = "deploy: {resources: {reservations: {devices: [{%s}]}}}"
ALL = (Claim("request", "nvidia", ("all",)),)
READ: dict[str, tuple[Claim, ...]] = {
    "gpus: all": ALL,
    "gpus: [{}]": ALL,
    "gpus: [{count: -1}]": ALL,
    "gpus: [{driver: amd, count: 2}]": (Claim("request", "amd", ("2",)),),
    "gpus: [{device_ids: ['0'], options: {a: b}}]": (Claim("request", "nvidia", ("0",), True),),
    "gpus: [all]": (Claim("request", "?", ("all",)),),
    "gpus:": (),
    # a driver that is not named is NVIDIA's where a GPU is asked for, and nobody's elsewhere
    RESERVED % "capabilities: [gpu]": ALL,
    RESERVED % "capabilities: [[gpu, compute]]": ALL,
    RESERVED % "driver: nvidia": ALL,
    RESERVED % "capabilities: [tpu]": (),
    RESERVED % "driver: x, capabilities: [tpu]": (),
    RESERVED % "driver: cdi, device_ids: [a/b=0]": (Claim("cdi", "a/b=0"),),
    "devices: [a/b=0]": (Claim("cdi", "a/b=0"),),
    "devices: [/dev/kfd]": (Claim("node", "/dev/kfd", ("/dev/kfd",)),),
    "devices: ['/dev/kfd:/dev/kfd:rwm']": (Claim("node", "/dev/kfd", ("/dev/kfd",)),),
    "devices: [{source: /dev/a, target: /dev/b}]": (Claim("node", "/dev/a", ("/dev/b",)),),
    "environment: [A=b, C]": (Claim("variable", "A", ("b",)), Claim("variable", "C")),
    "environment: {A: b, C: }": (Claim("variable", "A", ("b",)), Claim("variable", "C")),
    "volumes: [/a:/a]": (),
}


@pytest.mark.parametrize("text", READ)
def test_what_people_write(text: str) -> None:
    assert tuple(read(yaml_nodes.load(text))) == READ[text]
