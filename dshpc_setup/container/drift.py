"""What is different since the last start that got ready: what it was, what it is, what was done."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from dshpc_setup.documents import foreign
from dshpc_setup.facts import HostFacts
from dshpc_setup.files.storage import read_text, replace_text
from dshpc_setup.observed.drift import GpuDrift
from dshpc_setup.slurm import slurm_conf
from dshpc_setup.slurm.paths import Paths

NodeKey = Literal["gres", "cpus", "realmemory"]


@dataclass(frozen=True)
class Change:
    """`done` is "" until something was made of it."""

    what: str
    was: str
    now: str
    done: str = ""
    gpus: GpuDrift | None = None
    key: NodeKey | None = None  # of the node's line in slurm.conf, where that follows it

    @property
    def sentence(self) -> str:
        return f"{self.what}: {self.was} before, {self.now} now"

    def to_json(self) -> dict[str, Any]:
        value = {"what": self.what, "was": self.was, "is": self.now, "done": self.done}
        return value if self.gpus is None else {**value, "gpus": asdict(self.gpus)}


def remembered(facts: HostFacts, image: str) -> dict[str, Any]:
    """What the next start compares with: the facts without how they were read."""
    found: dict[str, Any] = json.loads(json.dumps(facts.to_json()))
    found.pop("evidence")
    found.pop("docker")
    return {**found, "image": image}


def load(paths: Paths) -> dict[str, Any] | None:
    """Those of the last start that got ready; damaged ones are as good as none."""
    try:
        found = foreign.value(read_text(_path(paths)) or "null")
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def save(paths: Paths, now: Mapping[str, Any]) -> None:
    # Not synced: it is only compared with
    replace_text(_path(paths), f"{json.dumps(now)}\n", sync=False)


def _path(paths: Paths) -> str:
    return f"{paths.own}/facts.json"


def compare(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> tuple[Change, ...]:
    """Each difference; none at the first start."""
    if before is None:
        return ()
    found = [*_gpus(before, now), *_mig(before, now)]
    compared: tuple[tuple[str, tuple[str, str], str, NodeKey | None], ...] = (
        ("CPUs", ("cpu", "usable"), "", "cpus"),
        ("Memory", ("memory", "usable_mib"), " MiB", "realmemory"),
        ("GPU driver", ("gpus", "driver_version"), "", None),
        ("Platform", ("platform", "kind"), "", None),
    )
    for what, path, unit, key in compared:
        old, new = _at(before, path), _at(now, path)
        if old != new and not _nearly(old, new):
            found.append(Change(what, _words(old, unit), _words(new, unit), key=key))
    image = before.get("image", now.get("image"))
    if image != now.get("image"):
        found.append(Change("Image", _words(image, ""), _words(now.get("image"), "")))
    if bool(before.get("simulated")) != bool(now.get("simulated")):
        words = {True: "SIMULATED", False: "real"}
        was, new_is = bool(before.get("simulated")), bool(now.get("simulated"))
        found.append(Change("Kind of GPUs", words[was], words[new_is]))
    return tuple(found)


def _words(value: object, unit: str) -> str:
    return "not known" if value is None else f"{value}{unit}"


def _gpus(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterable[Change]:
    """One for each type of which other cards are here."""
    was, are = _cards(before), _cards(now)
    for kind in sorted({str(card["slurm_type"] or "?") for card in (*was.values(), *are.values())}):
        old = {key: card for key, card in was.items() if str(card["slurm_type"] or "?") == kind}
        new = {key: card for key, card in are.items() if str(card["slurm_type"] or "?") == kind}
        lost = tuple(_label(key, old[key]) for key in old if key not in new)
        gone = ", ".join(lost)
        come = ", ".join(_label(key, new[key]) for key in new if key not in old)
        if gone or come:
            told = "; ".join((f"gone: {gone}",) * bool(gone) + (f"new: {come}",) * bool(come))
            values = GpuDrift(kind, len(old), len(new), lost)
            what, now_is = f"GPUs of type {kind}", f"{len(new)} ({told})"
            yield Change(what, str(len(old)), now_is, gpus=values, key="gres")


def _mig(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterable[Change]:
    """One for each card that is here still and is cut up in another way."""
    was, are = _cards(before), _cards(now)
    for key in was.keys() & are.keys():
        old, new = _layout(was[key]), _layout(are[key])
        if old != new:
            yield Change(f"MIG of {_label(key, are[key])}", old, new, key="gres")


def _cards(facts: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Identity -> card: by UUID, else PCI address, else place."""
    found: dict[str, Mapping[str, Any]] = {}
    devices = _at(facts, ("gpus", "devices"))
    for card in devices if isinstance(devices, list) else ():
        if isinstance(card, dict):
            place = f"{card.get('vendor')} {card.get('index')}"
            key = card.get("uuid") or card.get("pci_bus_id") or place
            found[str(key)] = {"slurm_type": None, **card}
    return found


def _label(key: str, card: Mapping[str, Any]) -> str:
    return f"{card.get('name') or card['slurm_type']} ({key})"


def _layout(card: Mapping[str, Any]) -> str:
    """ "2 x 1g.10gb, 1 x 3g.40gb", "no instances", "off"."""
    if card.get("mig_mode") != "enabled":
        return "off"
    instances = card.get("mig")
    profiles = [
        str(item.get("profile"))
        for item in (instances if isinstance(instances, list) else ())
        if isinstance(item, dict)
    ]
    counted = (f"{profiles.count(name)} x {name}" for name in dict.fromkeys(profiles))
    return ", ".join(counted) or "no instances"


def _at(facts: Mapping[str, Any], path: tuple[str, str]) -> Any:
    section = facts.get(path[0])
    return section.get(path[1]) if isinstance(section, dict) else None


def _nearly(old: object, new: object) -> bool:
    """Kernels of one machine differ by a few MiB in what they call the memory."""
    return (
        isinstance(old, int)
        and isinstance(new, int)
        and min(old, new) > 1024
        and abs(old - new) <= max(old, new) // 100
    )


def with_done(
    changes: Iterable[Change],
    texts: tuple[Mapping[str, str] | None, Mapping[str, str]],
    node: str,
    *,
    own: Iterable[str] = (),
    resumed: bool = False,
) -> tuple[Change, ...]:
    """What was made of each, from the configuration files before and now.

    `own` names the files that are the user's: there nothing is done. `resumed`: the node was.
    """
    before, now = (_values(text, node) for text in texts)
    tail = ", node resumed" if resumed else ""
    found = []
    for item in changes:
        key = item.key
        if key is None:
            done = "nothing had to be"
        elif "slurm.conf" in own:
            done = f"nothing: config/slurm.conf is yours{tail}"
        else:
            done = _took_over(key, before.get(key), now.get(key)) + tail
        found.append(replace(item, done=done))
    return tuple(found)


def _values(texts: Mapping[str, str] | None, node: str) -> Mapping[str, str]:
    found = slurm_conf.node((texts or {}).get("slurm.conf", ""), node)
    return found.values if found else {}


_NAMES: Mapping[NodeKey, str] = {"gres": "Gres", "cpus": "CPUs", "realmemory": "RealMemory"}


def _took_over(key: NodeKey, old: str | None, new: str | None) -> str:
    unit = " MiB" if key == "realmemory" else ""
    now = f"{new}{unit}" if new else "none"
    if old == new:
        return f"{_NAMES[key]} stays {now}"
    return f"{_NAMES[key]} is {now} instead of {f'{old}{unit}' if old else 'none'}"


def as_text(changes: Iterable[Change]) -> str:
    """A block of the log; "" where nothing changed."""
    lines = []
    for item in changes:
        lines.append(f"  {item.what}: was {item.was}, is {item.now}")
        if item.done:
            lines.append(f"    done: {item.done}")
    return "\n".join(["Changed since the last start:", *lines]) if lines else ""
