"""Captures from real machines, read by `dshpc detect` as a user would run it.

The folder of captures is no part of the project: beside the checkout in shared/corpus, or named by
DSHPC_CORPUS. A stub of the tool on the PATH prints what was captured; a KFD tree lies under --root.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.machine.local import LocalMachine
from tests.corpus.captures import (
    FOLDER,
    Capture,
    Card,
    kfd_trees,
    rocm_captures,
    text_captures,
    xml_captures,
)

pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason=f"there are no captures in {FOLDER} (DSHPC_CORPUS names another)"
)

_PROGRAM = "import sys; from dshpc_setup.cli import run; sys.exit(run(sys.argv[1:], 'dshpc'))"

_STUB = """#!{python}
import json, re, sys
sys.path[:] = {path!r}
from tests.corpus.captures import table_rows
with open({answers!r}, encoding="utf-8", errors="surrogateescape") as file:
    answers, table = json.load(file)
arguments = " ".join(sys.argv[1:])
query = re.search(r"--query-gpu=(\\S+)", arguments)
if "" in answers or arguments in answers:
    sys.stdout.write(answers.get(arguments, answers.get("")))
elif query and table:
    for row in table_rows(table):
        cells = [row[name] for name in query[1].split(",")]
        print(", ".join(re.sub(r" (MiB|W|%|MHz)$", "", cell) for cell in cells))
else:
    print("Invalid combination of input arguments.")
    sys.exit(2)
"""


def detect(env: dict[str, str], *arguments: str) -> dict[str, Any]:
    """The `gpus` section, as `dshpc detect` gives it in this environment."""
    program = [sys.executable, "-c", _PROGRAM, "detect", "--json", "--only", "gpus", *arguments]
    path = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
    result = LocalMachine().run(program, deadline_s=60, env={**env, "PYTHONPATH": path})
    assert result.code in (0, 3), result.text
    found: dict[str, Any] = json.loads(result.stdout)["gpus"]
    assert found["state"] == "present", f"{result.code}: {found['detail']}\n{result.stdout}"
    return found


def with_stub(folder: Path, tool: str, capture: Capture) -> dict[str, Any]:
    answers = folder / "answers.json"
    answers.write_text(json.dumps([capture.answers, capture.table]))
    stub = folder / tool
    stub.write_text(
        _STUB.format(
            python=sys.executable,
            path=[str(Path(__file__).parents[2]), *sys.path],
            answers=str(answers),
        )
    )
    stub.chmod(0o755)
    return detect({"PATH": f"{folder}:{os.environ['PATH']}"})


def check(devices: list[dict[str, Any]], cards: tuple[Card, ...]) -> None:
    assert len(devices) == len(cards)
    assert [device["index"] for device in devices] == list(range(len(cards)))
    for device, card in zip(devices, cards, strict=True):
        for key, stated in (
            ("name", card.name),
            ("uuid", card.uuid),
            ("pci_bus_id", card.pci),
            ("memory_mib", card.memory_mib),
        ):
            if stated is not None:
                assert device[key] == stated, key
        assert len(device["mig"]) == len(card.mig)
        for part, profile in zip(device["mig"], card.mig, strict=True):
            assert profile in (None, part["profile"])
        assert device["slurm_type"]


def by_name(captures: list[Capture]) -> list[Any]:
    return [pytest.param(capture, id=capture.name) for capture in captures]


@pytest.mark.parametrize("capture", by_name([*xml_captures(), *text_captures()]))
def test_nvidia_smi(capture: Capture, tmp_path: Path) -> None:
    found = with_stub(tmp_path, "nvidia-smi", capture)
    assert found["vendor"] == "nvidia"
    check(found["devices"], capture.cards)


@pytest.mark.parametrize("capture", by_name(rocm_captures()))
def test_rocm_smi(capture: Capture, tmp_path: Path) -> None:
    found = with_stub(tmp_path, "rocm-smi", capture)
    assert found["vendor"] == "amd"
    check(found["devices"], capture.cards)
    assert all(device["name"] for device in found["devices"])


@pytest.mark.parametrize(
    ("nodes", "cards"),
    [pytest.param(*tree, id=str(tree[0].relative_to(FOLDER))) for tree in kfd_trees()],
)
def test_kfd(nodes: Path, cards: tuple[Card, ...], tmp_path: Path) -> None:
    target = tmp_path / "sys/class/kfd/kfd/topology/nodes"
    shutil.copytree(nodes, target)
    found = detect({}, "--root", str(tmp_path))
    assert found["vendor"] == "amd"
    check(found["devices"], cards)
    assert all(device["compute"] is None or device["compute"][:3] == "gfx"
               for device in found["devices"])  # fmt: skip


def test_the_folder_holds_something() -> None:
    """A folder of another layout would pass without a single capture read."""
    assert [*xml_captures(), *text_captures(), *rocm_captures(), *kfd_trees()]
