"""CDI specifications over made-up nodes, with the parts that the vendors' generators write."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tests.integration.bench.engines import Bench
from tests.integration.bench.hardware import (
    CARDS,
    DESCRIPTION,
    DRIVER,
    LIBRARIES,
    STANDINS,
    Card,
)

WATCHES = ("trixie", "newest")
CDI_HOOK = "/usr/bin/nvidia-cdi-hook"
_TAKEN_UP_S = 60.0
_LONG_AGO_S = 3600.0
_OPTIONS = ["ro", "nosuid", "nodev", "rbind", "rprivate"]


def _mount(path: str, source: str | None = None) -> dict[str, Any]:
    return {"hostPath": source or path, "containerPath": path, "options": _OPTIONS}


def _device(name: str, nodes: Sequence[str], mode: int | None = None) -> dict[str, Any]:
    extra = {} if mode is None else {"fileMode": mode}
    edits = {"deviceNodes": [{"path": node, **extra} for node in nodes]}
    return {"name": name, "containerEdits": edits}


def nvidia_spec(
    cards: Sequence[Card] = CARDS,
    driver: str = DRIVER,
    described_by: str = DESCRIPTION,
    mode: int | None = None,
) -> dict[str, Any]:
    """As `nvidia-ctk cdi generate` has it: each card by index and by UUID, and all.

    The links that programs load are made by a hook, as there. `described_by`: the file that tells NVML
    in the container what it sees. `mode`: of the cards' nodes there (engines take 0666 without it).
    """
    devices = [_device(str(n), [card.node], mode) for n, card in enumerate(cards)]
    devices += [_device(card.uuid, [card.node], mode) for card in cards]
    devices += [_device("all", [card.node for card in cards], mode)]
    mounts = [_mount("/usr/bin/nvidia-smi"), _mount(DESCRIPTION, described_by)]
    links: list[str] = []
    for name in ("libnvidia-ml", "libcuda"):
        mounts.append(_mount(f"{LIBRARIES}/{name}.so.{driver}"))
        links += ["--link", f"{name}.so.{driver}::{LIBRARIES}/{name}.so.1"]
    return {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": devices,
        "containerEdits": {
            "env": ["NVIDIA_VISIBLE_DEVICES=void"],
            "deviceNodes": [{"path": "/dev/nvidiactl"}, {"path": "/dev/nvidia-uvm"}],
            "mounts": mounts,
            "hooks": [
                {
                    "hookName": "createContainer",
                    "path": CDI_HOOK,
                    "args": ["nvidia-cdi-hook", "create-symlinks", *links],
                }
            ],
        },
    }


def plain_spec(kind: str, nodes: Mapping[str, Sequence[str]], common: Sequence[str] = ()) -> Any:
    """A specification of nodes alone, as those of amd.com/gpu and intel.com/gpu are."""
    every = list(dict.fromkeys(node for group in nodes.values() for node in group))
    devices = [_device(name, group) for name, group in nodes.items()]
    edits = {"deviceNodes": [{"path": node} for node in common]} if common else {}
    return {
        "cdiVersion": "0.5.0",
        "kind": kind,
        "devices": [*devices, _device("all", every)],
        "containerEdits": edits,
    }


def amd_spec(cards: int = 4) -> Any:
    """The first cards of the made-up AMD machine."""
    nodes = {str(n): [f"/dev/dri/renderD{128 + n}"] for n in range(cards)}
    return plain_spec("amd.com/gpu", nodes, ["/dev/kfd"])


def intel_spec() -> Any:
    return plain_spec("intel.com/gpu", {"card0": ["/dev/dri/renderD128"]})


def write_spec(bench: Bench, spec: Any, name: str = "nvidia") -> None:
    """The specification where every engine looks for it, and the hook that it may call."""
    bench.put(CDI_HOOK, (STANDINS / "nvidia" / "nvidia-cdi-hook").read_bytes(), 0o755)
    write_text(bench, json.dumps(spec, indent=2), name)


def write_text(bench: Bench, text: str, name: str = "nvidia") -> None:
    """Whole at once, as the vendors' generators do it; `wait_taken_up` sees that nobody has read it."""
    path = bench.outer.path(f"/etc/cdi/{name}.json")
    new = path.with_suffix(".new")
    new.write_text(text)
    written = time.time() - _LONG_AGO_S
    os.utime(new, (written, written))
    new.rename(path)


def remove_spec(bench: Bench, name: str = "nvidia") -> None:
    bench.outer.path(f"/etc/cdi/{name}.json").unlink(missing_ok=True)


def wait_taken_up(bench: Bench) -> None:
    """Until an engine that watches the folder has read all that was written there.

    Its refresh is under a lock, which a container that asks for a device waits for. Podman reads the
    folder for each container, and Docker before 25 never.
    """
    until = time.monotonic() + _TAKEN_UP_S
    for path in bench.outer.path("/etc/cdi").glob("*.json") if bench.kind in WATCHES else ():
        while (found := path.stat()).st_atime_ns <= found.st_mtime_ns:
            assert time.monotonic() < until, f"the engine has not read {path.name}"
            time.sleep(0.01)


def turn_on(bench: Bench) -> None:
    """CDI by the feature flag that Docker 25 to 28.1 asks for; from 28.2 it is on by default."""
    bench.config.setdefault("features", {})["cdi"] = True
