"""The workflow of the documents is one."""

from __future__ import annotations

import re
from pathlib import Path

from tests.unit.workflows.made import method, valid

_PAGE = Path(__file__).parents[3] / "docs/how-to/workflows.md"


def test_the_example_is_valid(tmp_path: Path) -> None:
    method(tmp_path, "prepare", parameters=[{"name": "rows", "type": "integer"}])
    method(tmp_path, "train", parameters=[{"name": "epochs", "type": "integer"}])
    for name in ("measurements.csv", "report.py"):
        (tmp_path / name).write_text("x")
    (text,) = re.findall(r"```yaml\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    found = valid(text, tmp_path)
    assert (found.name, [job.name for job in found.jobs]) == (
        "train-model",
        ["prepare", "train", "report"],
    )
    assert found.jobs[2].argv[1] == f"{tmp_path}/report.py"
