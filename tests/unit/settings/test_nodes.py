"""The setting `nodes`: how many there are, or what each of them simulates."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.settings import Place, Settings, load, of_container, read
from dshpc_setup.settings.texts import MOST_NODES, nodes

PROFILES = st.sampled_from(["h100:2", "h100:8", "mig", "mi300x:8", "t4", "h100:2+t4:1", "none"])


def settings(**flags: str) -> Settings:
    return load(flags=flags)


def test_a_number_counts_the_controllers_own() -> None:
    found = settings(nodes="3", simulate="h100:2")
    assert found.profiles == ("h100:2",) * 3
    assert found.place == Place("controller", most_gpus=2)
    assert found.worker_containers == {"dshpc-2": "dshpc-slurm-2", "dshpc-3": "dshpc-slurm-3"}
    assert settings(nodes="1", simulate="h100:2").place == Place()


def test_a_list_says_what_each_one_simulates() -> None:
    text = "nodes: [h100:8, h100:8, mi300x:8, none]\n"
    found = load(yaml_text=text)
    assert found.profiles == ("h100:8", "h100:8", "mi300x:8", "")
    assert found.simulate == "h100:8"
    assert found.container_env()["DSHPC_SIMULATE"] == "h100:8"
    assert found.place.most_gpus == 8
    last = found.of_worker(4)
    assert (last.node, last.simulate, last.gpu) == ("dshpc-4", "", "none")
    assert last.container_env()["DSHPC_GPU"] == "none"
    assert found.of_worker(3).container_env()["DSHPC_SIMULATE"] == "mi300x:8"


def test_real_gpus_are_the_first_nodes() -> None:
    found = settings(nodes="2", devices="0")
    assert found.of_worker(2).gpu == "none"
    assert found.of_worker(2).devices == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0", "must be a number from 1 to 1024"),
        ("1025", "must be a number from 1 to 1024"),
        ("99999999999999999999", "item 1 is '99999999999999999999'"),
        ("x", "item 1 is 'x', neither a number of nodes"),
        ("h100:2,zz", "item 2 is 'zz'"),
        ("h100:2,h100:99", "item 2 is 'h100:99'"),
        ("-1", "item 1 is '-1'"),
        ("", "names no node"),
        (" , ", "names no node"),
        ("removed,h100:2", "item 1 removes the controller's own node"),
    ],
)
def test_what_is_no_number_and_no_list_is_named(text: str, words: str) -> None:
    (wrong,) = read(flags={"nodes": text}).wrong
    assert words in wrong.brief


def test_a_list_and_another_word_on_the_first_node() -> None:
    (wrong,) = read(flags={"nodes": "h100:2,none", "simulate": "t4"}).wrong
    assert "says that the first node simulates h100:2" in wrong.brief
    assert not read(flags={"nodes": "h100:2,none", "simulate": "h100:2"}).wrong
    remembered = read(remembered={"simulate": "t4"}, yaml_text="nodes: [h100:2, none]\n")
    assert not remembered.wrong
    assert remembered.settings.simulate == "h100:2"


@given(st.lists(PROFILES, min_size=1, max_size=20))
def test_each_node_is_told_its_place(profiles: list[str]) -> None:
    found = settings(nodes=",".join(profiles))
    assert found.profiles == tuple("" if it == "none" else it for it in profiles)
    assert len(found.worker_containers) == len(profiles) - 1
    for number in range(2, len(profiles) + 1):
        own = found.of_worker(number)
        env = {**own.container_env(), **own.place.to_env()}
        inside = of_container(env)
        assert (inside.node, inside.simulate, inside.gpu) == (own.node, own.simulate, own.gpu)
        assert inside.place == own.place
    first = of_container({**found.container_env(), **found.place.to_env()})
    assert (first.node, first.simulate) == (found.node, found.simulate)


def test_one_that_is_removed_leaves_the_others_their_names() -> None:
    found = settings(nodes="h100:2,removed,t4,none,removed")
    assert found.worker_containers == {"dshpc-3": "dshpc-slurm-3", "dshpc-4": "dshpc-slurm-4"}
    assert found.of_worker(3).simulate == "t4"
    assert found.place == Place("controller", most_gpus=2)
    assert settings(nodes="h100:2,removed").place == Place()
    whole = settings(nodes="3", simulate="h100:2")
    assert whole.without_worker(2) == "h100:2,removed,h100:2"
    assert whole.without_worker(3) == "2"
    assert settings(nodes="2").without_worker(2) == "1"
    assert settings(nodes="3").without_worker(2) == "none,removed,none"


@given(st.lists(PROFILES, min_size=2, max_size=9), st.randoms(use_true_random=False))
def test_removed_one_by_one_none_is_left(profiles: list[str], random: Random) -> None:
    found = settings(nodes=",".join(profiles))
    left = dict(found.worker_containers)
    while left:
        gone = random.choice(list(left))
        text = found.without_worker(int(gone.rpartition("-")[2]))
        found = settings(nodes=text)
        del left[gone]
        assert found.worker_containers == left
        for node in left:
            number = int(node.rpartition("-")[2])
            assert found.of_worker(number).simulate == profiles[number - 1].replace("none", "")
    assert found.nodes == (found.simulate,)


@given(st.text(max_size=30))
def test_no_text_is_more_than_a_wrong_value(text: str) -> None:
    try:
        found = nodes(text)
    except ValueError:
        return
    assert 1 <= (found if isinstance(found, int) else len(found)) <= MOST_NODES


def test_a_container_that_is_alone_is_told_nothing() -> None:
    assert Place().to_env() == {}
    assert of_container({"DSHPC_NODE": "x", "DSHPC_MOST_GPUS": "3"}).place == Place()
    assert of_container({"DSHPC_ROLE": "controller", "DSHPC_MOST_GPUS": "x"}).place.most_gpus == 0
