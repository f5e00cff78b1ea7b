"""Cores near each GPU in Slurm's own numbers, and the connections between GPUs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.facts import Cpu, GpuDevice, Link, MigInstance
from dshpc_setup.plan import plan_cluster
from dshpc_setup.probes import ranges
from dshpc_setup.settings import load
from tests.unit.plan.made import facts, gpu, two_sockets


def near(*cores: str | None) -> list[GpuDevice]:
    return [replace(gpu(index), cores=each) for index, each in enumerate(cores)]


def cores_of(devices: list[GpuDevice], cpu: Cpu) -> list[str | None]:
    return [line.cores for line in plan_cluster(facts(*devices, cpu=cpu), load()).gres]


@pytest.mark.parametrize(
    ("cores", "expected"),
    [
        (("0-7,16-23", "8-15,24-31"), ["0-7", "8-15"]),
        (("8-15,24-31", "0-7,16-23"), ["8-15", "0-7"]),
        # a part of a socket stands for the socket: Slurm knows sockets alone
        (("0-3,16-19", "8-11,24-27", "4-7,20-23", "12-15"), ["0-7", "8-15", "0-7", "8-15"]),
        # more near one socket than near the other: Slurm would refuse jobs on all of them
        (("0-7,16-23", "0-7,16-23"), [None, None]),
        (("0-7,16-23", "0-7,16-23", "8-15,24-31"), [None, None, None]),
        (("8-15,24-31",), [None]),
        # all lines or none
        (("0-7,16-23", "8-15,24-31", None), [None, None, None]),
        (("0-7,16-23", "0-31"), [None, None]),
        (("64-71", "99"), [None, None]),
    ],
)
def test_cores(cores: tuple[str | None, ...], expected: list[str | None]) -> None:
    assert cores_of(near(*cores), two_sockets()) == expected


def test_cores_are_slurms_numbers_and_not_the_kernels() -> None:
    turns = Cpu(8, 2, 4, 1, 8, socket_cpus=("0,2,4,6", "1,3,5,7"))
    assert cores_of(near("0,2,4,6", "1,3,5,7"), turns) == ["0-3", "4-7"]
    single = Cpu(2, 2, 1, 1, 2, socket_cpus=("0", "1"))
    assert cores_of(near("0", "1"), single) == ["0", "1"]


def test_every_socket_has_as_many_gpus() -> None:
    four = Cpu(8, 4, 2, 1, 8, socket_cpus=("0-1", "2-3", "4-5", "6-7"))
    assert cores_of(near("0-1", "2-3", "4-5", "6-7"), four) == ["0-1", "2-3", "4-5", "6-7"]
    assert cores_of(near("0-1", "2-3"), four) == [None, None]
    assert cores_of(near("0-3", "4-7"), four) == [None, None]


@pytest.mark.parametrize(
    "cpu",
    [
        Cpu(8, 1, 4, 2, 8, socket_cpus=("0-7",)),
        replace(two_sockets(), socket_cpus=()),
        replace(two_sockets(), usable=16, limited_by="cpuset"),
        replace(two_sockets(), cores_per_socket=None, threads_per_core=None),
    ],
)
def test_no_cores_without_a_shape_of_several_sockets(cpu: Cpu) -> None:
    assert cores_of(near("0-7,16-23", "8-15,24-31"), cpu) == [None, None]


def test_mig_instances_are_near_what_their_card_is_near() -> None:
    part = MigInstance("7g.80gb", "MIG-a", 81000, ("/dev/nvidia1", "/dev/c1", "/dev/c2"))
    cut = replace(gpu(1), mig_mode="enabled", mig=(part,), cores="8-15,24-31")
    here = facts(near("0-7,16-23")[0], cut, cpu=two_sockets())
    here = replace(here, gpus=replace(here.gpus, simulated=True))
    assert [line.cores for line in plan_cluster(here, load()).gres] == ["0-7", "8-15"]


@st.composite
def _machines(draw: st.DrawFn) -> tuple[Cpu, list[GpuDevice]]:
    sockets, cores, threads = draw(st.sampled_from(list(product((1, 2, 3, 4), (1, 2, 5), (1, 2)))))
    numbers = draw(st.permutations(range(sockets * cores * threads)))
    size = cores * threads
    members = sorted(
        (numbers[first : first + size] for first in range(0, len(numbers), size)), key=min
    )
    cpu = Cpu(
        len(numbers),
        sockets,
        cores,
        threads,
        len(numbers),
        socket_cpus=tuple(map(ranges.text, members)),
    )
    texts = st.none() | st.frozensets(st.sampled_from(numbers)).map(ranges.text)
    return cpu, near(*draw(st.lists(texts, min_size=1, max_size=6)))


@given(_machines())
def test_cores_are_a_socket_on_every_line_and_as_often_or_on_none(
    made: tuple[Cpu, list[GpuDevice]],
) -> None:
    cpu, devices = made
    found = cores_of(devices, cpu)
    assert len(found) == len(devices)
    if found[0] is None:
        assert set(found) == {None}
        return
    size, sockets = cpu.cores_per_socket or 0, cpu.sockets or 0
    for text in found:
        told = ranges.parse(text)
        assert len(told) == size
        assert min(told) % size == 0
        assert max(told) == min(told) + size - 1 < size * sockets
    assert set(Counter(found).values()) == {len(devices) // sockets}


def joined(*links: dict[int, int], kind: str = "h100") -> list[GpuDevice]:
    """GPUs with so many connections to others, by their index."""
    return [
        replace(
            gpu(index, kind),
            links=tuple(
                Link("nvlink", count, f"0000:{peer:02x}:00.0", "gpu")
                for peer, count in each.items()
            ),
        )
        for index, each in enumerate(links)
    ]


def links_of(devices: list[GpuDevice]) -> list[tuple[int, ...]]:
    return [line.links for line in plan_cluster(facts(*devices), load()).gres]


def test_links_where_they_tell_gpus_apart() -> None:
    pairs = joined({2: 4}, {3: 4}, {0: 4}, {1: 4})
    assert links_of(pairs) == [(-1, 0, 4, 0), (0, -1, 0, 4), (4, 0, -1, 0), (0, 4, 0, -1)]


def test_a_connection_that_one_end_alone_tells_counts_for_both() -> None:
    assert links_of(joined({1: 2}, {}, {})) == [(-1, 2, 0), (2, -1, 0), (0, 0, -1)]


@pytest.mark.parametrize(
    "devices",
    [
        joined({}, {}, {}),
        joined({1: 4}, {0: 4}),
        joined({1: 1, 2: 1}, {0: 1, 2: 1}, {0: 1, 1: 1}),  # all alike
        joined({2: 4}, {3: 4}, {0: 4}, {1: 4})[:2],  # what they are joined to is not used
        [*joined({1: 4}, {0: 4}), gpu(2, "t4")],  # slurmd sorts lines of several types
        [replace(item, pci_bus_id=None) for item in joined({1: 4}, {0: 4}, {})],
        [replace(item, partition_of="0000:01:00.0") for item in joined({1: 4}, {0: 4}, {})],
        # through a switch each reaches each
        [
            replace(item, links=(Link("nvlink", 18, "0000:c0:00.0", "switch"),))
            for item in joined({}, {}, {})
        ],
    ],
)
def test_no_links_where_they_say_nothing_or_the_order_is_not_known(
    devices: list[GpuDevice],
) -> None:
    assert set(links_of(devices)) == {()}


@given(st.lists(st.dictionaries(st.integers(0, 9), st.integers(1, 18)), min_size=1, max_size=8))
def test_links_are_a_matrix_that_fits(links: list[dict[int, int]]) -> None:
    found = links_of(joined(*links))
    if found[0] == ():
        assert set(found) == {()}
        return
    for one, row in enumerate(found):
        assert len(row) == len(links)
        assert row[one] == -1
        assert all(row[two] == found[two][one] >= 0 for two in range(len(row)) if two != one)
