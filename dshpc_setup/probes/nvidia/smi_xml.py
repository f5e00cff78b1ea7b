"""`nvidia-smi -q -x`, in every version of its schema, read into the shapes in which NVML answers.

A log in plain text (`nvidia-smi -q`) is read as well, should a tool write that one all the same.
"""

from __future__ import annotations

import re
from typing import Any

from dshpc_setup.probes.nvidia import smi_log as nvidia_log
from dshpc_setup.probes.nvidia import smi_plain as nvidia_plain
from dshpc_setup.probes.nvidia.smi_fields import LONGEST
from dshpc_setup.probes.nvidia.smi_log import Card, Fields, Log

ARGUMENTS = ("-q", "-x")
PLAIN_ARGUMENTS = ("-q",)

_MOST_CHARACTERS = 4 << 20  # 8 GPUs need a tenth of it
_MOST_DEPTH = 32
_MOST_CARDS = 256
_MOST_PARTS = 64
_MOST_FIELDS = 5000
_BLOCK = 1 << 16
_ROOT = re.compile(r"<(?:[\w.-]{1,64}:)?nvidia_smi(?:_log)?[\s>]")
_NO_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_OWN_GRAMMAR = re.compile(r"<!DOCTYPE[^>\[]{0,500}\[|<!ENTITY")


def parse(text: str) -> dict[str, Any] | None:
    """NVML's value (see machine/nvml.py); None where no whole GPU is in the text."""
    log = _read(text)
    return nvidia_log.facts(log, text[:_MOST_CHARACTERS]) if log is not None else None


def readings(text: str) -> dict[str, Any] | None:
    """What NVML's `ask_readings` answers (see machine/nvml.py); None where it holds no whole GPU."""
    log = _read(text)
    return nvidia_log.readings(log, text[:_MOST_CHARACTERS]) if log is not None else None


def _read(text: str) -> Log | None:
    text = text[:_MOST_CHARACTERS]
    return _read_xml(text) or nvidia_plain.read(text)


def _read_xml(text: str) -> Log | None:
    """The GPUs that came whole, should the text be cut off or broken further on.

    The reading starts at the root element: what stands before it (warnings, a grammar) is not XML to
    us, so no entity is ever declared. nvidia-smi writes no grammar unless it is asked to.
    """
    root = _ROOT.search(text)
    if root is None or _OWN_GRAMMAR.search(text):
        return None
    from xml.parsers import expat

    reader = _Reader()
    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = True
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.characters
    document = _without_processes(_NO_XML.sub("?", text[root.start() :]))
    try:
        for start in range(0, len(document), _BLOCK):
            parser.Parse(document[start : start + _BLOCK].encode(errors="replace"), False)
    except (expat.ExpatError, _TooMuchError):
        pass  # cut off, text after the end, or no XML from here on
    return reader.log


def _without_processes(document: str) -> str:
    """Without the processes' names: they are the users', and nvidia-smi writes them as they are."""
    for name in ("processes", "accounted_processes"):
        opening, closing = f"<{name}>", f"</{name}>"
        *closed, last = document.split(closing)
        kept = [f"{piece.partition(opening)[0]}{opening}" for piece in closed if opening in piece]
        if len(kept) == len(closed):
            document = closing.join([*kept, last])
    return document


class _TooMuchError(Exception):
    pass


class _Reader:
    """Takes the elements as they come, and keeps the leaves' texts."""

    def __init__(self) -> None:
        self.log = Log()
        self._path: list[str] = []
        self._text = ""
        self._card: Card | None = None
        self._part: tuple[int, Fields] | None = None  # the depth of the instance's element

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._path.append(name.rpartition(":")[2][:LONGEST])
        self._text = ""
        if len(self._path) > _MOST_DEPTH or len(self.log.cards) >= _MOST_CARDS:
            raise _TooMuchError
        if len(self._path) == 2 and self._path[1] == "gpu":
            self._card = Card()
            if address := attributes.get("id"):
                self._card.fields["id"] = address[:LONGEST]
        elif self._card is not None and self._path[-1] == "mig_device":
            self._part = (len(self._path), {})

    def characters(self, text: str) -> None:
        if len(self._text) < LONGEST:
            self._text += text[:LONGEST]

    def end(self, _: str) -> None:
        depth, text = len(self._path), self._text.strip()[:LONGEST]
        self._text = ""
        if text:
            self._keep(text)
        if self._part is not None and self._part[0] == depth:
            if self._card is not None and len(self._card.parts) < _MOST_PARTS:
                self._card.parts.append(self._part[1])
            self._part = None
        if self._card is not None and depth == 2:
            self.log.cards.append(self._card)
            self._card = None
        self._path.pop()

    def _keep(self, text: str) -> None:
        if self._part is not None:
            held, path = self._part[1], self._path[self._part[0] :]
        elif self._card is not None:
            held, path = self._card.fields, self._path[2:]
        else:
            held, path = self.log.general, self._path[1:]
        if len(held) < _MOST_FIELDS:
            held.setdefault("/".join(path), text)
