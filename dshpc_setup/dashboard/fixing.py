"""The safe repairs of `dshpc doctor --fix`, done for a page: one run at a time, in a thread.

A repair is done where it is what was agreed to: its commands, and what stops with it, are compared again.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from dshpc_setup.dashboard.source import Source
from dshpc_setup.errors import DshpcError
from dshpc_setup.repair import Outcome, Repair


@dataclass
class _Heard:
    """A Reporter. What a repair asks beside its own question is answered with no: that needs a person who
    sees it."""

    doing: str = ""
    notes: list[str] = field(default_factory=list)

    def progress(self, text: str) -> None:
        self.doing = text

    def note(self, text: str) -> None:
        self.notes.append(text)

    def ask(self, question: str, *, by_yes: bool = True) -> bool:
        self.notes.append(f"{question} Not done from here: dshpc doctor --fix asks.")
        return False


def mark(repair: Repair) -> str:
    """Stands for the repair as it was shown: another one where anything of it is."""
    shown = (repair.key, repair.question, *repair.shown(), *repair.changes)
    return hashlib.sha256("\0".join(shown).encode(errors="replace")).hexdigest()[:32]


class Fixing:
    """The last run; `outcome` and `error` are None while it goes on, and before the first."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._heard = _Heard()
        self.outcome: Outcome | None = None
        self.error: DshpcError | None = None

    @property
    def runs(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def doing(self) -> str:
        return self._heard.doing

    def begin(self, marks: Collection[str], over: Callable[[], None]) -> None:
        """`over` is called at its end. Raises DshpcError while another one goes on."""
        with self._lock:
            if self.runs:
                raise DshpcError("A repair is being done: wait until it is over.")
            self._heard, self.outcome, self.error = _Heard(), None, None
            agreed = frozenset(marks)
            self._thread = threading.Thread(target=self._run, args=(agreed, over), daemon=True)
            self._thread.start()

    def wait(self, seconds: float) -> None:
        """For a run that goes on: one that is ended half-way leaves more to do by hand."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self, agreed: frozenset[str], over: Callable[[], None]) -> None:
        try:
            self.outcome = self._source.fix(lambda repair: mark(repair) in agreed, self._heard)
        except DshpcError as error:
            self.error = error
        except Exception as error:  # noqa: BLE001 -- it is told by the page
            self.error = DshpcError("A defect of dsHPC setup itself.", type(error).__name__)
        over()
