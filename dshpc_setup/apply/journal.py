"""The journal of a run that replaces files: once it is there all of them are, by this run or the next."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dshpc_setup.apply.owned import JOURNAL, NEW, OWNABLE
from dshpc_setup.files import ownership, swap
from dshpc_setup.files.atomic import is_temporary, sync_folder, write_error, write_temporary
from dshpc_setup.project.folder import (
    MANIFEST,
    PROOF,
    REJECTED,
    REMEMBERED,
    RENDERED,
    RUNTIME,
    SETTINGS,
    Project,
)


@dataclass(frozen=True)
class Rename:
    """`guarded`: people edit that file; `old` and `new` are the digests of its two texts."""

    temporary: Path
    final: Path
    guarded: bool = False
    old: str | None = None
    new: str = ""

    def words(self, folder: Path) -> list[str | None]:
        """As the journal has it."""
        names = [str(path.relative_to(folder)) for path in (self.temporary, self.final)]
        return [*names, self.old, self.new] if self.guarded else [*names]


def write(project: Project, temporaries: list[Rename], removals: Sequence[str]) -> None:
    folder = project.folder
    pairs = [each.words(folder) for each in temporaries]
    journal = folder / JOURNAL
    text = json.dumps({"renames": pairs, "removals": list(removals)})
    temporary = write_temporary(journal, text, owner=project.owner)
    try:
        os.replace(temporary, journal)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise write_error(error, journal) from None
        raise
    sync_folder(journal.parent)


def carry_out(
    project: Project, temporaries: list[Rename], removals: Sequence[str]
) -> dict[str, str]:
    """Every step of it can be the second time; the files of people that stay, with their texts."""
    edited: dict[str, str] = {}
    gone = {project.folder / path for path in removals}
    for each in temporaries:
        if each.guarded:
            text = swap.finish(each.temporary, each.final, each.old, each.new)
            if text is not None:
                name = str(each.final.relative_to(project.folder))
                edited[name] = text.decode("utf-8", "surrogateescape")
                gone.discard(_lay_beside(each, edited[name]))
        elif each.temporary.exists():
            try:
                os.replace(each.temporary, each.final)
            except OSError as error:
                raise write_error(error, each.final) from None
    for path in gone:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise write_error(error, path) from None
    for folder in {path.parent for path in (*(each.final for each in temporaries), *gone)}:
        sync_folder(folder)
    (project.folder / JOURNAL).unlink(missing_ok=True)
    return edited


def _lay_beside(rename: Rename, edited: str) -> Path:
    """Our text beside one that was edited; nothing beside one that its owner has marked."""
    beside = rename.final.with_name(f"{rename.final.name}{NEW}")
    try:
        if ownership.is_marked(edited) or not rename.temporary.exists():
            rename.temporary.unlink(missing_ok=True)
        else:
            os.replace(rename.temporary, beside)
    except OSError as error:
        raise write_error(error, beside) from None
    return beside


def sweep(project: Project) -> None:
    """Remove what a run that was killed had written and not yet renamed; the lock is held."""
    names: dict[Path, list[str]] = {}
    for path in (
        *OWNABLE,
        MANIFEST,
        REMEMBERED,
        RUNTIME,
        SETTINGS,
        RENDERED,
        REJECTED,
        PROOF,
        JOURNAL,
    ):
        final = project.folder / path
        names.setdefault(final.parent, []).extend((final.name, f"{final.name}{NEW}"))
    for folder, finals in names.items():
        with contextlib.suppress(OSError):
            for left in os.listdir(folder):
                if any(is_temporary(left, final) for final in finals):
                    with contextlib.suppress(OSError):
                        (folder / left).unlink()
