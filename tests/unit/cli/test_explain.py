"""`dshpc explain`: the page of a finding, from the checkout and from a wheel."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup import cli, findings_pages, resources
from dshpc_setup.cli.chosen import full_id
from dshpc_setup.cli.markdown import as_text
from dshpc_setup.cli.terminal import Ink
from dshpc_setup.diagnose import catalogue
from scripts import share_in_wheel

PAGE = """\
# DSH-DK-001: The engine is gone

## What it means ##

Nothing listens. That is **wrong**, and `docker ps` says the same in one line that is longer than eighty.
It goes on.

- Debian: start it,
  and wait
- Others: see [the guide](https://example.org/guide) or [ours](../how-to/doctor.md)
1. First

       sudo systemctl start docker

    sudo  true \\
        --and-more

    the end

```sh
# no heading
- no item
```
| a | b |
|---|---|
"""


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A share of one page."""
    monkeypatch.setattr(resources, "share", lambda: tmp_path)
    monkeypatch.delenv("DSHPC_COMMAND", raising=False)
    folder = tmp_path / "docs" / "findings"
    folder.mkdir(parents=True)
    (folder / "DSH-DK-001.md").write_text(PAGE)
    return folder


def explained(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = cli.run(["explain", *words], "dshpc")
    return (code, *capsys.readouterr())


# The page as text


def test_headings_code_lists_and_paragraphs() -> None:
    assert as_text(PAGE, Ink()) == [
        "DSH-DK-001: The engine is gone",
        "",
        "What it means",
        "",
        "Nothing listens. That is wrong, and `docker ps` says the same in one line that",
        "is longer than eighty. It goes on.",
        "",
        "  - Debian: start it, and wait",
        "  - Others: see the guide (https://example.org/guide) or ours",
        "  1. First",
        "",
        "       sudo systemctl start docker",
        "",
        "    sudo  true \\",
        "        --and-more",
        "",
        "    the end",
        "",
        "    # no heading",
        "    - no item",
        "",
        "| a | b |",
        "|---|---|",
    ]


def test_headings_are_bold_on_a_terminal() -> None:
    bold = [line for line in as_text(PAGE, Ink(on=True)) if "\033" in line]
    assert bold == ["\033[1mDSH-DK-001: The engine is gone\033[0m", "\033[1mWhat it means\033[0m"]


def test_what_only_looks_like_markdown_stays() -> None:
    text = "2 ** 3 and #1 stay\n\n#hash\n\n[a] (b)\n\n-x\n\n    **x** [a](http://b)"
    shown = ["2 ** 3 and #1 stay", "#hash", "[a] (b)", "-x", "    **x** [a](http://b)"]
    assert [line for line in as_text(text, Ink()) if line] == shown


@given(st.text(alphabet=st.sampled_from("#-*`~ \n\t1.a|[](\x1b")) | st.text())
def test_any_page_loses_no_word_and_commands_nothing(page: str) -> None:
    shown = as_text(page, Ink())
    assert all(line.isprintable() for line in shown)
    letters = [sign for sign in page if sign.isascii() and sign.isalpha()]
    if "](" not in page and "```" not in page and "~~~" not in page:
        assert [sign for sign in "".join(shown) if sign.isascii() and sign.isalpha()] == letters


# Ids


@pytest.mark.parametrize(
    ("word", "identity"),
    [
        ("DSH-NV-013", "DSH-NV-013"),
        ("dsh-nv-013", "DSH-NV-013"),
        (" nv-013 ", "DSH-NV-013"),
        ("NV-13", "DSH-NV-013"),
        ("nv13", "DSH-NV-013"),
        ("NV-0013", "NV-0013"),
        ("nvx-13", "NVX-13"),
        ("NV-١٣", "NV-١٣"),
    ],
)
def test_ways_to_write_an_id(word: str, identity: str) -> None:
    assert full_id(word) == identity


@pytest.mark.parametrize("word", ["DSH-DK-001", "dk-1"])
def test_a_page(word: str, pages: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = explained(capsys, word)
    assert (code, err) == (0, "")
    assert out.startswith("DSH-DK-001: The engine is gone\n\nWhat it means\n")


def test_all_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = explained(capsys)
    assert code == 0
    assert out.splitlines() == [f"{check.id}  {check.fault_title}" for check in catalogue()]


@pytest.mark.parametrize(
    ("word", "near"), [("DSH-DK-01O", "DSH-DK-0"), ("dsh-sl-999", "DSH-SL-0"), ("../x", None)]
)
def test_no_such_id(word: str, near: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = explained(capsys, word)
    assert (code, out) == (64, "")
    assert repr(word) in err
    assert (f"Did you mean {near}" in err) if near else ("Did you mean" not in err)
    assert "--list-checks" in err


def test_a_page_that_is_not_there(pages: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (pages / "DSH-DK-001.md").unlink()
    code, out, err = explained(capsys, "DSH-DK-001")
    assert (code, out) == (2, "")
    assert "The page of DSH-DK-001 cannot be read." in err
    assert "dshpc doctor -v --only DSH-DK-001" in err


def test_a_wheel_carries_the_pages() -> None:
    assert "docs/findings" in share_in_wheel.SHARED
    assert findings_pages.folder() == resources.share() / "docs" / "findings"


def test_json_is_no_option(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = explained(capsys, "DSH-DK-001", "--json")
    assert code == 64
    assert json.loads(out)["schema"] == "dshpc.error/1"
