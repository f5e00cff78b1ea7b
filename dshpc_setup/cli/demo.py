"""`dshpc demo`: a tour on made-up GPUs, in a folder and a cluster of its own, which it removes at its end."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dshpc_setup.cli.command_line import Yes, app, finish
from dshpc_setup.errors import DshpcError, Exit

if TYPE_CHECKING:
    from dshpc_setup.machine import CommandResult

_SET_UP_S = 1800.0
_STEP_S = 300.0


@dataclass(frozen=True)
class Step:
    """What is said, what is typed, and whether it is a refusal that is shown."""

    about: str
    words: tuple[str, ...]
    refused: bool = False


STEPS = (
    Step("Slurm's own commands run in the cluster as you. This job gets one GPU of two:",
         ("srun", "--gres=gpu:1", "printenv", "CUDA_VISIBLE_DEVICES")),
    Step("What can never run is refused before it is queued:",
         ("run", "--gpus", "5", "--", "true"), refused=True),
    Step("A method says itself what it needs; nobody writes an sbatch line:",
         ("method", "run", "monte-carlo-pi", "-p", "samples=200000", "--wait")),
    Step("What became of the jobs:", ("job", "list")),
    Step("The cluster, and what has changed since its last start:", ("status",)),
)  # fmt: skip


@app.command("demo", rich_help_panel="Set up")
def demo(*, yes: Yes = False) -> None:
    """Run a two-minute tour on simulated GPUs: sets up, runs jobs, removes itself, also on Ctrl-C."""
    from dshpc_setup.cli.console import is_interactive

    finish(Tour(waits=is_interactive() and not yes).run())


class Tour:
    """One tour. `waits`: for Enter, before each step."""

    def __init__(self, *, waits: bool) -> None:
        self.waits = waits
        prefix = os.environ.get("DSHPC_PREFIX", "dshpc")
        self.prefix = f"{prefix[:24].rstrip('-')}-demo-{os.getpid()}"
        self.folder = Path()

    def run(self) -> int:
        """The exit code; raises DshpcError where a step fails."""
        _say(
            "A tour of two minutes: a cluster with two made-up GPUs in a folder of its own, five commands,"
        )
        _say(
            "and nothing of it is left. It takes longer where the image is built for the first time."
        )
        self._pause()
        self.folder = Path(tempfile.mkdtemp(prefix="dshpc-demo-"))
        (self.folder / "work").mkdir()
        try:
            _say("\nSetting up, as ./configure-environment does:")
            words = ("configure", "--yes", "--simulate", "h100:2", "--prefix", self.prefix)
            where = ("--dir", str(self.folder), "--work", str(self.folder / "work"))
            self._need(self._type((*words, *where), _SET_UP_S, self.folder))
            for step in STEPS:
                self._pause()
                _say(f"\n{step.about}")
                done = self._type(step.words, _STEP_S, self.folder / "work")
                if not step.refused or done.code is None:
                    self._need(done)
        finally:
            self._remove()
        _say("\nNow with your own hardware: configure-environment")
        return Exit.OK

    def _type(self, words: tuple[str, ...], deadline_s: float, here: Path) -> CommandResult:
        """Run our own program, and show what is typed and what it says as it says it."""
        from dshpc_setup.cli.installing import program
        from dshpc_setup.machine.local import LocalMachine

        # without the folders: a reader sees what he would type in the cluster's
        shown = "configure-environment" if words[0] == "configure" else f"dshpc {words[0]}"
        rest = words[1:-4] if words[0] == "configure" else words[1:]
        _say(f"$ {shown} {shlex.join(rest)}".rstrip())
        env = {} if words[0] == "configure" else {"DSHPC_DIR": str(self.folder)}
        return LocalMachine().run(
            [program(), *words], deadline_s=deadline_s, env=env, cwd=str(here), on_line=_say
        )

    def _need(self, done: CommandResult) -> None:
        if done.code != 0:
            raise DshpcError(
                "The tour ended early: what it typed last did not succeed.",
                "" if done.code is not None else f"It gave no answer ({done.state}).",
                ("See what is wrong on this machine: dshpc doctor",),
            )

    def _pause(self) -> None:
        if not self.waits:
            return
        sys.stderr.write("  Enter continues, Ctrl-C ends. ")
        sys.stderr.flush()
        try:
            input()
        except EOFError:
            self.waits = False

    def _remove(self) -> None:
        """The cluster and the folder. A second Ctrl-C does not leave half of it behind."""
        from dshpc_setup import signals
        from dshpc_setup.project.folder import RUNTIME

        with signals.handled((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), lambda *_: None):
            _say("\nRemoving it:")
            if (self.folder / RUNTIME).is_file():  # before, nothing is made outside of the folder
                words = ("destroy", "--yes", "--stop-jobs", "--image", "--dir", str(self.folder))
                done = self._type(words, _STEP_S, self.folder)
                if done.code != 0:
                    _say(f"Not all of it is removed; the rest: dshpc {shlex.join(words)}")
                    return
            shutil.rmtree(self.folder, ignore_errors=True)
            if self.folder.exists():
                _say(f"Its folder could not be removed: {self.folder}")


def _say(line: str) -> None:
    """A line of the tour; what a command printed is for a terminal already."""
    from dshpc_setup.cli import put
    from dshpc_setup.terminal.sanitize import harmless

    put(f"{harmless(line)}\n")
