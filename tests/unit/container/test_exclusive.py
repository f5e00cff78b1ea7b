"""Two changes of the running cluster at once."""

from __future__ import annotations

from typing import get_args

import pytest

from dshpc_setup.container.exclusive import Change, alone
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.slurm.paths import Paths

CHANGES: tuple[Change, ...] = get_args(Change)


@pytest.mark.parametrize("first", CHANGES)
@pytest.mark.parametrize("second", CHANGES)
def test_the_second_is_told_which_one_runs(paths: Paths, first: Change, second: Change) -> None:
    with alone(paths, first), pytest.raises(DshpcError) as caught, alone(paths, second):
        pass
    assert caught.value.exit_code == Exit.INCOMPLETE
    assert caught.value.brief == "The cluster is being changed already."
    assert caught.value.details == f"A change by {first} is under way."


def test_one_after_the_other_is_let_through(paths: Paths) -> None:
    done = []
    for change in (*CHANGES, *CHANGES):
        with alone(paths, change):
            done.append(change)
    assert done == [*CHANGES, *CHANGES]


def test_who_was_refused_holds_nothing(paths: Paths) -> None:
    with alone(paths, "dshpc key rotate"):
        for _ in range(2):  # the lock that it had taken before it was refused is free again
            with pytest.raises(DshpcError), alone(paths, "dshpc reconfigure"):
                pass
    with alone(paths, "dshpc reconfigure"):
        pass
