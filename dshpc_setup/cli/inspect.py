"""Settings and facts as text and as JSON."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

from dshpc_setup.cli.console import as_called
from dshpc_setup.describe import describe_engine, gib
from dshpc_setup.errors import DshpcError, usage_error
from dshpc_setup.facts import GpuDevice, HostFacts
from dshpc_setup.files import write_atomic
from dshpc_setup.machine import Machine
from dshpc_setup.project import Project
from dshpc_setup.settings import BY_NAME, DECLARATIONS, Settings
from dshpc_setup.settings_file import changed


def settings_json(settings: Settings) -> dict[str, Any]:
    """The `dshpc.settings/1` object: name -> value, origin, where."""
    values = {
        item.name: {
            "value": getattr(settings, item.name),
            "origin": settings.sources[item.name].origin,
            "where": settings.sources[item.name].where,
        }
        for item in DECLARATIONS
    }
    return {"schema": "dshpc.settings/1", "settings": values}


def print_settings(settings: Settings) -> None:
    for item in DECLARATIONS:
        value = getattr(settings, item.name)
        shown = ",".join(value) if isinstance(value, tuple) else "" if value is None else str(value)
        source = settings.sources[item.name]
        where = source.where if source.origin == "default" else f"{source.origin}: {source.where}"
        print(f"{item.name:<14} {shown or '-':<22} {where}")


def set_in_file(project: Project, name: str, value: str) -> None:
    """Write the setting into the project's dshpc.yaml; a remembered flag would still outrank it."""
    path = project.folder / "dshpc.yaml"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        text = None
    except (OSError, UnicodeDecodeError) as error:
        raise usage_error(f"Cannot read {path}.", str(error), "Make it a UTF-8 text.") from None
    write_atomic(path, changed(text, name, value), owner=project.owner)
    print(as_called(f"{path}: {name} = {value}. Run configure-environment to put it into effect."))
    if name in project.remembered:
        print(as_called(f"A remembered flag still outranks it: dshpc config unset {name}"))


def forget(project: Project, names: list[str]) -> None:
    """Drop remembered flags; raises DshpcError for a name that is no setting or not remembered."""
    remembered = project.remembered
    for name in names:
        if name not in BY_NAME:
            near = difflib.get_close_matches(name, list(BY_NAME), 1)
            raise usage_error(
                f"There is no setting {name!r}.",
                f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(BY_NAME)}.",
            )
        if name not in remembered:
            raise _not_remembered(project, name)
    project.forget(names)
    said = f"Forgotten: {', '.join(names)}. Run configure-environment to put it into effect."
    print(as_called(said))


def _not_remembered(project: Project, name: str) -> DshpcError:
    source = project.settings({}).sources[name]
    if source.origin == "file":
        return usage_error(
            f"{name} stands in {source.where} and is not a remembered flag.",
            "",
            f"Take that line out of {project.folder / 'dshpc.yaml'} to have the default again.",
        )
    return usage_error(f"No flag is remembered for {name}.", "", "See: dshpc config show")


def seen_machine(root: Path, recorded: Path | None, simulate: str) -> Machine:
    """The machine that the options of `detect` name."""
    from dshpc_setup.machine.local import LocalMachine

    machine: Machine
    if recorded is not None:
        from dshpc_setup.machine.recorded import RecordedMachine

        machine = RecordedMachine(recorded)
    else:
        if not root.is_dir():
            raise usage_error(f"--root {root} is not a folder.", "")
        machine = LocalMachine(str(root.absolute()))
    if simulate and simulate != "none":
        from dshpc_setup.machine.simulated import SimulatedMachine

        machine = SimulatedMachine(machine, simulate, devices_exist=True)
    return machine


def print_facts(facts: HostFacts) -> None:
    platform, cpu, memory = facts.platform, facts.cpu, facts.memory
    system = " ".join(part for part in (platform.os_id, platform.os_version) if part)
    print(
        f"System  {system or platform.kind} ({platform.kind}), kernel {platform.kernel}, {platform.arch}"
    )
    limited = f", limited by {cpu.limited_by}" if cpu.limited_by else ""
    print(f"CPUs    {cpu.usable} of {cpu.logical} usable{limited}")
    limited = f", limited by {memory.limited_by}" if memory.limited_by else ""
    print(f"Memory  {gib(memory.total_mib)}, {gib(memory.usable_mib)} for jobs{limited}")
    print(f"Docker  {describe_engine(facts.engine)}")
    if facts.engine.state != "present" and facts.engine.detail:
        print(f"        {facts.engine.detail}")
    simulated = " (SIMULATED)" if facts.gpus.simulated else ""
    print(f"GPUs    {len(facts.gpus.devices) or facts.gpus.state}{simulated}")
    if facts.gpus.detail:
        print(f"        {facts.gpus.detail}")
    for device in facts.gpus.devices:
        print(f"        {_gpu_line(device)}")


def _gpu_line(device: GpuDevice) -> str:
    memory = gib(device.memory_mib) if device.memory_mib is not None else "memory unknown"
    parts = [
        f"{device.index}: {device.name or device.vendor}",
        memory,
        f"--gres=gpu:{device.slurm_type}:1",
        device.pci_bus_id or "PCI address unknown",
        ", ".join(device.device_files) or "no device file",
    ]
    parts += [f"MIG {item.profile}" for item in device.mig]
    return "  ".join(parts + [f"problem: {problem}" for problem in device.problems])
