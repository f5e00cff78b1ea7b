"""The settings as an object: what `dshpc config show --json` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dshpc_setup.settings import DECLARATIONS, Settings
from dshpc_setup.settings.edited import item_text
from dshpc_setup.settings.overruled import Overruled


def settings_json(
    settings: Settings, kept_out: Sequence[Overruled] = (), only: str | None = None
) -> dict[str, Any]:
    """The `dshpc.settings/1` object: name -> value, origin, where, and which file of the user's own keeps
    it from being in force. `only` is the name of one, of which alone it tells."""
    files: dict[str, list[str]] = {}
    for each in kept_out:
        files.setdefault(each.setting, []).append(f"config/{each.file}")
    values = {
        item.name: {
            "value": _plain(getattr(settings, item.name)),
            "origin": settings.sources[item.name].origin,
            "where": settings.sources[item.name].where,
            "kept_out_by": files.get(item.name, []),
        }
        for item in DECLARATIONS
        if only in (None, item.name)
    }
    return {"schema": "dshpc.settings/1", "settings": values}


def _plain(value: Any) -> Any:
    """Lists as dshpc.yaml has them."""
    return [item_text(item) for item in value] if isinstance(value, tuple) else value
