"""Which line of scripts/side_by_side.py a test file goes with, told without importing it."""

from __future__ import annotations

import re
from pathlib import Path

_TESTS = Path(__file__).parent
# Of the tests on this machine's engine, those that go with another line: all take about as long.
ELSEWHERE = {
    "others": "test_workers test_container test_denial test_image test_isolation test_limits "
    "test_security test_trust",
    "jobs": "test_doctor test_durable test_environment test_job_signals test_jobs test_key "
    "test_methods test_record test_restarts test_shipped_methods test_start_faults test_targets "
    "test_workflows test_workspaces",
}
_LINE_OF = {name: line for line, names in ELSEWHERE.items() for name in names.split()}
_ROOMS = re.compile(r"(?m)^pytest_plugins\b")


def line_of(path: Path) -> str | None:
    """`unit`: all in tests/unit; `engine`: tests on this machine's engine; `jobs`: what people do with a
    cluster; `others`: all but these. None for a folder that holds files of several lines.

    A test in a private room of its own says so by `pytest_plugins`, which bring the rooms.
    """
    within = path.relative_to(_TESTS).parts
    if within[:1] == ("unit",):
        return "unit"
    if path.is_dir() and within[:1] in ((), ("integration",)):
        return None
    if within[:1] != ("integration",) or _ROOMS.search(path.read_text()):
        return "others"
    return _LINE_OF.get(path.stem, "engine")
