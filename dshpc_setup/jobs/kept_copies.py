"""Environments and images on a node without the work folder: copies under the path that the originals have.

A step of a job (`carried.py`) brings what is missing. A copy gets its name once it is whole, and stays for
other jobs of its user's; one that none has used for long goes, as on the controller's machine.
"""

from __future__ import annotations

import contextlib
import os
import time

from dshpc_setup.jobs import environments, luggage, parcels, removal, safe_open


class Copies:
    """Those of one user; `user` is the folder of the user's workspaces, open."""

    def __init__(self, user: int) -> None:
        self._user = user
        self._coming: _Coming | None = None

    def missing(self, names: list[str]) -> list[str]:
        """Of these the ones that are not here."""
        found = []
        for name in filter(luggage.is_kept, names):
            folder, _, own = name.partition("/")
            try:
                with safe_open.opened(folder, self._user) as at:
                    is_here = environments.used(own, at)
            except FileNotFoundError:
                is_here = False
            found += [] if is_here else [name]
        return found

    def begin(self, name: str) -> parcels.Writer:
        """Where one comes to; raises OSError."""
        if not luggage.is_kept(name):
            raise parcels.StrangeError("path", name)
        self.drop()
        self._coming = _Coming(self._user, *name.split("/"))
        return self._coming.writer

    def end(self, name: str) -> None:
        """It is whole; "": it could not be read. Raises OSError."""
        try:
            if self._coming is not None and name == self._coming.place:
                self._coming.keep()
        finally:
            self.drop()

    def drop(self) -> None:
        """Nothing stays of one that is not whole."""
        if self._coming is not None:
            self._coming.close()
            self._coming = None


class _Coming:
    """One on its way, in a folder that is held."""

    def __init__(self, user: int, folder: str, name: str) -> None:
        self.place, self._name = f"{folder}/{name}", name
        with contextlib.ExitStack() as open_:
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder, 0o700, dir_fd=user)
            self._at = safe_open.folder(folder, user)
            open_.callback(os.close, self._at)
            safe_open.check_owner(os.fstat(self._at), os.getuid(), user, folder)
            environments.clean(self._at, time.time() - environments.UNUSED_S)
            self._new, held = environments.new_and_held(self._at)
            open_.callback(removal.discard, self._new, self._at)
            open_.callback(os.close, held)
            tree = safe_open.new_folder("tree", held, 0o700)
            open_.callback(os.close, tree)
            self.writer = parcels.Writer(tree)
            self.close = open_.pop_all().close

    def keep(self) -> None:
        self.writer.finish()
        environments.keep(self._new, self._name, self._at)
