"""Copies of files before a tool changes them: NAME.dshpc-backup-TIME beside each, whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence

from dshpc_setup.engine.packages import last_lines
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import CommandResult
from dshpc_setup.repair.site import Site

_COPY_S = 20.0
_MOST = 99  # names that are taken already


def back_up(site: Site, paths: Sequence[str], *, root: bool) -> tuple[str, ...]:
    """The copies, with the mode and the owner of what they are of; a file has one copy a run.

    One that is not there has none. Raises DshpcError where a copy cannot be made: then nothing
    may be changed.
    """
    made = []
    for path in paths:
        if path not in site.backups and _there(site, path, root=root):
            site.backups[path] = _copy(site, path, root=root)
            made.append(site.backups[path])
    return tuple(made)


def _copy(site: Site, path: str, *, root: bool) -> str:
    folder, _, name = path.rpartition("/")
    temporary = f"{folder}/.{name}.dshpc-tmp"
    final = _free(site, f"{path}.dshpc-backup-{site.time}", root=root)
    # -p: mode, owner, times; a copy through a link is of what it leads to
    try:
        for argv in (["cp", "-p", "--", path, temporary], ["mv", "--", temporary, final]):
            done = site.run(argv, root=root, deadline_s=_COPY_S)
            if not done.ok:
                raise _no_copy(path, done)
    except BaseException:
        site.run(["rm", "-f", "--", temporary], root=root, deadline_s=_COPY_S)
        raise
    return final


def _free(site: Site, wanted: str, *, root: bool) -> str:
    names = (wanted, *(f"{wanted}-{number}" for number in range(2, _MOST)))
    for name in names:
        if not _there(site, name, root=root):
            return name
    raise DshpcError(f"{wanted} and its like are all there already.", "", ("Move them away.",))


def _there(site: Site, path: str, *, root: bool) -> bool:
    """Asked by who will copy it: a folder may be closed to others."""
    done = site.run(["test", "-e", path], root=root, deadline_s=_COPY_S)
    if done.state == "present" and done.code in (0, 1) and not done.stderr.strip():
        return done.code == 0
    raise _no_copy(path, done)


def _no_copy(path: str, done: CommandResult) -> DshpcError:
    return DshpcError(
        f"{path} was not changed: no copy of it could be made.",
        last_lines(done),
        ("Mend that, then run this again.",),
    )
