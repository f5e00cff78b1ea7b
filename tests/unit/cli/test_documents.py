"""What README and docs tell people to type exists: commands, sub-commands and options."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from dshpc_setup import cli, settings
from dshpc_setup.terminal.commands import EXEC_COMMANDS

ROOT = Path(__file__).parents[3]
DOCUMENTS = (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")))
_OURS = re.compile(r"(?:\.{1,2}/)?(dshpc|configure-environment)")
_END = re.compile(r"[|&;()<>]+")  # of a command, as the shell reads it


def _typed(text: str) -> Iterator[str]:
    """Lines of blocks that are fenced as `sh` or `console`, or indented."""
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S):
        if language == "console":
            yield from re.findall(r"^\$ (.*)$", block, re.M)
        elif language == "sh":
            yield from block.splitlines()
    yield from re.findall(
        r"^ {4}(\S.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), re.M
    )


def _calls(line: str) -> Iterator[list[str]]:
    """Our own commands of a line, without what a job or Slurm is given."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # no line of a shell
        return
    call: list[str] = []
    for word in [*words, ";"]:
        if not _END.fullmatch(word):
            call.append(word)
            continue
        if call[:1] == ["sudo"]:
            call = call[1:]
        if call and (ours := _OURS.fullmatch(call[0])):
            yield [ours[1], *(call[1 : call.index("--")] if "--" in call else call[1:])]
        call = []


def _lexed() -> set[tuple[str, ...]]:
    found = {
        tuple(call)
        for path in DOCUMENTS
        for line in _typed(path.read_text())
        for call in _calls(line)
    }
    return {
        call
        for call in found
        if not (call[0] == "dshpc" and call[1:2] and call[1] in EXEC_COMMANDS)
    }


def test_the_documents_have_commands() -> None:
    assert len(_lexed()) > 60


@pytest.mark.parametrize("call", sorted(_lexed()), ids=" ".join)
def test_a_command_exists(call: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """The parser refuses what it does not know, before it shows its help."""
    program, *rest = call
    first = ["configure"] if program == "configure-environment" else []
    assert cli.run([*first, *rest, "--help"], program) == 0, capsys.readouterr().err
    assert "Usage: " in capsys.readouterr().out


def _blocks(document: str, language: str) -> list[str]:
    text = (ROOT / document).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


def test_the_method_of_readme_is_one() -> None:
    (text,) = _blocks("README.md", "json")
    schema = json.loads((ROOT / "docs/schemas/method.schema.json").read_text())
    Draft202012Validator(schema).validate(json.loads(text))


def test_the_settings_of_readme_are_some() -> None:
    (text,) = _blocks("README.md", "yaml")
    assert settings.load(yaml_text=text).prefix == "imaging"


def test_the_program_of_the_workflows_is_one() -> None:
    (text,) = _blocks("docs/how-to/workflows.md", "python")
    compile(text, "workflows.md", "exec")
