"""Every machine in tests/machines: the files of /etc/slurm that are rendered for it, letter by letter."""

from __future__ import annotations

from pathlib import Path

import pytest

from dshpc_setup.errors import DshpcError
from dshpc_setup.plan import plan_cluster
from dshpc_setup.render.configuration import render_slurm
from dshpc_setup.settings import Settings
from tests.unit.machine.test_machines import FOLDER, NAMES, look

REFUSED = "error.txt"  # stands alone, where no plan can be made


def rendered(name: str) -> dict[str, str]:
    """File name -> text under the default settings; the error's words where there is no plan."""
    try:
        return render_slurm(plan_cluster(look(name), Settings()))
    except DshpcError as error:
        return {REFUSED: "\n".join([error.brief, error.details, *error.resolution, ""])}


def golden(name: str) -> Path:
    return FOLDER / name / "expected" / "etc-slurm"


@pytest.mark.parametrize("name", NAMES)
def test_files_are_as_expected(name: str, rewrite: bool) -> None:
    found, folder = rendered(name), golden(name)
    if rewrite:
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():
            path.unlink()
        for file, text in found.items():
            (folder / file).write_text(text)
    assert folder.exists(), "write it with --rewrite-machines, and read it"
    expected = {path.name: path.read_text() for path in folder.iterdir()}
    assert found.keys() == expected.keys()
    for file, text in found.items():
        assert text == expected[file], file


def test_a_machine_whose_gpus_are_known_has_a_line_for_each() -> None:
    """What the goldens must show whoever wrote them: near misses of one machine differ there."""
    lines = {
        name: [line for line in rendered(name)["gres.conf"].splitlines() if line.startswith("Name")]
        for name in ("h100x8", "h100x8-one-lost", "vm-no-gpu")
    }
    assert [len(found) for found in lines.values()] == [8, 7, 0]
    assert "/dev/nvidia3 " not in "\n".join(lines["h100x8-one-lost"])


def test_no_plan_is_told_and_leaves_no_files() -> None:
    """A machine that cannot be planned for has words instead of files, never half of both."""
    for name in NAMES:
        files = {path.name for path in golden(name).iterdir()}
        assert (REFUSED in files) == (files == {REFUSED}), name
