"""What people see: steps with their times, notes, questions, errors. JSON goes elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from dshpc_setup.terminal.command_names import as_called
from dshpc_setup.terminal.sanitize import harmless, plain

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

    from dshpc_setup.setup.report import Step, StepName

_MARKS = {"ok": "[green]✓[/]", "skipped": "[dim]-[/]", "failed": "[red]✗[/]"}
_SPEAK_S = 10.0
_REPEAT_S = 300.0  # what has not changed
_TRIES = 3
_ANSWERS = {"y": True, "yes": True, "n": False, "no": False, "": False}
_PLAIN_MARKS = {"ok": "ok", "skipped": "--", "failed": "!!"}


class ConsoleReporter:
    """A StepReporter on a stream: with a live line on a terminal, with plain lines elsewhere."""

    def __init__(self, *, to_stderr: bool, yes: bool, interactive: bool) -> None:
        from rich.console import Console

        self._console: Console = Console(stderr=to_stderr, highlight=False, soft_wrap=True)
        self._unicode = self._console.encoding.lower().startswith("utf")
        self._yes, self._interactive = yes, interactive
        self._status: Status | None = None
        self._step: StepName | None = None
        self._notes: list[str] = []
        self._spoke = time.monotonic()
        self._said = ""

    def begin(self, name: StepName) -> None:
        self._step = name
        self._spoke, self._said = time.monotonic(), ""
        if self._console.is_terminal:
            self._status = self._console.status(f"{name} ...")
            self._status.start()

    def end(self, step: Step) -> None:
        self._stop()
        from rich.markup import escape

        detail = escape(harmless(step.detail or ""))
        mark = (_MARKS if self._unicode else _PLAIN_MARKS)[step.state]
        self._console.print(f"  {mark} {step.name:<11} {step.ms / 1000:6.1f} s  {detail}")
        for note in self._notes:
            self._console.print(f"      {escape(note)}")
        self._notes.clear()
        self._step = None  # what is noted from here on is told at once

    def progress(self, text: str) -> None:
        from rich.markup import escape

        words = plain(" ".join(text.split()))
        if self._status is not None:
            width = max(20, self._console.width - len(self._step or "") - 6)
            self._status.update(f"{self._step}: {escape(words[:width])}")
        elif time.monotonic() - self._spoke > (_REPEAT_S if words == self._said else _SPEAK_S):
            # no live line: a word now and then, so that a log shows that it goes on
            self._spoke, self._said = time.monotonic(), words
            self._console.print(f"      ... {escape(words)}")

    def note(self, text: str) -> None:
        if self._step is None:
            self._console.print(as_called(text), markup=False)
        else:
            self._notes.append(as_called(text))

    def ask(self, question: str, *, by_yes: bool = True) -> bool:
        # What follows a question may ask for sudo's password: no live line may write over that
        self._stop()
        question = harmless(question)
        if self._yes and by_yes:
            self.note(f"{question} yes (--yes)")
            return True
        if not self._interactive:
            return False
        for _ in range(_TRIES):
            # not by input(), which would put it on a stdout that is a file or holds JSON
            sys.stderr.write(f"  {question} [y/N] ")
            sys.stderr.flush()
            try:
                answer = input().strip().lower()
            except EOFError:
                sys.stderr.write("\n")
                break
            if answer in _ANSWERS:
                return _ANSWERS[answer]
            sys.stderr.write("  That is neither yes nor no: y or n.\n")
        sys.stderr.write("  No answer: it is not done.\n")
        return False

    def _stop(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None


def is_interactive() -> bool:
    """Whether a question can be put to someone."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
