"""A machine as the settings want it seen: with made-up GPUs laid over it, or as it is."""

from __future__ import annotations

from dshpc_setup.machine import Machine


def with_simulated_gpus(machine: Machine, profile: str) -> Machine:
    """The machine with the GPUs of that profile and their nodes; "" for none of them."""
    if not profile:
        return machine
    from dshpc_setup.machine.simulated import SimulatedMachine

    return SimulatedMachine(machine, profile, devices_exist=True)


def simulated_device_files(profile: str) -> tuple[str, ...]:
    """The device nodes of that profile; () for none."""
    if not profile:
        return ()
    from dshpc_setup.machine.simulated import device_files, parse_profile

    return device_files(parse_profile(profile))
