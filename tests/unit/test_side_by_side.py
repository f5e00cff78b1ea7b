"""Each test file is of one line."""

from __future__ import annotations

from pathlib import Path

from scripts.side_by_side import LINES, STAGES
from tests.lines import ELSEWHERE, line_of

TESTS = Path(__file__).parents[1]


def test_each_file_is_of_a_line_and_each_line_has_files() -> None:
    files = sorted(path for path in TESTS.rglob("test_*.py") if "machines" not in path.parts)
    lines = {path: line_of(path) for path in files}
    assert set(lines.values()) == set(LINES)
    for path, line in lines.items():
        folders = [folder for folder in path.parents if TESTS in folder.parents]
        assert {line_of(folder) for folder in folders} <= {line, None}, "else they are left out"
    named = [name for names in ELSEWHERE.values() for name in names.split()]
    assert {path.stem for path in files if path.parent.name == "integration"} >= set(named)
    assert len(named) == len(set(named))


def test_what_has_engines_of_its_own_is_with_the_others() -> None:
    assert line_of(TESTS / "integration" / "test_doctor_fix.py") == "others"
    assert line_of(TESTS / "integration" / "test_config_files.py") == "engine"


def test_a_named_file_is_of_its_line_whatever_it_brings() -> None:
    assert line_of(TESTS / "integration" / "test_bench.py") == "hosts"


def test_lines_beside_each_other_have_clusters_of_their_own() -> None:
    """Their prefix is their first letter; those without one are on `engine`'s or on none."""
    own = [line[0] for line in ELSEWHERE]
    assert len(own) == len(set(own))
    for stage in STAGES:
        assert sum(line not in ELSEWHERE for line in stage if line != "unit") <= 1
