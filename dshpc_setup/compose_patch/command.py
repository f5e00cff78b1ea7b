"""`dshpc compose patch`: the file read, the stanza put in or taken out, checked, asked, written."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from dshpc_setup.compose_patch import file as compose_file
from dshpc_setup.compose_patch import patch
from dshpc_setup.compose_patch.file import ComposeText
from dshpc_setup.errors import usage_error
from dshpc_setup.files.ownership import is_marked
from dshpc_setup.passthrough.handover import WORDS, GpuStanza, Handover, Mechanism
from dshpc_setup.render.gpu_stanza import gpu_stanza
from dshpc_setup.render.labels import rendered_label
from dshpc_setup.terminal.reporter import Reporter

SCHEMA = "dshpc.compose-patch/1"
Action = Literal["patched", "unchanged", "removed", "would-patch", "would-remove"]


@dataclass(frozen=True)
class ChosenHandover:
    """The handover, how it is known in one sentence, and the compose whose file it is for."""

    handover: Handover
    known: str
    compose: str | None = None  # its version; None: whichever reads the file


@dataclass(frozen=True)
class PatchOptions:
    """What to do with the file; `service` None: its only one."""

    file: Path
    service: str | None = None
    remove: bool = False
    dry_run: bool = False


@dataclass(frozen=True)
class Done:
    """What was done, or would be."""

    file: Path
    service: str
    action: Action
    diff: str
    mechanism: Mechanism | None = None
    backup: Path | None = None
    checked_by: str | None = None  # the compose tool that takes the new text
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The `dshpc.compose-patch/1` object."""
        return {
            "schema": SCHEMA,
            "exit_code": 0,
            "file": str(self.file),
            "service": self.service,
            "action": self.action,
            "mechanism": self.mechanism,
            "backup": str(self.backup) if self.backup else None,
            "checked_by": self.checked_by,
            "notes": list(self.notes),
            "diff": self.diff,
        }


@dataclass(frozen=True)
class Checked:
    """What the compose tool said to the new text: its name where it takes it, else a note."""

    by: str | None = None
    note: str | None = None


Check = Callable[[Path, str, str], Checked]
"""File, old text, new text; raises DshpcError where only the old one is taken."""

Preview = Callable[["Done"], None]
"""Shown what would be done, before anybody is asked whether to do it."""


def run(
    wish: PatchOptions,
    find_way: Callable[[], ChosenHandover],
    check: Check,
    reporter: Reporter,
    preview: Preview = lambda _: None,
) -> Done:
    """Do it; `find_way` is asked once the file and the service are known to be there.

    Raises DshpcError, and then nothing was written.
    """
    found = compose_file.read(wish.file)
    name = str(wish.file)
    service = patch.chosen_service(found.text, wish.service, name, ours=wish.remove)
    if wish.remove:
        made = patch.unpatched(found.text, service, name)
        mechanism = None
    else:
        _not_ours(wish, found)
        way = find_way()
        made = patch.patched(found.text, service, _stanza(way), name)
        mechanism = way.handover.mechanism
    diff = _diff(found, made.text)
    action: Action = "would-remove" if wish.remove else "would-patch"
    done = Done(wish.file, service, action, diff, mechanism, notes=made.notes)
    if made.text == found.text:
        return replace(done, action="unchanged")
    done = _checked(done, found, made.text, check)
    preview(done)
    return done if wish.dry_run else _written(wish, done, found, made.text, reporter)


def _not_ours(wish: PatchOptions, found: ComposeText) -> None:
    """Raises DshpcError for the file of the cluster, which is written again with its own stanza."""
    if rendered_label(found.text) is not None and not is_marked(found.text):
        raise usage_error(
            f"{wish.file} is written by dshpc itself, GPUs and all.",
            "What is added to it would be lost, or keep it from being brought up to date.",
            "Run configure-environment: it finds out how the GPUs are handed over.",
            "Or make the file your own first, with a comment line # USER_CUSTOMIZED=true.",
        )


def _stanza(way: ChosenHandover) -> GpuStanza:
    stanza = gpu_stanza(way.handover, way.compose)
    return replace(stanza, comment="\n".join(filter(None, (stanza.comment, way.known))))


def _checked(done: Done, found: ComposeText, text: str, check: Check) -> Done:
    checked = check(done.file, found.text, text)
    notes = (*done.notes, *([checked.note] if checked.note else []))
    if found.links > 1:
        notes = (*notes, f"{done.file} has other names (hard links): they keep the old text.")
    return replace(done, checked_by=checked.by, notes=notes)


def _written(
    wish: PatchOptions, done: Done, found: ComposeText, text: str, reporter: Reporter
) -> Done:
    compose_file.need_writable(found)
    if not reporter.ask(_question(wish, done)):
        raise usage_error(
            f"{wish.file} was not changed.",
            "The question was not answered with yes, or there is no terminal to ask it on.",
            "Run it with --yes; --dry-run --diff shows what would be changed.",
        )
    backup = compose_file.replace(found, text)
    return replace(done, action="removed" if wish.remove else "patched", backup=backup)


def _question(wish: PatchOptions, done: Done) -> str:
    if wish.remove:
        return f"Take the GPU stanza out of the service {done.service} in {wish.file}?"
    how = f" by {WORDS[done.mechanism]}" if done.mechanism else ""
    return f"Give the service {done.service} in {wish.file} its GPUs{how}?"


def _diff(found: ComposeText, text: str) -> str:
    """Unified; "" without a difference."""
    old, new = _lines(found.text), _lines(text)
    made = difflib.unified_diff(old, new, f"{found.named} (now)", f"{found.named} (new)")
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in made
    )


def _lines(text: str) -> list[str]:
    """Line feeds alone end lines, as everywhere in this package."""
    return [f"{line}\n" for line in text.split("\n")[:-1]] + (
        [text.rsplit("\n", 1)[-1]] if text and not text.endswith("\n") else []
    )
