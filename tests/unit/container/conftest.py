"""What tests of the container's programs share."""

from __future__ import annotations

from pathlib import Path

import pytest

from dshpc_setup.slurm.paths import Paths


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """A container's files below a folder of the test's, with the folder of its run."""
    (tmp_path / "run/dshpc").mkdir(parents=True)
    return Paths(str(tmp_path))
