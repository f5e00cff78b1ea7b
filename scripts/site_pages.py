"""What mkdocs.yml's site has beside docs/: pages made from their source as the site is built.

README and the other documents outside of docs/, the list of findings with its search box, the reference of
commands, settings and schemas. mkdocs calls the functions that begin with `on_`.
"""

from __future__ import annotations

import html
import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

from dshpc_setup.cli import manual
from dshpc_setup.diagnose import catalogue
from dshpc_setup.errors import DshpcError
from dshpc_setup.pasted import exported
from dshpc_setup.settings import DECLARATIONS

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = {
    "README.md": "overview.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "benchmarks.md",
    "tests/messages/README.md": "messages.md",
    "docs/decisions": "decisions/index.md",
    "docs/schemas": "reference/schemas.md",
}
"""Where a document or folder of the checkout is found on the site, if not at its place below docs/."""

_SOURCES = {page: source for source, page in OUTSIDE.items() if source.endswith(".md")}
_LINK = re.compile(r"(?<!!)\]\((?P<to>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")
_INCLUDED = re.compile(r"(?m)^<!-- from README\.md: (.+) -->$")
_FENCED = re.compile(r"(?ms)^(```.*?^```$|(?: {4}.*\n)+)")
_ID = re.compile(r"(?<![\[\w-])DSH-[A-Z]{2}-\d{3}(?![\w-]|\]|\.md)")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are made."""
    for name, text in {**_documents(), **_made()}.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Put in what a page takes from README, and turn links from where its source lies."""
    name = page.file.src_uri
    text = _INCLUDED.sub(lambda found: _relinked(_chapter(found[1]), "README.md", name), markdown)
    text = text.replace("<!-- list of findings -->", _findings())
    text = _relinked(text, _SOURCES.get(name, f"docs/{name}"), name)
    if name.startswith("findings/DSH"):
        text = _with_links_to_findings(text)
    # of the scripts that write tables; a table behind one is none to this Markdown
    return re.sub(r"(?m)^<!--.*-->\n", "\n", text)


def _documents() -> dict[str, str]:
    return {page: (ROOT / source).read_text("utf-8") for page, source in _SOURCES.items()}


def _chapter(title: str) -> str:
    """A chapter of README without its heading; its own headings stay."""
    text = (ROOT / "README.md").read_text("utf-8")
    found = re.search(rf"(?ms)^(#+) {re.escape(title)}\n(.*?)(?=^\1 |^#{{1,2}} |\Z)", text)
    if found is None:
        raise DshpcError(f"README.md has no chapter {title!r}.")
    return found[2].strip()


def _relinked(text: str, source: str, page: str) -> str:
    """Its links as they are from the page, where they were as they are from the source."""

    def turned(found: re.Match[str]) -> str:
        to, anchor = found["to"], found["anchor"] or ""
        if re.match(r"[a-z]+:", to):
            return found[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), to))
        target = OUTSIDE.get(path, path.removeprefix("docs/"))
        return f"]({posixpath.relpath(target, posixpath.dirname(page) or '.')}{anchor})"

    return _LINK.sub(turned, text)


def _with_links_to_findings(text: str) -> str:
    """Ids in sentences become links; those in headings and in what is typed stay."""
    parts = _FENCED.split(text)
    for at in range(0, len(parts), 2):
        lines = parts[at].split("\n")
        parts[at] = "\n".join(
            line if line.startswith("#") else _ID.sub(r"[\g<0>](\g<0>.md)", line) for line in lines
        )
    return "".join(parts)


def _made() -> dict[str, str]:
    rules = json.dumps(exported.rules(), ensure_ascii=True, separators=(",", ":"))
    return {
        "decisions/index.md": _decisions(),
        "reference/commands.md": _commands(),
        "reference/settings.md": _settings(),
        "reference/schemas.md": _schemas(),
        # a script and no JSON: a page that is read from the disk may not fetch
        "assets/explain-rules.js": f"var dshpcRules = {rules};\n",
    }


def _findings() -> str:
    sections: dict[str, list[str]] = {}
    for check in catalogue():
        line = f"- [{check.id}](findings/{check.id}.md) {html.escape(check.fault_title)}"
        sections.setdefault(check.section, []).append(line)
    return "".join(
        f"\n## {'GPU' if name == 'gpu' else name.capitalize()}\n\n" + "\n".join(lines) + "\n"
        for name, lines in sections.items()
    )


def _decisions() -> str:
    pages = sorted((ROOT / "docs/decisions").glob("*.md"))
    lines = (f"- [{_title(page)}]({page.name})" for page in pages)
    return "# Decisions\n\nWhy it is built so, the oldest first.\n\n" + "\n".join(lines) + "\n"


def _title(page: Path) -> str:
    return page.read_text("utf-8").partition("\n")[0].lstrip("# ")


def _commands() -> str:
    parts = ["# Commands\n\nAs `dshpc COMMAND --help` says them.\n"]
    for command in manual.commands():
        parts += _command(command, "##")
    return "\n".join(parts)


def _command(command: manual.Command, level: str) -> Iterator[str]:
    yield f"{level} {command.name}\n\n{_text(command.help)}\n\n```sh\n{command.usage}\n```\n"
    rows = [*command.arguments]
    rows += [
        (f"{', '.join(each.names)} {each.takes}".strip(), each.help) for each in command.options
    ]
    if rows:
        yield _table(
            ("argument or option", ""), ((f"`{typed}`", _text(says)) for typed, says in rows)
        )
    if command.examples:
        yield "```sh\n" + "\n".join(command.examples) + "\n```\n"
    for each in command.commands:
        yield from _command(each, f"{level}#")


def _settings() -> str:
    rows = (
        (
            f"`{each.name}`<br>`{each.flag} {each.metavar}`<br>`{each.env}`",
            _default(each.default),
            _text(each.help),
        )
        for each in DECLARATIONS
    )
    head = ("in dshpc.yaml, flag of configure, variable", "default", "")
    return (
        "# Settings\n\nFlags come first, then variables, then what a flag of an earlier run chose, then "
        "`dshpc.yaml`. [How they are used](../how-to/configuration.md).\n\n" + _table(head, rows)
    )


def _default(value: Any) -> str:
    return "" if value in ("", (), None) else f"`{value}`"


def _schemas() -> str:
    parts = ["# JSON schemas\n\nFor editors, and for programs that write these files.\n"]
    for path in sorted((ROOT / "docs/schemas").glob("*.json")):
        schema = json.loads(path.read_text("utf-8"))
        rows = ((f"`{name}`", _text(says)) for name, says in _properties(schema))
        about = _text(schema.get("description", ""))
        title = path.name.removesuffix(".schema.json")
        link = f"[{path.name}](../schemas/{path.name})"
        parts.append(f"## {title}\n\n{about} {link}\n\n" + _table(("key", ""), rows))
    return "\n".join(parts)


def _properties(schema: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    for name, each in schema.get("properties", {}).items():
        yield above + name, each.get("description", "")
        yield from _properties(each, f"{above}{name}.")
        if isinstance(items := each.get("items"), dict):
            yield from _properties(items, f"{above}{name}[].")


def _table(head: tuple[str, ...], rows: Any) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    cells = (" | ".join(cell.replace("|", r"\|") for cell in row) for row in lines)
    return "".join(f"| {each} |\n" for each in cells)


def _text(words: str) -> str:
    """A sentence as Markdown that shows it as it is."""
    return html.escape(" ".join(words.split()), quote=False).replace("*", r"\*").replace("_", r"\_")
