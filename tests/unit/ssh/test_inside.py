"""What the container says of a request, before Slurm is asked."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from dshpc_setup.errors import DshpcError
from dshpc_setup.jobs import rights
from dshpc_setup.machine import Machine
from dshpc_setup.ssh import inside, place
from dshpc_setup.ssh.inside import Asked


def test_a_container_with_one_id_is_refused_and_nothing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = tmp_path / "setgroups"
    monkeypatch.setattr(rights, "_GROUPS", str(said))
    entered: list[bool] = []

    def enter() -> None:
        entered.append(True)
        raise PermissionError

    monkeypatch.setattr(place, "enter", enter)
    asked = inside._Search(cast("Machine", None), Asked("gpu", 900.0, ()))
    said.write_text("deny\n")
    with pytest.raises(DshpcError, match="several ids"):
        asked.answer()
    assert entered == []
    said.write_text("allow\n")
    with pytest.raises(PermissionError):
        asked.answer()
