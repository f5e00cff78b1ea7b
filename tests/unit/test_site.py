"""The site: it builds without a warning, asks no other host, and has all that it is made from."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

from dshpc_setup.cli import manual
from dshpc_setup.diagnose import catalogue
from dshpc_setup.pasted import exported
from dshpc_setup.settings import DECLARATIONS
from scripts import site_pages

ROOT = Path(__file__).parents[2]
_LOADS = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True))
    return folder


class Loaded(HTMLParser):
    """What a browser fetches by itself to show a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = dict(attrs)
        if said.get("rel") != "canonical" and (place := said.get(_LOADS.get(tag, ""))):
            self.found.append(place)


def test_no_other_host_is_asked(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 200
    for page in pages:
        parser = Loaded()
        parser.feed(page.read_text())
        assert [place for place in parser.found if re.match(r"(?:[a-z]+:)?//", place)] == []
    for style in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)[\"' ]*(?:https?:)?//", style.read_text()), style


def test_every_file_that_a_page_loads_is_there(site: Path) -> None:
    page = site / "explain.html"
    parser = Loaded()
    parser.feed(page.read_text())
    assert any(place.endswith("explain-rules.js") for place in parser.found)
    assert [place for place in parser.found if not (page.parent / place).is_file()] == []


def test_every_finding_has_its_page_in_the_list(site: Path) -> None:
    listed = (site / "explain.html").read_text()
    for check in catalogue():
        assert f'href="findings/{check.id}.html"' in listed
        assert (site / f"findings/{check.id}.html").is_file()


def _all(commands: tuple[manual.Command, ...]) -> Iterator[manual.Command]:
    for command in commands:
        yield command
        yield from _all(command.commands)


def test_the_reference_has_every_command_option_and_setting(site: Path) -> None:
    commands = (site / "reference/commands.html").read_text()
    for command in _all(manual.commands()):
        assert f'id="{command.name.replace(" ", "-")}"' in commands
        for option in command.options:
            assert option.names[-1] in commands
    settings = (site / "reference/settings.html").read_text()
    for setting in DECLARATIONS:
        assert f"<code>{setting.env}</code>" in settings


def test_a_chapter_of_readme_is_taken_from_there(site: Path) -> None:
    start = re.sub("<span[^>]*>|</span>", "", (site / "start.html").read_text())
    assert "nvidia-ctk runtime configure" in start
    assert "from README.md" not in start
    assert 'href="tried.html"' in start


@pytest.mark.parametrize(
    ("source", "page", "link", "turned"),
    [
        ("README.md", "overview.md", "docs/how-to/jobs.md", "how-to/jobs.md"),
        ("README.md", "overview.md", "docs/decisions", "decisions/index.md"),
        ("docs/how-to/doctor.md", "how-to/doctor.md", "../../tests/messages/README.md", "../messages.md"),
        ("docs/how-to/jobs.md", "how-to/jobs.md", "methods.md#x", "methods.md#x"),
        ("CONTRIBUTING.md", "contributing.md", "https://a.org/x", "https://a.org/x"),
    ],
)  # fmt: skip
def test_links_are_turned(source: str, page: str, link: str, turned: str) -> None:
    assert site_pages._relinked(f"[x]({link})", source, page) == f"[x]({turned})"


def test_ids_become_links_but_not_where_they_are_typed() -> None:
    text = "# DSH-NV-001: x\n\nsee DSH-NV-002, [DSH-NV-003](DSH-NV-003.md).\n\n    dshpc explain DSH-NV-004\n"
    assert site_pages._with_links_to_findings(text) == text.replace(
        "DSH-NV-002,", "[DSH-NV-002](DSH-NV-002.md),"
    )


@pytest.mark.parametrize(
    ("python", "browser"),
    [
        (r"\bGPU\b.{0,9}", r"\bGPU\b[^\n]{0,9}"),
        (r"(?P<a>[.$^])\.", r"(?<a>[.$^])\."),
        (r"\A(?!.*x)y\Z", r"(?<![^])(?![^\n]*x)y(?![^])"),
        (r"^a$", r"(?<![^])a(?=\n?(?![^]))"),
        (r"(?m)^a$", r"(?<=\n|(?<![^]))a(?=\n|(?![^]))"),
        (r"[^\]\"]a", r"[^\]\"]a"),
    ],
)
def test_a_pattern_as_browsers_write_it(python: str, browser: str) -> None:
    assert exported.pattern(python) == browser


def test_the_rules_are_data_and_name_findings_that_are_there() -> None:
    rules = json.loads(json.dumps(exported.rules()))
    named = [each["finding"] for each in (*rules["log"], *rules["refusals"])]
    for name in ("first", "next", "last"):
        named += [each for sign in rules[name] for each in sign["findings"]]
    assert set(named) <= set(rules["titles"])
    assert "(?P" not in json.dumps(rules)
