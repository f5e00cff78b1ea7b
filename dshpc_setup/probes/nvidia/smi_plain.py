"""`nvidia-smi -q`, the log in plain text, for tools that write no XML."""

from __future__ import annotations

import re

from dshpc_setup.probes.nvidia.smi_fields import LONGEST
from dshpc_setup.probes.nvidia.smi_log import Card, Fields, Log

_HEADING = re.compile(r"GPU ([0-9A-Fa-f:]{7,16}(?:\.\d)?)")
_INSTANCE = "mig_device"
_MOST_CHARACTERS = 1 << 20
_MOST_DEPTH = 32
_MOST_CARDS = 256


def read(text: str) -> Log | None:
    """The log's GPUs; None where the text is no such log."""
    text = text[:_MOST_CHARACTERS]
    if "NVSMI LOG" not in text:
        return None
    log = Log()
    card: Card | None = None
    part: tuple[int, Fields] | None = None  # the column of the instance's heading
    open_at: list[tuple[int, str]] = []  # headings by their columns
    for line in text.splitlines():
        body = line[:LONGEST].strip()
        if not body:
            continue
        column = len(line) - len(line.lstrip())
        if column == 0 and (heading := _HEADING.fullmatch(body)):
            if len(log.cards) == _MOST_CARDS:
                break
            card, part, open_at = Card({"id": heading[1]}), None, []
            log.cards.append(card)
            continue
        while open_at and open_at[-1][0] >= column:
            open_at.pop()
        if part is not None and column <= part[0]:
            part = None
        label, colon, value = body.partition(" : ")
        name = re.sub(r"[^a-z0-9]+", "_", label.lower()).strip("_")
        if not colon:
            if card is not None and name == _INSTANCE:
                part = (column, {})
                card.parts.append(part[1])
                open_at = []
            elif len(open_at) < _MOST_DEPTH:
                open_at.append((column, name))
        elif value.strip():
            held = part[1] if part else card.fields if card and column else log.general
            held.setdefault("/".join([*(heading for _, heading in open_at), name]), value.strip())
    return log if log.cards else None
