"""What a start would stumble over is refused in one JSON object, and nothing is changed by asking."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dshpc_setup.container import would_start as module
from dshpc_setup.errors import Exit
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.slurm.paths import Paths


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("var/lib/dshpc/key/slurm.key", "x" * 15, "holds only 15 bytes"),
        ("var/lib/dshpc/state/users", "no user\n", "list of users in the state volume is damaged"),
    ],
)
def test_what_is_damaged_is_refused(
    file: str,
    text: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(module, "slurm_user", lambda: (0, 0))
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    path.chmod(0o600)
    paths = Paths(str(tmp_path))
    code = module.would_start(LocalMachine(paths.root), paths, {"DSHPC_PREFIX": "lab"})
    assert code == Exit.ERROR
    refused = json.loads(capsys.readouterr().out)["refused"]
    assert said in refused["brief"]
    assert path.read_text() == text
    assert [item for item in tmp_path.rglob("*") if item.is_file()] == [path]
