"""`dshpc explain`: the page of a finding, from the checkout and from a wheel."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup import cli, resources
from dshpc_setup.cli.check_selection import full_id
from dshpc_setup.cli.markdown import as_text
from dshpc_setup.cli.terminal import Ink
from dshpc_setup.diagnose import catalogue, findings_pages
from dshpc_setup.settings import DECLARATIONS
from dshpc_setup.terminal.commands import COMMANDS, EXEC_COMMANDS
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

The way out has a command that is longer than a terminal is wide:

    sudo  true \\
        --and-more

    sudo apt-get update && sudo apt-get install -y docker-compose-v2 docker-buildx     # Ubuntu

```sh
# no heading
- no item
```
| a | b |
|---|---|
| c | d |
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
        "Nothing listens. That is wrong, and docker ps says the same in one line that is",
        "longer than eighty. It goes on.",
        "",
        "  - Debian: start it, and wait",
        "  - Others: see the guide (https://example.org/guide) or ours",
        "",
        "  1. First",
        "         sudo systemctl start docker",
        "",
        "The way out has a command that is longer than a terminal is wide:",
        "",
        "    sudo  true \\",
        "        --and-more",
        "",
        "    sudo apt-get update && sudo apt-get install -y docker-compose-v2 docker-buildx     # Ubuntu",
        "",
        "    # no heading",
        "    - no item",
        "",
        " a  b",
        " ────",
        " c  d",
    ]


def test_a_command_in_a_sentence_is_never_wrapped() -> None:
    text = "Seventy-two characters stand before the command, so that it has no room: `sudo reboot  now`."
    assert as_text(text, Ink())[1] == "sudo reboot  now."
    assert as_text("It is ``a ` b`` and `c**` and `d**`, and 5` wide", Ink()) == [
        "It is a ` b and c** and d**, and 5` wide"
    ]
    shown = as_text(f"# `{'a ' * 60}b`", Ink())
    assert shown == [f"{'a ' * 60}b"]
    long = f"{'a ' * 60}b"
    assert as_text(f"Then run `{long}`, and\n\n- or `{long}`\n\n      {long}", Ink()) == [
        "Then run",
        f"{long},",
        "and",
        "",
        "  - or",
        f"    {long}",
        f"        {long}",
    ]
    assert as_text("See [http://a.example](http://a.example).", Ink()) == ["See http://a.example."]


def test_a_command_in_a_sentence_as_it_can_be_called(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DSHPC_COMMAND", str(tmp_path / "a b" / "dshpc"))
    assert as_text("Run `dshpc up`, or dshpc down.", Ink()) == [
        "Run 'a b/dshpc' up, or 'a b/dshpc' down."
    ]


def test_headings_are_bold_on_a_terminal() -> None:
    bold = [line for line in as_text(PAGE, Ink(on=True)) if "\033" in line]
    assert bold == ["\033[1mDSH-DK-001: The engine is gone\033[0m", "\033[1mWhat it means\033[0m"]


def test_what_only_looks_like_markdown_stays() -> None:
    text = "2 ** 3 and #1 stay\n\n#hash\n\n[a] (b)\n\n-x\n\n    **x** [a](http://b)"
    shown = ["2 ** 3 and #1 stay", "#hash", "[a] (b)", "-x", "    **x** [a](http://b)"]
    assert [line for line in as_text(text, Ink()) if line] == shown


def test_code_in_a_page_stands_as_it_is_written() -> None:
    for check in catalogue():
        page = findings_pages.page(check.id)
        code = [line.rstrip() for line in page.splitlines() if line.startswith("    ")]
        assert not set(code) - set(as_text(page, Ink()))


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
    assert "dshpc explain\n" in err


@pytest.mark.parametrize(
    ("words", "first"),
    [
        (["CUDA out of memory"], "DSH-GP-008: "),
        (["cuda", "out", "of", "memory"], "DSH-GP-008: "),
        (["torch.cuda.OutOfMemoryError"], "DSH-GP-008: "),
        (["out of GPU memory"], "DSH-GP-008: "),
        (["Failed to initialize NVML: Unknown Error"], "DSH-NV-013: "),
        (["invalid GRES specification"], "DSH-SL-020: "),
        (["visible on the host but not in the container"], "DSH-SL-022: "),
        (["built without GPU support"], "DSH-SL-021: "),
    ],
)
def test_a_page_is_found_by_the_words_of_an_error(
    words: list[str], first: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = explained(capsys, *words)
    assert (code, err) == (0, "")
    assert out.startswith(first)


def test_words_of_several_pages_list_them_the_titles_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, _ = explained(capsys, "out of memory")
    listed = [line.split()[0] for line in out.splitlines()]
    assert code == 0
    assert {"DSH-GP-008", "DSH-SL-004", "DSH-SL-025", "DSH-SL-037"} == set(listed[:4])
    assert "What it means" not in out


def test_the_other_pages_stand_below(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = explained(capsys, "CUDA out of memory")
    assert "DSH-SL-025" in out.partition("See also:")[2]


@pytest.mark.parametrize("words", ["zz nothing of the kind", "memor", "...", "out of memory zebra"])
def test_words_of_no_page(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = explained(capsys, words)
    assert (code, out) == (64, "")
    assert repr(words) in err


@given(st.text())
def test_any_words_can_be_looked_for(words: str) -> None:
    found = findings_pages.search(words, ["DSH-GP-008", "DSH-SL-025"])
    assert len(found) <= 2
    assert list(found) == sorted(found, key=lambda one: one[1])


def test_each_page_is_found_by_its_own_title() -> None:
    for check in catalogue():
        found = findings_pages.search(check.fault_title, [check.id])
        assert found == ((check.id, findings_pages.Rank.TITLE),)


PASTED = """\
[+] Running 1/1
docker: Error response from daemon: failed to create shim task: OCI runtime create failed: stderr:
nvidia-container-cli: initialization error: nvml error: driver/library version mismatch: unknown.
"""


def test_a_pasted_message(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = explained(capsys, PASTED)
    assert (code, err) == (0, "")
    page, _, told = out.partition("\nFound by these words: ")
    assert page.startswith("DSH-NV-001: ")
    words, _, besides = told.partition("\nIt can also be:\n")
    assert words == "driver/library version mismatch"
    assert besides.startswith("DSH-DK-026  ")


def test_a_pasted_message_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = asked(capsys, PASTED)
    assert (code, found["id"], found["told_by"]) == (
        0,
        "DSH-NV-001",
        "driver/library version mismatch",
    )
    assert "DSH-DK-026" in {other["id"] for other in found["others"]}


@pytest.mark.parametrize("said", [PASTED.encode(), b"\xff\xfe " + PASTED.encode()])
def test_a_message_from_standard_input(
    said: bytes, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(said), encoding="utf-8"))
    code, out, _ = explained(capsys, "-")
    assert (code, out.partition(":")[0]) == (0, "DSH-NV-001")


def test_a_pasted_message_commands_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = explained(capsys, "GPU \x1b]0;x\x07\x1b[2J is out of memory")
    assert "\x1b" not in out
    assert "\x07" not in out
    assert "DSH-GP-008" in out


def test_a_line_that_doctor_only_notes(capsys: pytest.CaptureFixture[str]) -> None:
    line = "NVRM: Xid (PCI:0000:dc:00): 45, pid=1, name=python3, Ch 00000001 caused by previous Xid 149"
    code, out, err = explained(capsys, line)
    assert (code, err) == (0, "")
    assert out.startswith("No fault: doctor would note this. ")
    assert "Xid 45 (once)" in out
    assert "\nSee also:\nDSH-NV-081  " in out
    code, found = asked(capsys, line)
    assert (code, "id" in found, "Xid 45" in found["harmless"]) == (0, False, True)
    assert found["others"][0]["id"] == "DSH-NV-081"


def test_a_text_that_nothing_explains(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = explained(capsys, "Traceback (most recent call last):\nNameError: zz")
    assert (code, out) == (64, "")
    assert "No finding is known to explain this text." in err
    assert "NameError" not in err


def test_a_page_that_is_not_there(pages: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (pages / "DSH-DK-001.md").unlink()
    code, out, err = explained(capsys, "DSH-DK-001")
    assert (code, out) == (2, "")
    assert "The page of DSH-DK-001 cannot be read." in err
    assert "dshpc doctor -v --only DSH-DK-001" in err


def test_a_wheel_carries_the_pages() -> None:
    assert "docs/findings" in share_in_wheel.SHARED
    assert findings_pages.folder() == resources.share() / "docs" / "findings"


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    code, out, _ = explained(capsys, *words, "--json")
    return code, json.loads(out)


def test_a_page_as_json(pages: Path, capsys: pytest.CaptureFixture[str]) -> None:
    title = next(check.fault_title for check in catalogue() if check.id == "DSH-DK-001")
    assert asked(capsys, "dk-1") == (
        0,
        {
            "schema": "dshpc.explain/1",
            "exit_code": 0,
            "id": "DSH-DK-001",
            "title": title,
            "text": "\n".join([*as_text(PAGE, Ink()), ""]),
            "others": [],
        },
    )


def test_what_words_find_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = asked(capsys, "CUDA", "out", "of", "memory")
    assert (code, found["id"]) == (0, "DSH-GP-008")
    assert "DSH-SL-025" in {other["id"] for other in found["others"]}
    code, found = asked(capsys, "out of memory")
    assert (code, "id" in found) == (0, False)
    assert len(found["others"]) > 3
    code, found = asked(capsys)
    assert [other["id"] for other in found["others"]] == [check.id for check in catalogue()]


def test_an_error_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = asked(capsys, "zz nothing of the kind")
    assert (code, found["schema"], found["exit_code"]) == (64, "dshpc.error/1", 64)


def test_one_word_is_enough(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = explained(capsys, "nouveau")
    assert (code, out.partition(":")[0]) == (0, "DSH-NV-002")


# What the pages tell people to type

_TOOLS = re.compile(
    r"(?:sudo|docker|dshpc|systemctl|journalctl|service|rc-service|snap|apt-get|dnf|zypper|pacman|apk|brew"
    r"|nvidia-ctk|nvidia-smi|nvidia-modprobe|nvidia-container-cli|amd-ctk|amd-smi|rocminfo|wsl|modprobe|grep|cat"
    r"|ls|stat|chmod|chown|mv|rm|env|unset|export|du|df|mount|sbatch|srun|scontrol|podman|mokutil|printf|echo"
    r"|configure-environment|newgrp|timedatectl|curl) "
)
_MOST_WORDS = 2  # of a command in a sentence: `dshpc up`
_PLACEHOLDERS = ("CONTAINER", "NODE", "ADDRESS", "NAME", "VALUE", "IMAGE", "PATH", "DIR", "ID", "JOB",
                 "TYPE", "PROFILE", "NEW")  # fmt: skip


def what_fixes(identity: str) -> tuple[str, list[str]]:
    """The sentences of a page's section about what to do, and the lines of its blocks."""
    section = findings_pages.page(identity).partition("## How to fix it")[2].partition("\n## ")[0]
    lines = section.splitlines()
    return (
        " ".join(line for line in lines if not line.startswith("    ")),
        [line.strip() for line in lines if line.startswith("    ")],
    )


def to_be_typed(text: str) -> list[str]:
    """Commands of a sentence that are too long to stand in one."""
    spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", text)]
    return [span for span in spans if _TOOLS.match(span) and len(span.split()) > _MOST_WORDS]


def test_a_long_command_in_a_sentence_is_seen() -> None:
    assert to_be_typed("Say `dshpc up`, `a: b c d`, `sudo\nsnap start docker`.") == [
        "sudo snap start docker"
    ]


def test_what_is_to_be_typed_stands_in_a_block() -> None:
    for check in catalogue():
        text, block = what_fixes(check.id)
        assert to_be_typed(text) == [], check.id
        assert not [line for line in block if "`" in line], check.id
        for word in _PLACEHOLDERS:
            if any(re.search(rf"(?<![\w$]){word}\b", line) for line in block):
                assert re.search(rf"\b{word}\b", text), f"{check.id}: {word} is not explained"


def test_a_page_names_only_chapters_and_files_that_are_there() -> None:
    root = resources.share()
    readme = (root / "README.md").read_text()
    for check in catalogue():
        page = findings_pages.page(check.id)
        for path in re.findall(r"\bdocs/[\w/.-]+\.md", page):
            assert (root / path).is_file(), check.id
        for chapter in re.findall(r"This project: README, (.+)", page):
            assert f"\n## {chapter}\n" in readme, check.id


_CONFIG_VERBS = ("show", "diff", "accept", "reject", "set", "unset")


def test_our_commands_on_a_page_are_ours() -> None:
    for line in (line for check in catalogue() for line in what_fixes(check.id)[1]):
        for name in re.findall(r"(?<![\w./-])dshpc (\S+)", line):
            assert name in COMMANDS | EXEC_COMMANDS, line
        for verb in re.findall(r"dshpc config (\S+)", line):
            assert verb in _CONFIG_VERBS
        for setting in re.findall(r"dshpc config (?:un)?set ([a-z_]+)", line):
            assert setting in {item.name for item in DECLARATIONS}
