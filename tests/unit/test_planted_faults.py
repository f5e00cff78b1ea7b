"""The list of tests/planted: each fault can still be planted, and its tests are there.

Whether they catch it is asked by hand: `python -m tests.planted`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import rooms
from tests.planted.faults import FAULTS, Fault
from tests.planted.trial import ROOT, planted

LEAST = 30


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.what)
def test_its_place_is_there_once(fault: Fault) -> None:
    text = (ROOT / fault.file).read_text()
    changed = planted(text, fault)
    assert changed != text
    if fault.file.endswith(".py"):
        compile(changed, fault.file, "exec")  # else every test would fail of it
    for test in fault.tests:
        path, _, name = test.partition("::")
        assert (ROOT / path).exists(), path
        assert f"def {name}(" in (ROOT / path).read_text() if name else fault.tests


def test_there_is_one_in_each_room() -> None:
    """Packages and single modules alike: the rooms of the contract in pyproject.toml."""
    top = Path("dshpc_setup")
    files = (Path(fault.file) for fault in FAULTS if fault.file.startswith("dshpc_setup/"))
    planted_in = {file.relative_to(top).parts[0].removesuffix(".py") for file in files}
    without = [room for layer in rooms.layers() for room in layer if room not in planted_in]
    assert without == [], "add a fault for each to tests/planted/faults.py"
    assert len({fault.what for fault in FAULTS}) == len(FAULTS) >= LEAST


@pytest.mark.parametrize("text", ["", "a a"])
def test_a_place_that_is_none_or_several_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="times: 'a'"):
        planted(text, Fault("x", str(Path("y")), "a", "b", ()))
