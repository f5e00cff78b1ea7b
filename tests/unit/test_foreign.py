"""One reader for JSON and one for YAML that others wrote: what they refuse, and that there is no other."""

from __future__ import annotations

import ast
import io
import json
from pathlib import Path

import pytest

from dshpc_setup.documents import foreign
from dshpc_setup.engine import start_report
from dshpc_setup.errors import DshpcError
from dshpc_setup.workflows import request_building

ROOT = Path(foreign.__file__).parents[1]
# Who reads what it has written itself in the same line, or has a reader with limits of its own
_OWN = {
    "documents/foreign.py",
    "documents/json_scanner.py",
    "documents/json_text.py",
    "bundle/scrubbed.py",
    "methods/new.py",
    "record/recorder.py",
    "container/drift.py",
}


def _reads_json(path: Path) -> bool:
    return any(
        isinstance(node, ast.Attribute)
        and node.attr in ("load", "loads", "JSONDecoder")
        and isinstance(node.value, ast.Name)
        and node.value.id == "json"
        for node in ast.walk(ast.parse(path.read_text()))
    )


def test_nobody_else_reads_json() -> None:
    found = {
        str(path.relative_to(ROOT))
        for path in ROOT.rglob("*.py")
        if "_share" not in path.parts and _reads_json(path)
    }
    assert found - _OWN == {"probes/amd/tool_json.py"}  # several values among other lines


def test_nobody_else_reads_yaml() -> None:
    found = {
        str(path.relative_to(ROOT))
        for path in ROOT.rglob("*.py")
        if "_share" not in path.parts and _imported(path) & {"yaml", "ruamel"}
    }
    editing = {"settings/edited.py", "compose_patch/document.py"}
    writing = {"record/scrubbed.py"}
    assert found == {"documents/yaml_nodes.py"} | editing | writing


def test_values_that_travel_are_read_by_the_codec() -> None:
    """A `from_json` written by hand forgets a key, or takes what is none."""
    by_hand = {
        str(path.relative_to(ROOT))
        for path in ROOT.rglob("*.py")
        if "_share" not in path.parts and path.name != "codec.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name == "from_json"
        if "codec.from_json(" not in ast.unparse(node)
    }
    assert not by_hand


def _imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


@pytest.mark.parametrize("deep", [foreign.MOST_DEPTH + 1, 900, 100_000])
@pytest.mark.parametrize(("opens", "closes"), [("[", "]"), ('{"a":', "}")])
def test_too_deep(deep: int, opens: str, closes: str) -> None:
    for text in (opens * deep, opens * deep + "1" + closes * deep):
        with pytest.raises(ValueError, match=r"deep|Expecting"):
            foreign.value(text)


def test_as_deep_as_it_may_be() -> None:
    most = foreign.MOST_DEPTH
    assert foreign.value("[" * most + "]" * most)
    assert not foreign.is_deeper(7, 0)
    assert foreign.is_deeper([[]], 1)


def test_too_large() -> None:
    text = json.dumps("x" * (1 << 20))
    with pytest.raises(foreign.ForeignError, match="larger than 1 MiB"):
        foreign.value(text, most_bytes=1 << 20)
    file = io.StringIO(text)
    with pytest.raises(foreign.ForeignError, match="larger than 1 MiB"):
        foreign.of_file(file, most_bytes=1 << 20)
    assert file.tell() == (1 << 20) + 1, "no more was read than that"


DEEP = '{"schema": "dshpc.workflow-request/1", "a": ' + "[" * 100_000


def test_what_is_asked_of_workflows() -> None:
    with pytest.raises(DshpcError, match="The request cannot be read"):
        request_building.from_json(DEEP)


def test_a_start_report() -> None:
    assert start_report.parse(DEEP) == {}
