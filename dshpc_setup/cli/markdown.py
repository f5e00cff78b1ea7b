"""Our own pages, written in Markdown, as text for a terminal."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from typing import ClassVar

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderResult
from rich.default_styles import DEFAULT_STYLES
from rich.markdown import CodeBlock, Heading, ListItem, Markdown, MarkdownElement, Paragraph
from rich.segment import Segment
from rich.theme import Theme

from dshpc_setup.cli.terminal import WIDTH, Ink, printable, wrapped
from dshpc_setup.terminal.command_names import as_called

_KEPT = "\ue000"  # for a blank at which no line ends: a sign for private use, which no page has
_CODE = "    "
# What is no mark of the pages stays: an entity, HTML, a link's definition, an address alone
_STAYS = ("entity", "html_block", "html_inline", "reference", "autolink", "lheading", "image")
_HEADINGS = [f"h{level}" for level in range(1, 7)]
_PLAIN = Theme(
    dict.fromkeys(DEFAULT_STYLES, "none") | {f"markdown.{each}": "bold" for each in _HEADINGS}
)


def as_text(page: str, ink: Ink) -> list[str]:
    """Headings, code as it stands, lists and paragraphs wrapped; an empty line between them."""
    printed = io.StringIO()
    console = Console(
        file=printed,
        width=WIDTH,
        force_terminal=ink.on,
        color_system="standard" if ink.on else None,
        no_color=not ink.on,
        theme=_PLAIN,
        legacy_windows=False,
        _environ={},
    )
    lines = (printable(line).replace(_KEPT, "?") for line in page.splitlines())
    console.print(_Page("\n".join(lines)), crop=False)
    text = "\n".join(line.rstrip() for line in printed.getvalue().replace(_KEPT, " ").split("\n"))
    return re.sub(r"\n{3,}", "\n\n", text.strip("\n")).split("\n")


class _Code(CodeBlock):
    """Never wrapped: it is there to be copied."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in str(self.text).rstrip().split("\n"):
            yield Segment(f"{_CODE}{as_called(line)}\n")


class _Heading(Heading):
    """In one line."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Segment(self.text.plain, console.get_style(self.style_name))
        yield Segment.line()


class _Paragraph(Paragraph):
    """No line ends in a command, however long: rich would fold it."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in wrapped(self.text.plain, width=options.max_width):
            yield Segment(f"{line}\n")


class _Item(ListItem):
    """With the marks that the other texts of the terminal have."""

    def render_bullet(self, console: Console, options: ConsoleOptions) -> RenderResult:
        return self._marked("  - ", console, options)

    def render_number(
        self, console: Console, options: ConsoleOptions, number: int, last_number: int
    ) -> RenderResult:
        return self._marked(f"  {number}. ", console, options)

    def _marked(self, mark: str, console: Console, options: ConsoleOptions) -> RenderResult:
        room = options.update(width=options.max_width - len(mark))
        for line in Segment.split_lines(console.render(self.elements, room)):
            yield Segment(mark)
            yield from line
            yield Segment.line()
            mark = " " * len(mark)


class _Page(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _Heading,
        "paragraph_open": _Paragraph,
        "fence": _Code,
        "code_block": _Code,
        "list_item_open": _Item,
    }

    def __init__(self, page: str) -> None:
        super().__init__("")
        parser = MarkdownIt("commonmark").disable(_STAYS).enable("table")
        self.parsed = parser.parse(page)
        for token in self.parsed:
            if token.children is not None:
                token.children = list(_typed(token.children))


def _typed(tokens: Iterable[Token]) -> Iterator[Token]:
    """Of one paragraph: commands as they can be typed, code in one line, links with their address."""
    target = shown = ""
    for token in tokens:
        if token.type == "link_open":
            target, shown = str(token.attrs.get("href", "")), ""
        elif token.type == "link_close":
            if "://" in target and shown != target:
                yield Token("text", "", 0, content=f" ({target})")
        elif token.type == "code_inline":
            yield token.copy(content=as_called(token.content.strip()).replace(" ", _KEPT))
        elif token.type == "text":
            shown += token.content
            yield token.copy(content=as_called(token.content))
        else:
            yield token
