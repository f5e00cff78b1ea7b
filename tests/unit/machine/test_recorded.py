"""A folder that is no machine says so, with the file and the key."""

from __future__ import annotations

from pathlib import Path

import pytest

from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.machine.recorded import RecordedMachine, parse_tree

GOOD = "format: 1\nsystem: Linux\nrelease: 6.8.0\nmachine: x86_64\n"


def written(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return folder


def test_no_machine_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(DshpcError, match="no recorded machine") as caught:
        RecordedMachine(tmp_path)
    assert caught.value.exit_code == Exit.USAGE


@pytest.mark.parametrize(
    ("about", "word"),
    [
        (GOOD.replace("format: 1", "format: 2"), "reads 1 only"),
        (GOOD.replace("system: Linux\n", ""), "'system'"),
        (f"{GOOD}kernel: x\n", "'kernel'"),
        ("- a\n", "key: value"),
        ("a: [\n", "line 2"),
    ],
)
def test_a_bad_machine_file_names_the_key(tmp_path: Path, about: str, word: str) -> None:
    with pytest.raises(DshpcError) as caught:
        RecordedMachine(written(tmp_path, machine_yaml=about))
    assert word in caught.value.details
    assert "machine.yaml" in caught.value.brief


def test_a_command_without_words_is_named_by_its_number(tmp_path: Path) -> None:
    folder = written(tmp_path, machine_yaml=GOOD, commands_yaml="- argv: [a]\n- stdout: b\n")
    with pytest.raises(DshpcError) as caught:
        RecordedMachine(folder)
    assert "command 2" in caught.value.details


def test_a_damaged_reply_is_named(tmp_path: Path) -> None:
    machine = RecordedMachine(written(tmp_path, machine_yaml=GOOD, nvml_json='{"state": "ok"}'))
    with pytest.raises(DshpcError, match=r"nvml\.json"):
        machine.nvml(1)
    assert machine.docker(1).state == "absent"


def test_the_tree(tmp_path: Path) -> None:
    archive = (
        "a remark\n-- sys/a/b --\n1\n-- dev/x device --\n-- sys/link -> a --\n-- etc/s denied --\n"
    )
    machine = RecordedMachine(written(tmp_path, machine_yaml=GOOD, root_txtar=archive))
    assert machine.read("/sys/a/b").text == "1\n"
    assert machine.read("/sys/link/b").text == "1\n"
    assert machine.readlink("/sys/link") == "a"
    assert machine.listdir("/sys") == ("a", "link")
    assert (machine.is_device("/dev/x"), machine.is_device("/sys/a/b")) == (True, False)
    assert (machine.read("/etc/s").state, machine.read("/etc/t").state) == ("denied", "absent")
    assert (machine.access("/etc/s"), machine.exists("/dev")) == ("denied", True)


def test_a_tree_of_nothing() -> None:
    assert parse_tree("").names() == frozenset()
