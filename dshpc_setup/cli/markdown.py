"""Our own pages, written in Markdown, as text for a terminal: what they use of it, and no more."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dshpc_setup.cli.terminal import Ink, printable, wrapped
from dshpc_setup.terminal.called import as_called

_HEADING = re.compile(r"#{1,6} +(.*?)(?: +#+)? *")
_ITEM = re.compile(r"( *)([-*+]|[0-9]{1,3}[.)]) +(\S.*)")
_FENCE = re.compile(r" {0,3}(```+|~~~+)")
_LINK = re.compile(r"\[([^]]+)\]\(([^)\s]+)\)")
_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")
_STRONG = re.compile(r"\*\*(?=\S)(.+?)(?<=\S)\*\*")
_CODE = "    "
_KEPT = "\N{NO-BREAK SPACE}"  # where no line may end; `printable` leaves none of a page's own


def as_text(page: str, ink: Ink) -> list[str]:
    """Headings, code as it stands, lists and paragraphs wrapped; one empty line between them."""
    said: list[str] = []
    in_list = False
    for block in _blocks([printable(line).rstrip() for line in page.splitlines()]):
        if said and not (in_list and _is_item(block)):
            said.append("")
        in_list = _is_item(block)
        said += _shown(block, ink)
    return said


def _blocks(lines: list[str]) -> Iterator[list[str]]:
    """The lines of each heading, piece of code (its indent or fence included), item, paragraph."""
    block: list[str] = []
    fence = ""
    for line in lines:
        opened = _FENCE.match(line)
        if fence:
            block.append(line)
            if line.strip().startswith(fence):
                yield block
                block, fence = [], ""
            continue
        if _ends(block, line) or opened:
            if block:
                yield block
            block = []
        if opened:
            fence = opened[1]
        if line or (block and _is_code(block)):
            block.append(line)
    if block:
        yield block


def _ends(block: list[str], line: str) -> bool:
    """Whether the line belongs to the block no more."""
    if not block or _is_heading(block):
        return True
    if _is_code(block):
        return bool(line) and not line.startswith(_CODE)
    return not line or _HEADING.fullmatch(line) is not None or _ITEM.fullmatch(line) is not None


def _is_heading(block: list[str]) -> bool:
    return _HEADING.fullmatch(block[0]) is not None


def _is_code(block: list[str]) -> bool:
    return block[0].startswith(_CODE)


def _is_item(block: list[str]) -> bool:
    return not _is_code(block) and _ITEM.fullmatch(block[0]) is not None


def _shown(block: list[str], ink: Ink) -> Iterator[str]:
    heading, item = _HEADING.fullmatch(block[0]), _ITEM.fullmatch(block[0])
    if _FENCE.match(block[0]):
        end = -1 if len(block) > 1 and _FENCE.match(block[-1]) else None
        yield from (_as_code(line) for line in block[1:end])
    elif _is_code(block):
        code = "\n".join(line[len(_CODE) :] for line in block).rstrip().splitlines()
        yield from map(_as_code, code)
    elif heading:
        yield ink.bold(_inline(heading[1]).replace(_KEPT, " "))
    elif block[0].startswith("|"):  # a table, as it stands
        yield from block
    elif item:
        text = " ".join([item[3], *(line.strip() for line in block[1:])])
        mark = "-" if item[2] in "*+" else item[2]
        yield from _lines(text, f"  {item[1]}{mark} ")
    else:
        yield from _lines(" ".join(line.strip() for line in block))


def _as_code(line: str) -> str:
    return f"{_CODE}{as_called(line)}".rstrip()


def _lines(text: str, first: str = "") -> Iterator[str]:
    return (line.replace(_KEPT, " ") for line in wrapped(_inline(text), first))


def _inline(text: str) -> str:
    """Without marks; what stood in backticks is kept as it is, and in one line."""
    said, end = [], 0
    for span in _SPAN.finditer(text):
        code = span[2].strip() or span[2]
        said += [_prose(text[end : span.start()]), as_called(code).replace(" ", _KEPT)]
        end = span.end()
    return "".join([*said, _prose(text[end:])])


def _prose(text: str) -> str:
    text = _STRONG.sub(r"\1", text)
    return as_called(_LINK.sub(lambda found: _link(found[1], found[2]), text))


def _link(text: str, target: str) -> str:
    return text if text == target or "://" not in target else f"{text} ({target})"
