"""Values and paths of a document as one line that can be printed."""

from __future__ import annotations

import json
import re

Path = tuple[str | int, ...]


def path_text(path: Path) -> str:
    """As people write it: `$.resources.gpus`, `$.parameters[0]`, `$.resources.env["A B"]`."""
    parts = ["$"]
    for part in path:
        if isinstance(part, int):
            parts.append(f"[{part}]")
        elif re.fullmatch(r"[A-Za-z_$][A-Za-z0-9_$-]{0,63}", part):
            parts.append(f".{part}")
        else:
            parts.append(f"[{shown(part)}]")
    return "".join(parts)


def shown(value: object) -> str:
    """A value as it stands in JSON, one short line without control characters."""
    text = json.dumps(value, ensure_ascii=False)
    text = "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in text)
    return text if len(text) <= 60 else f"{text[:56]} ..."


def one_line(text: str) -> str:
    """A text of a method file as it can be printed: no line ends, no control characters."""
    return "".join(each if each.isprintable() else " " for each in " ".join(text.split()))
