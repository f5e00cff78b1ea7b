"""How long-running stages speak to whoever watches, without knowing whether that is a terminal."""

from __future__ import annotations

from typing import Protocol


class Reporter(Protocol):
    def progress(self, text: str) -> None:
        """What is going on now, in one short line; it replaces the line before."""
        ...

    def note(self, text: str) -> None:
        """Something the user should still see when all is done."""
        ...

    def ask(self, question: str, *, by_yes: bool = True) -> bool:
        """A yes/no question; without a terminal the answer is no.

        `--yes` answers yes, but with `by_yes` false: what would cost others their work has a flag of its
        own.
        """
        ...


class Silent:
    """Says nothing and answers every question with `answer`."""

    def __init__(self, answer: bool = False) -> None:
        self.answer = answer

    def progress(self, text: str) -> None:
        return None

    def note(self, text: str) -> None:
        return None

    def ask(self, question: str, *, by_yes: bool = True) -> bool:
        return self.answer
