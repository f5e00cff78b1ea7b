"""The only writer of rendered files: all files of a run, or none.

All new texts are first written and synced beside their final names; then a journal is written, which
is the point of no return; then they are renamed. A run that dies before the journal leaves the old
files, one that dies after it is completed by the next run.

Minutes lie between the comparison of a run's files and their writing: they are compared again then, and
once more as each is put in its place (swap.py). What a person has written meanwhile stays.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dshpc_setup.apply import journal
from dshpc_setup.apply.journal import Rename
from dshpc_setup.apply.owned import JOURNAL, NEW
from dshpc_setup.errors import DshpcError
from dshpc_setup.files import ownership
from dshpc_setup.files.atomic import make_folder, read_plain, remove, write_temporary
from dshpc_setup.project.folder import MANIFEST, MANIFEST_SCHEMA, Project, json_text
from dshpc_setup.render.labels import is_as_rendered, rendered_label

Action = Literal[
    "created", "updated", "unchanged", "kept-custom", "kept-edited", "would-create", "would-update"
]


@dataclass(frozen=True)
class Wanted:
    text: str
    mode: int = 0o644


@dataclass(frozen=True)
class Change:
    """What is to happen to one file; `target` differs from `path` for a file that was edited."""

    path: str
    action: Action
    old: str | None
    wanted: Wanted
    target: str | None  # where the text goes; None: nothing is written
    rejected: bool = False  # an edited file, and the user does not want this new text beside it

    def diff(self) -> str:
        """Unified diff from what is there to what we would write; "" without a difference."""
        if self.action in ("unchanged", "kept-custom"):
            return ""
        return "".join(
            difflib.unified_diff(
                (self.old or "").splitlines(keepends=True),
                self.wanted.text.splitlines(keepends=True),
                f"{self.path} (now)" if self.old is not None else "/dev/null",
                f"{self.path} (new)",
            )
        )


def compare(project: Project, wanted: Mapping[str, Wanted]) -> tuple[Change, ...]:
    """Each wanted file against the folder and the manifest; reads only."""
    manifest = project.manifest
    changes = []
    for path, new in wanted.items():
        old = read_text(project.folder / path)
        owner = ownership.classify(old, manifest.get(path))
        changes.append(_change(project, path, old, owner, new, path in manifest))
    return tuple(changes)


def _change(
    project: Project,
    path: str,
    old: str | None,
    owner: ownership.Owner,
    new: Wanted,
    recorded: bool,
) -> Change:
    if owner == "custom":
        return Change(path, "kept-custom", old, new, None)
    if old == new.text:
        return Change(path, "unchanged", old, new, None)
    if owner == "missing":
        return Change(path, "created", None, new, path)
    if owner == "ours":
        return Change(path, "updated", old, new, path)
    if path == "docker-compose.yml" and not recorded and old is not None:
        # Where the manifest is lost, this file tells by itself whose it is.
        if is_as_rendered(old):
            return Change(path, "updated", old, new, path)
        if rendered_label(old) is None:
            raise DshpcError(
                f"{project.folder / path} is there already and is not ours.",
                "It would be started instead of the cluster's, or be lost.",
                ("Choose another folder: --dir DIR.", "Or move that file away."),
            )
    rejected = project.rejected.get(path) == ownership.digest(new.text)
    beside = f"{path}{NEW}"
    needless = rejected or read_text(project.folder / beside) == new.text
    return Change(path, "kept-edited", old, new, None if needless else beside, rejected)


def planned(changes: tuple[Change, ...]) -> tuple[Change, ...]:
    """The same changes as a dry run names them."""
    names: dict[str, Action] = {"created": "would-create", "updated": "would-update"}
    return tuple(
        Change(item.path, names.get(item.action, item.action), item.old, item.wanted, item.target)
        for item in changes
    )


def write(
    project: Project, changes: tuple[Change, ...], notes: Mapping[str, str] | None = None
) -> tuple[Change, ...]:
    """Bring the changes about, and with them the manifest and `notes` (path -> text) of our own.

    They are compared anew, for whatever was edited since: what has become of them is returned.
    """
    finish_interrupted(project)
    changes = compare(project, {item.path: item.wanted for item in changes})
    files = {item.target: item.wanted for item in changes if item.target is not None}
    expected = {item.path: item.old for item in changes if item.target == item.path}
    manifest = _manifest(project, changes)
    for path, text in {MANIFEST: manifest, **(notes or {})}.items():
        if read_text(project.folder / path) != text:
            files[path] = Wanted(text)
    edited = replace_files(project, files, _answered(project, changes), expected)
    return tuple(
        _kept(item, edited[item.path]) if item.path in edited else item for item in changes
    )


def _answered(project: Project, changes: tuple[Change, ...]) -> tuple[str, ...]:
    """Texts that were laid beside an edited file which holds the same again."""
    beside = {
        f"{item.path}{NEW}": item for item in changes if item.action in ("unchanged", "updated")
    }
    return tuple(
        path
        for path, item in beside.items()
        if read_text(project.folder / path) in ({item.old, item.wanted.text} - {None})
    )


def offer(project: Project, changes: tuple[Change, ...]) -> None:
    """Lay the new texts beside files that were edited, and change nothing that counts."""
    beside = {
        item.target: item.wanted
        for item in changes
        if item.action == "kept-edited" and item.target is not None
    }
    replace_files(project, beside)


def _kept(item: Change, text: str) -> Change:
    """A change that was not made: its file was edited as it was to be replaced."""
    if ownership.is_marked(text):
        return Change(item.path, "kept-custom", text, item.wanted, None)
    return Change(item.path, "kept-edited", text, item.wanted, f"{item.path}{NEW}")


def replace_files(
    project: Project,
    files: Mapping[str, Wanted],
    removals: Sequence[str] = (),
    expected: Mapping[str, str | None] | None = None,
) -> dict[str, str]:
    """Write all of the files (path -> text) and remove the others, or do nothing of it.

    `expected`: what stands in those that people edit (None: no such file). One that holds something
    else by now stays, the new text is laid beside it, and its path and text are in the answer.
    """
    if not files and not removals:
        return {}
    temporaries: list[Rename] = []
    try:
        for path, wanted in files.items():
            final = project.folder / path
            make_folder(final.parent, project.owner)
            temporary = write_temporary(final, wanted.text, wanted.mode, project.owner)
            rename = Rename(temporary, final)
            if expected is not None and path in expected:
                old = expected[path]
                was = None if old is None else ownership.digest(old)
                rename = Rename(temporary, final, True, was, ownership.digest(wanted.text))
            temporaries.append(rename)
        journal.write(project, temporaries, removals)
    except BaseException:
        for rename in temporaries:
            remove(rename.temporary)
        raise
    try:
        return journal.carry_out(project, temporaries, removals)
    except KeyboardInterrupt:  # past the point of no return: all of them, then stop
        journal.carry_out(project, temporaries, removals)
        raise


def finish_interrupted(project: Project) -> bool:
    """Complete the renames of a run that died in the middle of them; True where there was one."""
    value = project.read_json(JOURNAL)
    pairs = value.get("renames")
    was = isinstance(pairs, list)
    if isinstance(pairs, list):
        renames, removals = journal.read(project, pairs, value.get("removals") or ())
        journal.carry_out(project, renames, removals)
    journal.sweep(project)
    return was


def _manifest(project: Project, changes: tuple[Change, ...]) -> str:
    files = dict(project.manifest)
    for item in changes:
        if item.action in ("created", "updated", "unchanged"):
            files[item.path] = ownership.digest(item.wanted.text)
    return json_text({"schema": MANIFEST_SCHEMA, "files": files})


def read_text(path: Path) -> str | None:
    """What the file holds, byte for byte (surrogateescape); None where there is none."""
    try:
        data = read_plain(path)
        return None if data is None else data.decode("utf-8", "surrogateescape")
    except OSError as error:
        aside = shlex.join(["mv", str(path), f"{path}.old"])
        raise DshpcError(
            f"Cannot read {path}: {error.strerror or error}.",
            "It must be a text file that you may read.",
            (f"Make it a text file, or put it aside: {aside}", "Then run again."),
        ) from None
