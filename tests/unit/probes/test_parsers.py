"""No parser raises, whatever it is given; and each reads what it is meant to read."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.facts import Gpus, State
from dshpc_setup.machine import Ended, library, recorded
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.probes import gpus, pci, ranges
from dshpc_setup.probes.nvidia import devices as nvidia_devices
from dshpc_setup.probes.nvidia import instances as nvidia_instances
from dshpc_setup.probes.nvidia import layers as nvidia_layers
from dshpc_setup.probes.nvidia import smi_csv as nvidia_smi
from dshpc_setup.probes.trace import Trace, whole_number

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(
        st.sampled_from(
            [
                "devices", "index", "name", "uuid", "pci_bus_id", "memory_bytes", "minor", "mig",
                "mig_mode", "compute", "error", "errors", "gi", "ci", "slices", "cpus",
                "driver_version", "cuda_version", "numa_node", "version", "info", "host",
                "Components", "Name", "Runtimes", "SecurityOptions", "DiscoveredDevices", "NCPU",
                "MemTotal", "KernelVersion", "CgroupVersion", "failure", "state", "code", "device",
            ]
        )
        | st.text(max_size=8),
        inner,
        max_size=6,
    ),
    max_leaves=25,
)  # fmt: skip

LINES = st.lists(
    st.text(max_size=40)
    | st.sampled_from(
        [
            "MemTotal:       16355420 kB", "Cpus_allowed_list:\t0-3", "processor\t: 7",
            "ID=debian", 'PRETTY_NAME="x', "0::/user.slice", "4:memory:/docker/1",
            "3:cpu,cpuacct:/", "simd_count 416", "location_id 768", "size_in_bytes 1",
            "heap_type 1", "gpu0/gi1/access 12", "DeviceFileMinor: 30", "max 100000",
            "0, GPU-1, 00000000:01:00.0, 16384, 535.1, [N/A], Tesla T4", '"', "-- a --",
            "-- a -> b --", "9" * 400,
        ]
    ),
    max_size=8,
).map("\n".join)  # fmt: skip

TEXT_PARSERS: list[Callable[[str], object]] = [
    ranges.parse,
    whole_number,
    pci.parse_address,
    nvidia_smi.parse,
    nvidia_instances.parse_minor,
    nvidia_instances.parse_mig_minors,
    recorded.parse_tree,
]


@pytest.mark.parametrize("parse", TEXT_PARSERS)
@given(text=LINES)
def test_no_text_trips_a_parser(parse: Callable[[str], object], text: str) -> None:
    parse(text)


@given(value=JSON)
def test_nothing_that_nvml_says_trips_the_probe(value: Any) -> None:
    look = Trace(LocalMachine("/nonexistent"))
    given_value = value if isinstance(value, dict) else {"devices": value}
    devices = nvidia_devices.build(look, nvidia_layers.Layers(), given_value)
    # What comes of it goes into JSON, and means what it says.
    json.dumps(Gpus("present", devices).devices, default=vars)
    for device in devices:
        assert device.memory_mib is None or device.memory_mib >= 0
        assert device.slurm_type


@given(items=st.lists(JSON), state=st.sampled_from(["present", "timeout", "error"]))
def test_nothing_that_the_child_says_trips_us(items: list[Any], state: State) -> None:
    reply = library.reply(Ended(state, tuple(items), "it died", 1.0), "lib")
    assert reply.state == "present" or reply.detail


def test_a_child_that_died_after_its_first_answers_is_no_whole_answer() -> None:
    items = ({"driver_version": "550"}, {"device": {"index": 0}})
    reply = library.reply(Ended("error", items, "crashed (SIGSEGV)", 1.0), "lib")
    assert (reply.state, reply.detail) == ("error", "crashed (SIGSEGV)")
    assert reply.value["devices"] == [{"index": 0}]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0-3,8,10-11", {0, 1, 2, 3, 8, 10, 11}),
        ("0\n", {0}),
        ("", set()),
        ("3-1", set()),
        ("0-999999999", set()),
    ],
)
def test_ranges(text: str, expected: set[int]) -> None:
    assert ranges.parse(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("00000000:1A:00.0", "0000:1a:00.0"),
        ("0000:1a:00.0", "0000:1a:00.0"),
        ("1a:00.0", "0000:1a:00.0"),
        ("00010000:01:00.0", "10000:01:00.0"),
        ("nvidia", None),
        (None, None),
    ],
)
def test_pci_addresses(text: object, expected: str | None) -> None:
    assert pci.parse_address(text) == expected


def test_nvidia_smi_reads_names_with_commas_and_missing_values() -> None:
    value = nvidia_smi.parse(
        "0, GPU-1, 00000000:01:00.0, 16384, 535.1, Enabled, Graphics, Special\n"
        "1, [Unknown Error], 00000000:02:00.0, [N/A], 535.1, [N/A], ERR!\n"
        "No devices were found\n",
        tuple("index,uuid,pci.bus_id,memory.total,driver_version,mig.mode.current,name".split(",")),
    )
    assert value is not None
    first, second = value["devices"]
    assert (first["name"], first["mig_mode"]) == ("Graphics, Special", 1)
    assert {key: second[key] for key in second if key != "errors"} == {
        "index": 1,
        "pci_bus_id": "00000000:02:00.0",
    }
    assert second["errors"] == {"memory_bytes": 3, "mig_mode": 3, "name": 999, "uuid": 999}
    assert nvidia_smi.parse("No devices were found\n") is None


def test_one_vendors_failure_is_told_beside_anothers_gpus() -> None:
    from dshpc_setup.facts import GpuDevice

    broken = Gpus("error", detail="the nouveau driver holds the card")
    mine = GpuDevice(0, "amd", slurm_type="mi210")
    merged = gpus.merge([broken, Gpus("present", (mine,))], simulated=False)
    assert (merged.state, merged.devices, merged.detail) == ("present", (mine,), broken.detail)
    assert gpus.merge([broken, Gpus("absent")], simulated=False).state == "error"
    assert gpus.merge([broken, Gpus("timeout", detail="t")], simulated=False).state == "timeout"


def test_mixed_vendors_are_numbered_through() -> None:
    from dshpc_setup.facts import GpuDevice

    one, two = GpuDevice(0, "nvidia"), GpuDevice(0, "amd")
    merged = gpus.merge([Gpus("present", (one,)), Gpus("present", (two,))], simulated=False)
    assert [device.index for device in merged.devices] == [0, 1]
    assert merged.vendor == "mixed"
