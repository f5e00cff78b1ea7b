"""The comment lines around what we put into a compose file: by them it is found and taken out again.

The line at the end carries a digest of what stands between, indentation aside, so that lines which
somebody else has put there are never taken out with ours.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dshpc_setup.compose_patch.document import Document
from dshpc_setup.errors import DshpcError

BEGIN = '# dshpc gpu begin: added by "dshpc compose patch"; its --remove takes it out'
_END = "# dshpc gpu end"
_MARKER = re.compile(r"[ \t]*# dshpc gpu (?:(?P<begin>begin)\b|end(?: \((?P<digest>[0-9a-f]*)\))?)")
_DIGITS = 8


@dataclass(frozen=True)
class Region:
    """Lines of ours, the markers' included; numbers from 0, `last` is the end marker's."""

    first: int
    last: int

    @property
    def numbers(self) -> range:
        return range(self.first, self.last + 1)


def marked(body: Sequence[str], column: int) -> list[str]:
    """The lines of a block of ours, indented, without line ends."""
    indent = " " * column
    return [indent + BEGIN, *(indent + line for line in body), f"{indent}{_END} ({_digest(body)})"]


def regions(document: Document) -> tuple[Region, ...]:
    """Every block of ours in the file, in order; raises DshpcError where one is damaged."""
    inside = _lines_of_scalars(document)
    found: list[Region] = []
    begun: int | None = None
    for number, line in enumerate(document.lines):
        marker = _MARKER.match(line)
        if marker is None or number in inside:
            continue
        if marker["begin"]:
            if begun is not None:
                raise _damaged(document, begun, "the line that ends it is gone")
            begun = number
        elif begun is None:
            raise _damaged(document, number, "the line that begins it is gone")
        else:
            body = document.lines[begun + 1 : number]
            if marker["digest"] != _digest(body):
                raise _damaged(
                    document, begun, f"it was changed by hand (to its end in line {number + 1})"
                )
            found.append(Region(begun, number))
            begun = None
    if begun is not None:
        raise _damaged(document, begun, "the line that ends it is gone")
    return tuple(found)


def without(document: Document, ours: Iterable[Region]) -> str:
    """The text without those lines."""
    gone = {number for region in ours for number in region.numbers}
    kept = [line for number, line in enumerate(document.lines) if number not in gone]
    if gone and kept and len(document.lines) - 1 in gone and not document.lines[-1].endswith("\n"):
        # the file ended without a line end before ours came behind its last line
        kept[-1] = kept[-1].removesuffix("\n").removesuffix("\r")
    return "".join(kept)


def body_of(document: Document, region: Region) -> tuple[str, ...]:
    """What stands between the markers, indentation and line ends aside."""
    return tuple(line.strip() for line in document.lines[region.first + 1 : region.last])


def _digest(body: Iterable[str]) -> str:
    text = "\n".join(line.strip() for line in body)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]


def _lines_of_scalars(document: Document) -> set[int]:
    """Lines that lie in a value: what looks like a marker there is text of the user's."""
    return {
        number
        for token in document.tokens
        if token.kind == "Scalar"
        for number in range(document.line_of(token.start) + 1, document.line_of(token.end - 1) + 1)
    }


def _damaged(document: Document, line: int, what: str) -> DshpcError:
    return document.refusal(
        document.start_of(line),
        f"the part that dshpc added here is damaged: {what}.",
        "Only what stands between its two comment lines as it was written is taken out.",
        "Delete what is left of that part by hand, both comment lines as well, then run this again.",
        "Move your own lines out of it.",
    )
