from __future__ import annotations

from typing import cast

import pytest

from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import Machine
from dshpc_setup.machine.overlay import simulated_device_files, with_simulated_gpus
from tests.unit.engine.fake import FakeMachine


def test_without_a_profile_the_machine_is_itself() -> None:
    machine = cast("Machine", FakeMachine())
    assert with_simulated_gpus(machine, "") is machine
    assert simulated_device_files("") == ()


def test_a_profile_is_laid_over_the_machine_with_its_nodes() -> None:
    machine = with_simulated_gpus(cast("Machine", FakeMachine()), "h100:2")
    assert machine.simulated == "h100:2"
    files = simulated_device_files("h100:2")
    assert {"/dev/nvidia0", "/dev/nvidia1"} <= set(files)
    assert "/dev/nvidia2" not in files
    assert all(machine.is_device(file) for file in files)


def test_a_profile_that_is_none_is_wrong_usage() -> None:
    with pytest.raises(DshpcError) as error:
        simulated_device_files("no such profile")
    assert error.value.exit_code == 64
