"""The settings that the files of a project folder were last made with, and which are others by now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dshpc_setup.errors import DshpcError
from dshpc_setup.settings import BY_NAME, DECLARATIONS, Settings
from dshpc_setup.settings.edited import as_text
from dshpc_setup.terminal.printed import plain

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
    def sentence(self) -> str:
        return (
            f"{self.name} is {_shown(self.here)} by now ({self.where}), and {_shown(self.in_force)} is in "
            "force. To apply it: configure-environment"
        )


def record(settings: Settings) -> dict[str, Any]:
    """What a later `behind` needs; of a run with a settings file of its own nothing can be compared."""
    sources = settings.sources.values()
    if any(each.origin == "file" and not each.where.startswith(_OWN_FILE) for each in sources):
        return {}
    by_variable = [name for name, each in settings.sources.items() if each.origin == "environment"]
    return {"texts": dict(settings.texts), "by_variable": by_variable}


def behind(record: Mapping[str, Any], now: Settings) -> Iterator[Behind]:
    """Those that differ. One that came from a variable, which this shell has not, is left out."""
    texts, by_variable = record.get("texts"), record.get("by_variable")
    if not isinstance(texts, dict) or not isinstance(by_variable, list):
        return
    for item in DECLARATIONS:
        source = now.sources[item.name]
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
        return "the default" if value is None else "empty"
    return text if len(text) <= _MOST else f"{text[: _MOST - 3]}..."
