"""NVIDIA GPUs: PCI, kernel module, device nodes, NVML and /proc, put together by PCI address.

NVML lists the devices. `nvidia-smi` is asked only where NVML's library cannot be: it sits on the
same library, so where NVML refuses it refuses too, and where NVML hangs it hangs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dshpc_setup.facts import Disagreement, GpuDevice, Gpus, State
from dshpc_setup.facts.nvidia_driver import CONTROL, UVM, WSL_DEVICE
from dshpc_setup.machine import Machine, Reply, library
from dshpc_setup.machine.nvml import LIBRARY
from dshpc_setup.probes import nodes, pci, unseen
from dshpc_setup.probes.gpus import in_words
from dshpc_setup.probes.nvidia import devices as nvidia_devices
from dshpc_setup.probes.nvidia import explain as nvidia_explain
from dshpc_setup.probes.nvidia import jetson
from dshpc_setup.probes.nvidia import layers as nvidia_layers
from dshpc_setup.probes.nvidia import reconcile as nvidia_reconcile
from dshpc_setup.probes.nvidia.conclusion import concluded
from dshpc_setup.probes.nvidia.layers import Layers
from dshpc_setup.probes.nvidia.reconcile import BOARD, GpuList
from dshpc_setup.probes.trace import Found, Trace, counted


def probe(machine: Machine, deadline_s: float) -> Found[Gpus]:
    """NVIDIA's GPUs, and why there is none; only `absent` means that there are zero."""
    look = Trace(machine)
    until = machine.clock() + deadline_s
    layers = nvidia_layers.fetch(look)
    if not layers.any:
        return _nothing(look, layers)
    _saw_layers(look, layers)
    nvml = machine.nvml(deadline_s)
    look.saw("nvml", nvml.state, nvml.source or LIBRARY, nvml.detail, nvml.code)
    gpu_list, failed, asked = _ask(look, layers, nvml, until)
    if not layers.dxg and layers.module.name == "nvidia":
        layers = replace(layers, listed=nvidia_layers.read_proc(look))
    devices = nvidia_devices.build(look, layers, gpu_list.value) if gpu_list else ()
    pairs = nvidia_explain.in_step(devices, library.devices(gpu_list.value) if gpu_list else ())
    if layers.handed_over:
        seen = [(_visible(machine, device, layers), item) for device, item in pairs]
        pairs = [(device, item) for device, item in seen if device is not None]
    devices = tuple(device for device, _ in pairs)
    hidden = len(library.devices(gpu_list.value)) - len(devices) if gpu_list else 0
    asked_last = nvml if gpu_list else failed
    contradictions = nvidia_reconcile.disagreements(machine, layers, devices, gpu_list, asked_last)
    if gpu_list is not None:
        contradictions += _missing_nodes(look, layers, devices, gpu_list)
    pairs = [
        (nodes.marked(machine, gpu, _shared(machine, layers, gpu)), item) for gpu, item in pairs
    ]
    devices = tuple(device for device, _ in pairs)
    found = concluded(layers, devices, gpu_list, failed, max(0, hidden))
    sure = unseen.sure(look, found, container=layers.container)
    if sure is not found:
        look.saw("nvidia", sure.state, pci.ROOT, sure.detail)
        found = sure
    found = replace(
        found,
        unused=nvidia_reconcile.unused(machine, layers, devices, gpu_list if devices else None),
        disagreements=contradictions,
    )
    nvidia_explain.gpus(look, layers, found, gpu_list, nvml, asked=asked)
    for device, item in pairs:
        assert gpu_list is not None
        nvidia_explain.device(look, layers, device, gpu_list, item)
    return look.found(found)


def _shared(machine: Machine, layers: Layers, device: GpuDevice) -> tuple[str, ...]:
    """The nodes that a job opens beside the GPU's own; WSL has none, and a Tegra's memory has one."""
    if layers.dxg or machine.simulated is not None:
        return ()
    if layers.board is not None and device.unified_memory:
        return (jetson.MEMORY,)
    return (CONTROL,)


def _missing_nodes(
    look: Trace, layers: Layers, devices: tuple[GpuDevice, ...], gpu_list: GpuList
) -> tuple[Disagreement, ...]:
    """Those that are not there though the GPUs are listed; CUDA's own node is evidence alone."""
    machine = look.machine
    shared = {path for gpu in devices for path in _shared(machine, layers, gpu)}
    if CONTROL in shared and layers.nodes and not machine.is_device(UVM):
        look.saw("nvidia-uvm", "absent", UVM)
    return tuple(nodes.missing(machine, devices, gpu_list.teller, sorted(shared)))


def _nothing(look: Trace, layers: Layers) -> Found[Gpus]:
    detail = None
    if layers.container and (layers.cards or layers.module.version or layers.board):
        detail = "the machine has an NVIDIA GPU; none was handed to this container"
    elif layers.wsl is not None and not layers.wsl.dxg:
        detail = layers.wsl.missing
        if layers.container:
            detail = f"no {WSL_DEVICE} was handed to this container of a WSL 2"
    words = detail or "no NVIDIA card on the PCI bus, no driver, no device node"
    fact = unseen.sure(look, Gpus("absent", detail=detail), container=layers.container)
    look.saw("nvidia", fact.state, pci.ROOT, words if fact.state == "absent" else fact.detail)
    if fact.state != "absent":
        look.concluded("gpus nvidia", in_words(fact), (pci.ROOT, "may not be read"))
        return look.found(fact)
    nvidia_explain.nothing(look, layers, words)
    return look.found(fact)


def _saw_layers(look: Trace, layers: Layers) -> None:
    if layers.board is not None:
        look.saw("jetson", "present", layers.board.source, layers.board.words)
    if layers.wsl is not None:
        lent = ", ".join(layers.wsl.lent) or None
        look.saw("wsl", "present" if layers.wsl.dxg else "absent", WSL_DEVICE, lent)
    cards = nvidia_explain.cards_in_words(layers)
    look.saw("nvidia-pci", "present" if cards else "absent", pci.ROOT, cards)
    module: State = "present" if layers.module.name else "absent"
    source = f"{nvidia_layers.SYS_VERSION}, {nvidia_layers.PROC}/version"
    look.saw("nvidia-module", module, source, layers.module.words, module=layers.module.kind)
    nodes = ", ".join([*layers.nodes, *(["/dev/nvidiactl"] if layers.control else [])]) or None
    look.saw("nvidia-nodes", "present" if nodes else "absent", "/dev", nodes)


def _ask(
    look: Trace, layers: Layers, nvml: Reply, until: float
) -> tuple[GpuList | None, Reply, bool]:
    """A list of GPUs; the reply that says why there is none; whether nvidia-smi was asked."""
    value: Mapping[str, Any] = nvml.value if isinstance(nvml.value, dict) else {}
    if nvml.state == "present":
        return _whole("NVML", replace(nvml, value=value)), nvml, False
    partial = GpuList("NVML", value, nvml) if library.devices(value) else None
    failed, asked = nvml, False
    if nvml.state not in ("timeout", "denied") and nvml.code in (None, 12, 13):
        program = nvidia_layers.tool(look.machine, layers)
        if program is not None:
            from dshpc_setup.probes.nvidia import smi as nvidia_tool

            asked = True
            answer = nvidia_tool.ask(look, program, until)
            board = layers.board is not None and layers.board.nodes
            listed = answer.value and library.devices(answer.value)
            if answer.state == "present" and (listed or not (partial or board)):
                answer = replace(answer, value=_joined(answer.value, value))
                return _whole("nvidia-smi", answer), answer, asked
            failed = _why(layers, nvml, answer)
    bare = partial is None and failed.state != "timeout"
    if bare and layers.board is not None and layers.board.nodes:
        return GpuList(BOARD, {}), nvml, asked  # CUDA needs no NVML there
    return partial, failed, asked


def _whole(teller: str, reply: Reply) -> GpuList:
    """The list of a reply, cut short where it names fewer GPUs than it counts."""
    count, listed = reply.value.get("count"), len(library.devices(reply.value))
    if not isinstance(count, int) or isinstance(count, bool) or not listed < count < 4096:
        return GpuList(teller, reply.value)
    return GpuList(teller, reply.value, replace(reply, detail=f"it counts {counted(count, 'GPU')}"))


def _why(layers: Layers, nvml: Reply, answer: Reply) -> Reply:
    """Of two that list nothing: the tool, where it names a cause of its own or is the only sign."""
    alone = nvml.code == 12 and not layers.cards and not layers.nodes
    named = answer.code not in (None, 12) or answer.state in ("timeout", "denied")
    return answer if alone or named else nvml


def _joined(listed: Mapping[str, Any], partial: Mapping[str, Any]) -> Mapping[str, Any]:
    """nvidia-smi's list, with the fuller words of an NVML that crashed on its way."""
    told = {item.get("uuid"): item for item in library.devices(partial) if "uuid" in item}
    devices = [{**item, **told.get(item.get("uuid"), {})} for item in library.devices(listed)]
    general = {key: item for key, item in partial.items() if key not in ("devices", "errors")}
    return {**general, **listed, "devices": devices}


def _visible(machine: Machine, device: GpuDevice, layers: Layers) -> GpuDevice | None:
    """The device as this container may use it; None where its node was not handed over."""
    if layers.board is not None and not device.device_files and not device.problems:
        return None
    if device.mig_mode != "enabled":
        seen = all(machine.is_device(path) for path in device.device_files)
        return device if seen else None
    if not device.device_files or not machine.is_device(device.device_files[0]):
        return None
    instances = tuple(
        item for item in device.mig if all(machine.is_device(path) for path in item.device_files)
    )
    return replace(device, mig=instances)
