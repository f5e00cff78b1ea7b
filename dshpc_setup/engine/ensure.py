"""`python -m dshpc_setup.engine.ensure [--yes]`: an engine and a compose tool, or why not.

What ./run-tests calls first: the way in which the product itself comes by its engine.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from dshpc_setup.errors import DshpcError, Exit


class _Lines:
    """A `Reporter` that writes line by line; progress of a package manager only in outline."""

    def __init__(self, yes: bool, interactive: bool) -> None:
        self._yes, self._interactive = yes, interactive
        self._stage = ""

    def progress(self, text: str) -> None:
        stage = text.partition(":")[0]
        if stage != self._stage:
            self._stage = stage
            _say(f"{stage} ...")

    def note(self, text: str) -> None:
        _say(text)

    def ask(self, question: str, *, by_yes: bool = True) -> bool:
        if self._yes or not self._interactive:
            _say(f"{question} {'yes (--yes)' if self._yes else 'no (no terminal, no --yes)'}")
            return self._yes
        return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 where both answer."""
    parser = argparse.ArgumentParser(
        prog="python -m dshpc_setup.engine.ensure", description=__doc__
    )
    parser.add_argument("--yes", action="store_true", help="install and start without a question")
    options = parser.parse_args(arguments)
    interactive = sys.stdin.isatty()
    from dshpc_setup.engine.tools import ready
    from dshpc_setup.machine.local import LocalMachine

    machine, reporter = LocalMachine(), _Lines(options.yes, interactive)
    try:
        engine = ready(machine, machine, reporter, interactive=interactive).engine
    except DshpcError as error:
        steps = [f"  {number}. {step}" for number, step in enumerate(error.resolution, 1)]
        detail = [f"  {line}" for line in error.details.splitlines()]
        sys.stderr.write("\n".join([error.brief, *detail, *steps]) + "\n")
        return int(error.exit_code)
    compose = engine.compose.version if engine.compose else ""
    _say(f"Docker {engine.server_version}, compose {compose}")
    return int(Exit.OK)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
