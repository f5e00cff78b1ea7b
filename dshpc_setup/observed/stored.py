"""What was observed as JSON: `observed.json` of a report, read back as strictly as it was written."""

from __future__ import annotations

from typing import Any

from dshpc_setup import codec
from dshpc_setup.documents import foreign
from dshpc_setup.errors import DshpcError, usage_error
from dshpc_setup.observed.model import SCHEMA, Observed


def to_json(observed: Observed) -> dict[str, Any]:
    """The `dshpc.observed/1` object."""
    return codec.to_json(observed, SCHEMA)


def from_json(text: str, where: str) -> Observed:
    """The same read back; DshpcError, which names `where`, for what is no such object.

    Fields that are missing have their defaults: a report of an older version knows fewer.
    """
    try:
        value = foreign.value(text)
        if not isinstance(value, dict) or value.pop("schema", None) != SCHEMA:
            raise unreadable(where, f"its schema is not {SCHEMA}")
        return codec.from_json(Observed, value, halves=False)
    except (ValueError, RecursionError) as error:
        raise unreadable(where, str(error)) from None


def unreadable(where: str, why: str) -> DshpcError:
    """A file of a report, or of a folder that it was unpacked to, that says nothing."""
    return usage_error(
        f"{where} cannot be read.",
        why,
        "It is written by `dshpc doctor --bundle`: have the report created again.",
    )
