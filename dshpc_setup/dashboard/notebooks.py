"""A notebook begun for a page: `dshpc lab`, one at a time, in a thread; its address once it is there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from dshpc_setup.errors import DshpcError


class Notebook:
    """The last one; `url` and `error` are None while it begins, and before the first."""

    def __init__(self, start: Callable[[Sequence[str]], str]) -> None:
        self._start = start
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self.words: tuple[str, ...] = ()
        self.url: str | None = None
        self.error: DshpcError | None = None

    @property
    def runs(self) -> bool:
        """Whether it is being begun."""
        return self._thread is not None and self._thread.is_alive()

    def begin(self, words: Sequence[str]) -> None:
        """`words`: of the command line. Raises DshpcError while another one begins."""
        with self._lock:
            if self.runs:
                raise DshpcError("A notebook is being started: wait until it is there.")
            self.words, self.url, self.error = tuple(words), None, None
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def _run(self) -> None:
        try:
            self.url = self._start(self.words)
        except DshpcError as error:
            self.error = error
        except Exception as error:  # noqa: BLE001 -- it is told by the page
            self.error = DshpcError("A defect of dsHPC setup itself.", type(error).__name__)
