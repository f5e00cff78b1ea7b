"""KFD's tree: whatever stands in its files, and what real ones hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.probes.amd import kfd
from dshpc_setup.probes.trace import Trace
from tests.unit.probes.made_machine import MadeMachine

NUMBERS = st.integers(min_value=-1, max_value=1 << 66) | st.sampled_from([0, 1, 2, 11, 1 << 63])
KEYS = st.sampled_from(
    [
        "simd_count", "location_id", "domain", "drm_render_minor", "gfx_target_version", "unique_id",
        "device_id", "size_in_bytes", "heap_type", "type", "node_to", "node_from", "weight", "flags",
        "min_bandwidth", "max_bandwidth", "local_mem_size", "cpu_cores_count",
    ]
)  # fmt: skip
LINE = st.builds(lambda key, number: f"{key} {number}", KEYS, NUMBERS) | st.text(max_size=30)
PROPERTIES = st.lists(LINE, max_size=12).map("\n".join)


@given(text=PROPERTIES)
def test_no_text_trips_a_parser(text: str) -> None:
    found = kfd.parse_properties(text)
    assert all(0 <= number < 1 << 64 for number in found.values())
    assert kfd.parse_bank(text) >= 0
    link = kfd.parse_link(text)
    assert link is None or 1 <= link.count <= 16


@given(number=st.integers())
def test_no_number_trips_the_target(number: int) -> None:
    target = kfd.gfx_target(number)
    assert target is None or target.startswith("gfx")


@given(
    texts=st.dictionaries(
        st.sampled_from(
            [f"{number}/{file}" for number in (0, 1, 2, 10)
             for file in ("properties", "mem_banks/0/properties", "io_links/0/properties",
                          "p2p_links/1/properties")]
        )
        | st.text(max_size=8),
        st.none() | PROPERTIES,
        max_size=12,
    )
)  # fmt: skip
def test_no_tree_trips_the_fetch(texts: dict[str, str | None]) -> None:
    machine = MadeMachine({f"{kfd.NODES}/{path}": text for path, text in texts.items()})
    found = kfd.fetch(Trace(machine))
    numbers = [node.number for node in found.nodes]
    assert numbers == sorted(numbers)
    for node in found.nodes:
        assert node.minor is None or node.minor > 0
        assert node.address is None or node.address.count(":") == 2


def test_nodes_are_in_the_order_of_their_numbers() -> None:
    files: dict[str, str | None] = {
        f"{kfd.NODES}/{number}/properties": f"simd_count 4\nlocation_id {number << 8}\n"
        for number in (10, 2, 9)
    }
    nodes = kfd.fetch(Trace(MadeMachine(files))).nodes
    assert [node.number for node in nodes] == [2, 9, 10]


def test_cpus_and_refused_nodes_are_no_gpus() -> None:
    files = {
        f"{kfd.NODES}/0/properties": "cpu_cores_count 8\nsimd_count 0\n",
        f"{kfd.NODES}/1/properties": None,
        f"{kfd.NODES}/2/properties": "rubbish",
    }
    found = kfd.fetch(Trace(MadeMachine(files)))
    assert (found.nodes, found.cpus, found.denied) == ((), frozenset({0}), 1)
    assert found.unreadable == "rubbish"


def test_a_partition_has_its_number_and_an_address() -> None:
    node = kfd.Node(3, {"location_id": 3 << 28 | 0x1200, "domain": 1, "unique_id": (1 << 64) - 1})
    assert (node.part, node.upper, node.address) == (3, 3, "0001:12:00.0")
    assert node.unique_id == 0xFFFFFFFFFFFFFFFF
    node = kfd.Node(3, {"location_id": 0x0A03})
    assert (node.part, node.upper, node.address) == (3, 0, "0000:0a:00.3")


def test_memory_is_the_sum_of_the_cards_own_banks() -> None:
    assert kfd.parse_bank("heap_type 1\nsize_in_bytes 17\n") == 17
    assert kfd.parse_bank("heap_type 2\nsize_in_bytes 17\n") == 17
    assert kfd.parse_bank("heap_type 0\nsize_in_bytes 17\n") == 0


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("type 11\nnode_to 2\nweight 15\nflags 1\n", 1),
        ("type 11\nnode_to 2\nweight 15\nmin_bandwidth 50000\nmax_bandwidth 200000\nflags 1\n", 4),
        ("type 11\nnode_to 2\nweight 15\nmin_bandwidth 1\nmax_bandwidth 200000\n", 1),
        ("type 11\nnode_to 2\nweight 41\nflags 1\n", 1),  # between partitions of two cards
        ("type 11\nnode_to 2\nweight 30\nflags 1\n", None),  # over another GPU
        ("type 11\nnode_to 2\nweight 15\nflags 0\n", None),
        ("type 2\nnode_to 2\nweight 20\nflags 1\n", None),  # PCI Express
        ("", None),
    ],
)
def test_links(text: str, count: int | None) -> None:
    link = kfd.parse_link(text)
    assert (link.count if link else None) == count


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (90402, "gfx942"),
        (90010, "gfx90a"),
        (90008, "gfx908"),
        (100306, "gfx1036"),
        (110000, "gfx1100"),
        (120001, "gfx1201"),
        (0, None),
        (1 << 63, None),
    ],
)
def test_gfx_targets(version: int, expected: str | None) -> None:
    assert kfd.gfx_target(version) == expected
