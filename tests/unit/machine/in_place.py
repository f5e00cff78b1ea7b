"""The real machine's code without its processes, for tests that may start none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dshpc_setup.machine import Ended, Say, workers
from dshpc_setup.machine.local import LocalMachine


class InPlace(LocalMachine):
    """Asks one question after the other; what processes change is tested with real ones."""

    def apart(
        self,
        questions: Mapping[str, Callable[[Say], None]],
        *,
        deadline_s: float,
        meanwhile: Callable[[], object] | None = None,
        on_item: Callable[[Any], object] | None = None,
    ) -> Mapping[str, Ended]:
        return workers.in_place(questions, meanwhile, on_item)


EMPTY = InPlace("/nonexistent")
