"""The journal of a run that replaces files: once it is there all of them are, by this run or the next."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dshpc_setup.apply.owned import JOURNAL, NEW, OWNABLE
from dshpc_setup.errors import DshpcError
from dshpc_setup.files import ownership, swap
from dshpc_setup.files.anchored import anchored
from dshpc_setup.files.atomic import (
    is_temporary,
    remove,
    replace,
    sync_folder,
    write_error,
    write_temporary,
)
from dshpc_setup.project.folder import (
    LIVE,
    MANIFEST,
    PROOF,
    REFUSED,
    REJECTED,
    REMEMBERED,
    RENDERED,
    RUNTIME,
    SETTINGS,
    Project,
)

_FOLDERS = ("", os.path.dirname(MANIFEST), os.path.dirname(JOURNAL))  # of all that a run writes


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
        replace(temporary, journal)
    except BaseException as error:
        remove(temporary)
        if isinstance(error, OSError):
            raise write_error(error, journal) from None
        raise
    sync_folder(journal.parent)


def read(
    project: Project, pairs: Sequence[Sequence[str]], removals: Sequence[str]
) -> tuple[list[Rename], list[str]]:
    """What stands in a journal; raises DshpcError where it names files that no run of ours writes."""
    folder = project.folder
    for path in (*(new for _, new, *_ in pairs), *removals):
        above, name = os.path.split(path)
        if above not in _FOLDERS or name in ("", ".", ".."):
            raise _not_ours(project, path)
    for old, new, *_ in pairs:
        (above, name), (final_above, final) = os.path.split(old), os.path.split(new)
        if above != final_above or not is_temporary(name, final):
            raise _not_ours(project, old)
    renames = [
        Rename(folder / old, folder / new, bool(digests), *digests) for old, new, *digests in pairs
    ]
    return renames, list(removals)


def _not_ours(project: Project, path: str) -> DshpcError:
    journal = project.folder / JOURNAL
    return DshpcError(
        f"{journal} names a file that no run writes: {path}",
        "A run that was interrupted is completed from it. This one was changed by somebody.",
        (f"Look at it, then remove it: rm {shlex.quote(str(journal))}",),
    )


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
                replace(each.temporary, each.final)
            except OSError as error:
                raise write_error(error, each.final) from None
    for path in gone:
        try:
            remove(path)
        except OSError as error:
            raise write_error(error, path) from None
    for folder in {path.parent for path in (*(each.final for each in temporaries), *gone)}:
        sync_folder(folder)
    remove(project.folder / JOURNAL)
    return edited


def _lay_beside(rename: Rename, edited: str) -> Path:
    """Our text beside one that was edited; nothing beside one that its owner has marked."""
    beside = rename.final.with_name(f"{rename.final.name}{NEW}")
    try:
        if ownership.is_marked(edited) or not rename.temporary.exists():
            remove(rename.temporary)
        else:
            replace(rename.temporary, beside)
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
        LIVE,
        SETTINGS,
        RENDERED,
        REFUSED,
        REJECTED,
        PROOF,
        JOURNAL,
    ):
        final = project.folder / path
        names.setdefault(final.parent, []).extend((final.name, f"{final.name}{NEW}"))
    for folder, finals in names.items():
        with contextlib.suppress(OSError), anchored(folder) as at:
            for left in os.listdir(at):
                if any(is_temporary(left, final) for final in finals):
                    with contextlib.suppress(OSError):
                        (at / left).unlink()
