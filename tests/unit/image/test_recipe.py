"""`--renew`: remembered, so that the next run finds the image that it made."""

from __future__ import annotations

from pathlib import Path

from dshpc_setup.image.recipe import renewed
from dshpc_setup.project import Project


def test_a_renewal_is_kept_to(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.prepare()
    assert renewed(project, renew=False, dry_run=False) == ""
    assert renewed(project, renew=True, dry_run=True) != ""
    assert renewed(project, renew=False, dry_run=False) == "", "a dry run remembers nothing"
    moment = renewed(project, renew=True, dry_run=False)
    assert renewed(project, renew=False, dry_run=False) == moment
