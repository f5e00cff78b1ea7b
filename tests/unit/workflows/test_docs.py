"""The workflow of the documents is one."""

from __future__ import annotations

import re
from pathlib import Path

from dshpc_setup import resources
from dshpc_setup.workflows.check import Place, check

_PAGE = Path(__file__).parents[3] / "docs/how-to/workflows.md"


def test_the_example_is_valid_as_it_stands_there(tmp_path: Path) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    found, problems = check(
        text.encode(), Place(tmp_path / "steps.yaml", (resources.methods(),), str(tmp_path))
    )
    assert problems == ()
    assert found is not None
    assert (found.name, [job.name for job in found.jobs]) == (
        "steps",
        ["prepare", "train", "check", "report"],
    )
