"""The settings of a cluster of several machines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dshpc_setup.settings import ELSEWHERE, Place, SettingsError, load, of_container


@pytest.mark.parametrize(
    "text", ["192.0.2.7", "eth0", "enp3s0f1", "br-lan", "wg0", "off", "bond0.17"]
)
def test_an_address_or_an_interface(text: str) -> None:
    found = load(flags={"listen": text})
    assert (found.listen, found.listens) == (text, text != "off")
    assert found.place == (Place("controller") if text != "off" else Place())


@pytest.mark.parametrize(
    "text",
    [
        "0.0.0.0",
        "::1",
        "fe80::1",
        "10.0.0",
        "1.2.3.4:6817",
        "a b",
        "a/b",
        "x" * 16,
        "224.0.0.1",
        "",
    ],
)
def test_what_is_neither(text: str) -> None:
    with pytest.raises(SettingsError):
        load(flags={"listen": text})


@pytest.mark.parametrize("text", ["61001-61064", "1024-65535"])
def test_enough_ports(text: str) -> None:
    assert load(flags={"srun_ports": text}).srun_ports == tuple(map(int, text.split("-")))


@pytest.mark.parametrize(
    "text", ["61001-61063", "1023-2000", "2000-1024", "65000-65536", "61001", "a-b"]
)
def test_too_few_or_no_ports(text: str) -> None:
    with pytest.raises(SettingsError):
        load(flags={"srun_ports": text})


def test_several_nodes_here_and_other_machines_exclude_each_other() -> None:
    with pytest.raises(SettingsError, match="several nodes here"):
        load(flags={"listen": "eth0", "nodes": "2"})


def test_a_container_knows_that_it_has_joined() -> None:
    place = Place("worker", "lab2", controller="10.0.0.1")
    here = load(flags={"listen": "eth0"}).joined(place)
    env = {**here.container_env(), **place.to_env()}
    found = of_container({**env, **here.live_env()})
    assert (found.place, found.listen) == (place, "eth0")
    assert of_container(env).place == replace(place, controller=ELSEWHERE)
    assert found.place.is_joined
    assert not of_container({**env, "DSHPC_ROLE": "controller"}).place.is_joined
