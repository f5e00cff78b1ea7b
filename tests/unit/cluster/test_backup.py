"""What the host makes of a refusal of `dshpc-node`."""

from __future__ import annotations

import pytest

from dshpc_setup.cluster import backup
from dshpc_setup.machine import CommandResult

REFUSED = "The file is no whole backup of a cluster.\n  It is damaged.\n  Use another backup.\n"


@pytest.mark.parametrize(("said", "again"), [(REFUSED, False), ("No room.\n", True), ("", True)])
def test_only_what_may_help_is_advised(said: str, again: bool) -> None:
    done = CommandResult(("dshpc-node",), "present", 2, "", said, 1.0)
    error = backup._failed(done, "Nothing was restored", "dshpc restore FILE")
    assert bool(error.fixes) is again
    assert error.brief.startswith(f"Nothing was restored. {said.partition(chr(10))[0]}")
    assert ("Use another backup." in error.details) is (said == REFUSED)
