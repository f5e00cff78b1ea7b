"""`dshpc use`, as people type it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from dshpc_setup import cli
from dshpc_setup.cli import exec as execution
from dshpc_setup.errors import DshpcError


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cluster's folder; the caller stands beside it."""
    lab, beside = tmp_path / "lab", tmp_path / "beside"
    for folder in (lab / ".dshpc", beside):
        folder.mkdir(parents=True)
    tmp_path.chmod(0o755)
    runtime = {"container": "lab-slurm", "prefix": "lab", "work": str(lab / "work")}
    (lab / ".dshpc/runtime.json").write_text(json.dumps(runtime))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("DSHPC_DIR", raising=False)
    monkeypatch.delenv("DSHPC_DEFAULT_DIR", raising=False)
    monkeypatch.chdir(beside)
    return lab


def test_a_chosen_cluster_is_meant_and_told(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def typed(*words: str) -> tuple[int, str]:
        code = cli.run(["use", *words], "dshpc")
        said = capsys.readouterr()
        return code, said.out + said.err

    assert typed() == (
        0,
        "None: this folder is in no cluster, and none is chosen. Choose one: dshpc use DIR\n",
    )
    with pytest.raises(DshpcError):
        execution.runtime(os.environ)
    assert typed(str(lab))[0] == 0
    assert execution.runtime(os.environ)["container"] == "lab-slurm"
    assert typed() == (0, f"{lab}  (dshpc use)\n")
    for wrong in (("/nowhere",), (str(lab.parent / "beside"),), ("--none", str(lab))):
        assert typed(*wrong)[0] == 64
    assert typed() == (0, f"{lab}  (dshpc use)\n")

    (lab / ".dshpc/runtime.json").unlink()
    (lab / ".dshpc").rmdir()
    with pytest.raises(DshpcError, match="any more") as caught:
        execution.runtime(os.environ)
    assert "dshpc use --none" in caught.value.resolution[-1]
    assert "no cluster any more" in typed()[1]
    assert typed("--none")[0] == 0
    assert typed()[1].startswith("None: ")
