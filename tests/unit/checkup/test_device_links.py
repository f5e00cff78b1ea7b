"""The links of NVIDIA's device nodes in /dev/char: there, missing, or not to be seen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dshpc_setup.checkup.device_links import device_links
from dshpc_setup.facts import GpuDevice, HostFacts
from dshpc_setup.machine.recorded import RecordedMachine, parse_tree
from dshpc_setup.observed.model import DeviceLinks
from tests.unit.diagnose.known import known

MACHINE = Path(__file__).parents[2] / "machines/workstation-rtx4090"
NODES = """\
-- dev/nvidia0 device 195:0 --
-- dev/nvidiactl device 195:255 --
-- dev/nvidia-uvm device 510:0 --
"""
ONE = GpuDevice(0, "nvidia", device_files=("/dev/nvidia0",))


class Made(RecordedMachine):
    """A machine with these files alone."""

    def __init__(self, text: str) -> None:
        super().__init__(MACHINE)
        self.tree = parse_tree(text)
        self._known = self.tree.names()
        self._children = {"/dev/char": {"x"}} if "dev/char" in text else {}


def facts(**changes: object) -> HostFacts:
    here = known("workstation-rtx4090").facts
    return replace(here, gpus=replace(here.gpus, devices=(ONE,)), **changes)  # type: ignore[arg-type]


def test_each_node_has_its_own() -> None:
    links = "-- dev/char/195:0 -> ../nvidia0 --\n-- dev/char/510:0 -> ../nvidia-uvm --\n"
    assert device_links(Made(NODES + links), facts()) == DeviceLinks(
        "present", {"/dev/nvidia0": True, "/dev/nvidiactl": False, "/dev/nvidia-uvm": True}
    )


def test_there_is_none() -> None:
    seen = device_links(Made(NODES), facts())
    assert seen.state == "present"
    assert seen.links
    assert not any(seen.links.values())


def test_a_folder_that_may_not_be_looked_into() -> None:
    machine = Made(f"{NODES}-- dev/char denied --\n")
    assert device_links(machine, facts()) == DeviceLinks("denied")


def test_without_a_node_of_a_card_there_is_nothing_to_link() -> None:
    text = "-- dev/nvidiactl device 195:255 --\n"
    assert device_links(Made(text), facts()) == DeviceLinks("absent")


@pytest.mark.parametrize("change", [{"in_container": True}, {"kind": "wsl2"}, {"kind": "macos"}])
def test_where_the_kernel_is_not_ours_nothing_is_asked(change: dict[str, object]) -> None:
    platform = replace(facts().platform, **change)  # type: ignore[arg-type]
    assert device_links(Made(NODES), facts(platform=platform)) == DeviceLinks("absent")
