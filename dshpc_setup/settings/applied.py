"""The settings that the files of a project folder were last made with, and which are others by now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dshpc_setup.errors import DshpcError
from dshpc_setup.settings import BY_NAME, DECLARATIONS, Settings
from dshpc_setup.settings.edited import as_text
from dshpc_setup.terminal.sanitize import plain

_OWN_FILE = "dshpc.yaml:"
_MOST = 60  # letters of a value


@dataclass(frozen=True)
class Behind:
    """A setting whose value here is not the one in force; `where` it stands."""

    name: str
    here: Any
    in_force: Any
    where: str

    @property
    def what(self) -> str:
        item = BY_NAME[self.name]
        if self.here == item.default and self.where == "default":
            now = "back to its default"
        else:
            now = f"now {_shown(self.here)} ({self.where})"
        return f"{self.name} is {now}, but the cluster still runs with {_shown(self.in_force)}."

    @property
    def sentence(self) -> str:
        return f"{self.what} To apply it: configure-environment"


_BY_UP = frozenset(
    ("metrics", "dashboard")
)  # which `dshpc up` follows by itself, and no container knows


def record(settings: Settings, real_memory_mib: int | None = None) -> dict[str, Any]:
    """What a later `behind` needs; of a run with a settings file of its own nothing can be compared.

    `real_memory_mib`: RealMemory of the node, as it came of them.
    """
    sources = settings.sources.values()
    if any(each.origin == "file" and not each.where.startswith(_OWN_FILE) for each in sources):
        return {}
    by_variable = [name for name, each in settings.sources.items() if each.origin == "environment"]
    found = {"texts": dict(settings.texts), "by_variable": by_variable}
    return found if real_memory_mib is None else {**found, "real_memory_mib": real_memory_mib}


def real_memory_mib(record: Mapping[str, Any], now: Settings) -> int | None:
    """RealMemory as it was rendered last, where that was with this reserve_mib."""
    texts, memory = record.get("texts"), record.get("real_memory_mib")
    same = isinstance(texts, dict) and texts.get("reserve_mib") == now.texts.get("reserve_mib")
    return memory if same and isinstance(memory, int) else None


def behind(record: Mapping[str, Any], now: Settings) -> Iterator[Behind]:
    """Those that differ. One that came from a variable, which this shell has not, is left out."""
    texts, by_variable = record.get("texts"), record.get("by_variable")
    if not isinstance(texts, dict) or not isinstance(by_variable, list):
        return
    for item in DECLARATIONS:
        source = now.sources[item.name]
        if item.name in _BY_UP:
            continue
        if item.name in by_variable and source.origin != "environment":
            continue
        before, here = _value(item.name, texts.get(item.name)), getattr(now, item.name)
        if before != here:
            yield Behind(item.name, here, before, source.where)


def _value(name: str, text: object) -> Any:
    item = BY_NAME[name]
    if not isinstance(text, str):
        return item.default
    try:
        return item.parse(text)
    except (ValueError, DshpcError):  # of another version
        return text


def _shown(value: Any) -> str:
    text = "; ".join(map(plain, as_text(value).splitlines()))
    if not text:
        return "the default"
    return text if len(text) <= _MOST else f"{text[: _MOST - 3]}..."
