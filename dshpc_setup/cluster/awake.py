"""A paused container is woken to be asked: nothing can be asked of one whose processes stand still."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from dshpc_setup.engine import containers
from dshpc_setup.engine.containers import Container
from dshpc_setup.engine_client import DOCKER
from dshpc_setup.machine import Machine

_ASK_S = 20.0


def awake(machine: Machine, found: Container | None) -> Container | None:
    """The container as it is once it is no longer paused."""
    if not is_paused(found):
        return found
    assert found is not None
    _run(machine, DOCKER.unpause(found.name))
    return containers.inspect(machine, found.name)


@contextlib.contextmanager
def awake_meanwhile(machine: Machine, found: Container | None) -> Iterator[Container | None]:
    """The same; where what is asked of it is refused, it is paused again."""
    now = awake(machine, found)
    try:
        yield now
    except BaseException:
        if found is not None and is_paused(found):
            _run(machine, DOCKER.pause(found.name))
        raise


def is_paused(found: Container | None) -> bool:
    """`docker pause` holds all of its processes."""
    return found is not None and found.status == "paused"


def _run(machine: Machine, argv: list[str]) -> None:
    done = machine.run(argv, deadline_s=_ASK_S)
    if not done.ok:
        raise containers.engine_error(done, f"{' '.join(argv[:2])} failed")
