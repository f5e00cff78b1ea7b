"""Recorded machines of which one layer is emptied, cut off in the middle, or contradicts the others."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from dshpc_setup.machine import CommandResult, Reply
from dshpc_setup.machine.recorded import RecordedMachine, Tree, Unrecorded, _children

Damage = Literal["emptied", "cut", "contradicting"]
DAMAGES: tuple[Damage, ...] = ("emptied", "cut", "contradicting")

_ADDRESS = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
_KFD = r"/sys/(?:class|devices/virtual)/kfd/kfd/topology/nodes"


class DamagedMachine(RecordedMachine):
    """The folder's machine with other files, commands and replies; what it never recorded is not there."""

    def __init__(
        self,
        whole: RecordedMachine,
        *,
        tree: Tree | None = None,
        commands: Mapping[tuple[str, ...], CommandResult] | None = None,
        replies: Mapping[str, Reply] | None = None,
    ) -> None:
        self.__dict__.update(whole.__dict__)
        self.tree = tree or whole.tree
        self._known = self.tree.names()
        self._children = _children(self._known)
        self._commands = dict(commands if commands is not None else whole._commands)
        self._replies = {**whole._replies, **(replies or {})}

    def which(self, program: str) -> str | None:
        try:
            return super().which(program)
        except Unrecorded:
            return None

    def _answer(self, argv: tuple[str, ...]) -> CommandResult:
        try:
            return super()._answer(argv)
        except Unrecorded:
            return CommandResult(argv, "present", 1, "", "no such option", 1.0)


@dataclass(frozen=True)
class Layer:
    """Files by a pattern, whose first group names the unit (a card, a node) that a file is of."""

    name: str
    pattern: str
    lie: Callable[[str], str] | None = None  # a text -> another one
    link: str | None = None  # where links lead to that contradict


LAYERS = (
    Layer("PCI", rf"/sys/bus/pci/devices/({_ADDRESS})(?:/.*)?", link="../../drivers/vfio-pci"),
    Layer("nvidia module", r"/sys/module/(nvidia)(?:/.*)?|/proc/driver/nvidia/version",
          lambda text: re.sub(r"\b\d{3}(?=\.\d)", "999", text)),
    Layer("amdgpu module", r"/sys/module/(amdgpu)(?:/.*)?"),
    Layer("/proc/driver/nvidia", rf"/proc/driver/nvidia/gpus/({_ADDRESS})(?:/.*)?",
          lambda text: re.sub(r"GPU-[0-9a-f]{8}", "GPU-00000000", text)),
    Layer("GPU nodes", r"/dev/(nvidia\d+|dri/renderD\d+|dxg|nvhost-gpu|nvgpu/.*)"),
    Layer("shared nodes", r"/dev/(nvidiactl|kfd|nvmap|nvhost-ctrl.*)"),
    Layer("MIG nodes", r"/dev/(nvidia-caps/.*)"),
    Layer("KFD", rf"{_KFD}/(\d+)(?:/.*)?",
          lambda text: re.sub(r"(?m)^(location_id) (\d+)", r"\1 65280", text)),
    Layer("DRM", r"/sys/class/drm/([^/]+)(?:/.*)?"),
    Layer("WSL", r"/usr/lib/wsl/lib/(.*)"),
    Layer("device tree", r"/(?:proc/device-tree|sys/firmware/devicetree)/(.*)"),
)  # fmt: skip
REPLIES = ("nvml", "amdsmi")
TOOLS = ("nvidia-smi", "amd-smi", "rocm-smi")


def damaged(whole: RecordedMachine) -> Iterator[tuple[str, Damage, DamagedMachine]]:
    """Each layer that the machine has, in each way that changes something of it."""
    for layer in LAYERS:
        for damage in DAMAGES:
            tree = _tree(whole.tree, layer, damage)
            if tree is not None:
                yield layer.name, damage, DamagedMachine(whole, tree=tree)
    for name in REPLIES:
        reply = whole._replies[name]
        if not isinstance(reply.value, dict) or not reply.value.get("devices"):
            continue
        for damage in DAMAGES:
            found = _reply(reply, damage)
            if found is not None:
                yield name, damage, DamagedMachine(whole, replies={name: found})
    for tool in TOOLS:
        for damage in DAMAGES:
            commands = _commands(whole._commands, tool, damage)
            if commands is not None:
                yield tool, damage, DamagedMachine(whole, commands=commands)


def _tree(tree: Tree, layer: Layer, damage: Damage) -> Tree | None:
    found = {path: match for path in tree.names() if (match := re.fullmatch(layer.pattern, path))}
    if layer.name == "PCI":
        cards = {
            path.split("/")[5]
            for path, text in tree.texts.items()
            if path in found and path.endswith("/class") and text.startswith(("0x03", "0x12"))
        }
        found = {path: match for path, match in found.items() if path.split("/")[5] in cards}
    if not found:
        return None
    if damage == "contradicting":
        return _lying(tree, layer, set(found))
    gone = set(found)
    if damage == "cut":
        units = sorted(
            {match[1] or "" for match in found.values()}, key=lambda unit: (len(unit), unit)
        )
        kept = set(units[: len(units) // 2])
        if not kept:
            return _halved(tree, gone)
        gone = {path for path, match in found.items() if (match[1] or "") not in kept}
    return _without(tree, gone)


def without(tree: Tree, pattern: str) -> Tree:
    """All but the paths of this pattern."""
    return _without(tree, {path for path in tree.names() if re.fullmatch(pattern, path)})


def _without(tree: Tree, gone: set[str]) -> Tree:
    def rest(of: Any) -> Any:
        if isinstance(of, frozenset):
            return of - gone
        return {path: item for path, item in of.items() if path not in gone}

    return Tree(**{name: rest(getattr(tree, name)) for name in Tree.__dataclass_fields__})


def _halved(tree: Tree, paths: set[str]) -> Tree | None:
    """Each text broken off in its middle."""
    texts = {
        path: text[: len(text) // 2] if path in paths else text for path, text in tree.texts.items()
    }
    return replace(tree, texts=texts) if texts != tree.texts else None


def _lying(tree: Tree, layer: Layer, paths: set[str]) -> Tree | None:
    texts, links = dict(tree.texts), dict(tree.links)
    for path in paths & texts.keys():
        texts[path] = layer.lie(texts[path]) if layer.lie else texts[path]
    for path in paths & links.keys():
        links[path] = layer.link if layer.link and path.endswith("/driver") else links[path]
    nodes = tree.devices & paths  # files where nodes should be
    texts.update(dict.fromkeys(nodes, ""))
    if texts == tree.texts and links == tree.links:
        return None
    return replace(tree, texts=texts, links=links, devices=tree.devices - nodes)


def _reply(reply: Reply, damage: Damage) -> Reply | None:
    devices = reply.value["devices"]
    if damage == "emptied":
        changed: list[Any] = []
    elif damage == "cut":
        if len(devices) < 2:
            return None
        changed = devices[: len(devices) // 2]
    else:
        changed = [
            {**each, "pci_bus_id": f"00000000:F{at:X}:00.0", "minor": 40 + at}
            for at, each in enumerate(devices)
        ]
    return replace(reply, value={**reply.value, "devices": changed})


def _commands(
    commands: Mapping[tuple[str, ...], CommandResult], tool: str, damage: Damage
) -> dict[tuple[str, ...], CommandResult] | None:
    def changed(result: CommandResult) -> CommandResult:
        text = result.stdout
        if damage == "emptied":
            text = ""
        elif damage == "cut":
            text = text[: len(text) // 2]
        else:
            text = re.sub(
                r"\b([0-9A-Fa-f]{4,8}):([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})\.",
                lambda match: f"{match[1]}:f{match[2][1]}:{match[3]}.",
                text,
            )
        return replace(result, stdout=text)

    found = {
        argv: changed(result) if argv[0].endswith(tool) and result.stdout else result
        for argv, result in commands.items()
    }
    return found if found != dict(commands) else None
