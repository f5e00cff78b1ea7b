"""What is promised: never more than a container needs to have, never less than a job opens."""

from __future__ import annotations

from dataclasses import replace

from dshpc_setup.facts import Gpus, Platform
from dshpc_setup.passthrough.expected import ExpectedNode, expect, node_paths, takes_all
from tests.unit.passthrough.made import (
    COMMON,
    CUT,
    DRIVER,
    LIBRARIES,
    PARTS,
    amd,
    card,
    facts,
    intel,
    on,
    planned,
    uuid,
)

TWO = facts(card(0), card(1))


def paths(*items: ExpectedNode) -> list[str]:
    return [item.path for item in items]


def test_two_nvidia_cards() -> None:
    numbers = {"/dev/nvidia0": (195, 0), "/dev/nvidia-uvm": (511, 0)}
    found = expect(TWO, planned(TWO), True, numbers)
    assert found.nodes == (
        ExpectedNode("/dev/nvidia0", "195:0"),
        ExpectedNode("/dev/nvidia1"),
        ExpectedNode("/dev/nvidiactl"),
        ExpectedNode("/dev/nvidia-uvm", "511:0"),
    )
    assert found.gpus == (("/dev/nvidia0",), ("/dev/nvidia1",))
    assert (found.count, found.foreign) == (2, frozenset())
    assert found.uuids == (uuid(0), uuid(1))
    assert found.allowed == {uuid(0), uuid(1)}
    assert (found.libraries, found.driver_version) == (LIBRARIES, DRIVER)


def test_one_of_two_is_selected() -> None:
    found = expect(TWO, planned(TWO, devices="1"), False, {})
    assert paths(*found.nodes) == ["/dev/nvidia1", *COMMON]
    assert found.foreign == {"/dev/nvidia0"}
    assert found.uuids == (uuid(1),)
    assert found.allowed == {uuid(1)}


def test_a_card_with_a_problem_is_not_asked_for_and_not_welcome() -> None:
    found = facts(card(0), card(1, problems=("DSH-NV-020",)))
    plan = planned(found)
    assert not takes_all(found, plan, True, "nvidia")
    promised = expect(found, plan, True, {})
    assert promised.foreign == {"/dev/nvidia1"}
    assert promised.allowed == {uuid(0)}


def test_all_may_be_asked_for_only_where_all_are_known() -> None:
    plan = planned(TWO)
    assert takes_all(TWO, plan, True, "nvidia")
    assert not takes_all(TWO, plan, False, "nvidia")
    halfway = replace(TWO, gpus=replace(TWO.gpus, complete=False))
    assert not takes_all(halfway, plan, True, "nvidia")
    assert expect(halfway, plan, True, {}).allowed == frozenset()  # any: who knows what there is
    wsl = replace(halfway, platform=Platform("wsl2"))
    assert takes_all(wsl, plan, True, "nvidia")  # there is no other way
    mixed = facts(card(0), amd(1, problems=("DSH-AM-038",)))
    assert takes_all(mixed, planned(mixed), True, "nvidia")
    assert not takes_all(mixed, planned(mixed), True, "amd")


def test_mig_instances_with_their_capability_nodes() -> None:
    whole = facts(CUT, card(1))
    found = expect(whole, planned(whole), True, {})
    assert found.gpus == (PARTS[0].device_files, PARTS[1].device_files, ("/dev/nvidia1",))
    assert found.allowed == {uuid(0), uuid(1), "MIG-a", "MIG-b"}
    one = expect(whole, planned(whole, devices="MIG-b"), False, {})
    assert one.gpus == (PARTS[1].device_files,)
    assert one.uuids == ("MIG-b",)
    assert one.allowed == {uuid(0), "MIG-b"}
    assert one.foreign == {"/dev/nvidia1"}  # not the card that the instance is a part of
    empty = facts(card(0, mig_mode="enabled"), card(1))
    assert not takes_all(empty, planned(empty), True, "nvidia")


def test_amd_cards_by_their_addresses_and_partitions_without() -> None:
    found = facts(amd(3), amd(5))
    promised = expect(found, planned(found), True, {"/dev/kfd": (235, 0)})
    assert promised.nodes == (
        ExpectedNode("/dev/kfd", "235:0"),
        ExpectedNode("/dev/dri/renderD131", None, "0000:03:00.0"),
        ExpectedNode("/dev/dri/renderD133", None, "0000:05:00.0"),
    )
    assert (promised.libraries, promised.uuids, promised.driver_version) == ((), (), None)
    cut = [amd(index, pci_bus_id="0000:05:00.0", partition_of="0000:05:00.0") for index in range(3)]
    parts = facts(*cut)
    one = expect(parts, planned(parts, devices="1"), False, {})
    assert [node.pci for node in one.nodes] == [None, None]
    assert one.foreign == {"/dev/dri/renderD128", "/dev/dri/renderD130"}


def test_intel_needs_its_own_node_alone() -> None:
    found = facts(intel(0))
    assert node_paths(found, planned(found)) == ("/dev/dri/renderD128",)


def test_nvidia_and_amd_together() -> None:
    found = facts(card(0), amd(1))
    promised = expect(found, planned(found), True, {})
    assert paths(*promised.nodes) == ["/dev/kfd", "/dev/nvidia0", "/dev/dri/renderD129", *COMMON]
    assert promised.driver_version == DRIVER
    selected = expect(found, planned(found, devices="0"), False, {})
    assert selected.foreign == frozenset()  # of a vendor that is not handed over nothing is asked


def test_wsl_has_one_node_for_all() -> None:
    cards = tuple(card(index, device_files=("/dev/dxg",), driver=None) for index in range(2))
    wsl = replace(facts(*cards), platform=Platform("wsl2"))
    found = expect(wsl, planned(wsl), True, {"/dev/dxg": (10, 125)})
    assert found.nodes == (ExpectedNode("/dev/dxg", "10:125"),)
    assert (found.count, found.libraries) == (2, LIBRARIES)
    desktop = expect(on(wsl, kind="desktop"), planned(wsl), True, {"/dev/dxg": (10, 125)})
    assert desktop.nodes == (ExpectedNode("/dev/dxg"),)  # its virtual machine counts for itself


def test_a_jetson_needs_a_few_of_its_nodes_and_no_nvml() -> None:
    orin = card(
        0, uuid=None, driver="nvgpu", mig_mode="unsupported", driver_version=None,
        device_files=("/dev/nvgpu/igpu0/as", "/dev/nvgpu/igpu0/ctrl", "/dev/nvgpu/igpu0/power",
                      "/dev/nvmap", "/dev/dri/renderD128"),
    )  # fmt: skip
    found = replace(facts(orin), gpus=Gpus("present", (orin,)))
    promised = expect(found, planned(found), True, {})
    assert paths(*promised.nodes) == ["/dev/nvgpu/igpu0/as", "/dev/nvgpu/igpu0/ctrl", "/dev/nvmap"]
    assert promised.libraries == ("libcuda.so.1",)
    assert promised.uuids == ()


def test_a_jetson_whose_nodes_are_not_known_here_has_all_of_them() -> None:
    odd = card(0, driver="nvgpu", device_files=("/dev/nvgpu/new",))
    found = facts(odd)
    assert node_paths(found, planned(found)) == ("/dev/nvgpu/new",)


def test_numbers_of_another_kernel_are_not_compared() -> None:
    numbers = {"/dev/nvidia0": (195, 0)}
    remote = on(TWO, kind="remote")
    assert {node.number for node in expect(remote, planned(remote), True, numbers).nodes} == {None}
    for kind in ("engine", "podman", "snap"):
        here = on(TWO, kind=kind)
        assert expect(here, planned(here), True, numbers).nodes[0].number == "195:0"
