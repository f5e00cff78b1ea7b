"""Which cluster this user's commands mean where they are typed in none: chosen by `dshpc use`, or known by
what its jobs see here.

Two plain files of the user's own state (XDG Base Directory): `use`, a folder, and `clusters`, the folders in
which this user ran configure-environment, the last one first. A line is a place to look at, and believed no
further: what is found there is judged as any project is (trust.py). Imports are counted here.
"""

from __future__ import annotations

import os

from dshpc_setup.project import trust

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_USE, _CLUSTERS = "use", "clusters"
_MOST = 100  # clusters


def elsewhere(here: str, environ: Mapping[str, str]) -> trust.Place | None:
    """The project of who stands in none, at a real path; None where there is nothing to go by.

    A cluster whose work folder this is comes first, then the one that was chosen, then one whose jobs see
    this folder as a home or a mount, then what the installed command means.
    """
    places = [place for folder in clusters(environ) if (place := _usable(folder)) is not None]
    return (
        next((place for place in places if _depth(place, here, ("work",)) >= 0), None)
        or chosen(environ)
        or max(
            (place for place in places if _depth(place, here, ("homes", "mounts")) >= 0),
            key=lambda place: _depth(place, here, ("homes", "mounts")),
            default=None,
        )
        or trust.default(environ)
    )


def chosen(environ: Mapping[str, str]) -> trust.Place | None:
    """The project that `dshpc use` has chosen, whatever became of it since; None where none was."""
    lines = _lines(_USE, environ)
    return trust.judged(os.path.realpath(lines[0])) if lines else None


def clusters(environ: Mapping[str, str]) -> list[str]:
    return _lines(_CLUSTERS, environ)


def choose(folder: str | None, environ: Mapping[str, str]) -> None:
    """From now on; None: none is. Raises DshpcError."""
    _write(_USE, [] if folder is None else [folder], environ)


def remember(folder: str, environ: Mapping[str, str]) -> None:
    """A project that this user set up; those that are gone are forgotten. Raises DshpcError."""
    others = [
        each
        for each in clusters(environ)
        if each != folder and os.path.isdir(f"{each}/{trust.OWN}")
    ]
    if clusters(environ) != (now := [folder, *others][:_MOST]):
        _write(_CLUSTERS, now, environ)


def again(folder: str, environ: Mapping[str, str]) -> None:
    """One that runs: where it was removed, it is back. Raises DshpcError."""
    if folder not in clusters(environ):
        remember(folder, environ)


def forget(folder: str, environ: Mapping[str, str]) -> None:
    """A cluster that was removed is meant nowhere any more; its folder may hold files all the same. Raises
    DshpcError."""
    before = clusters(environ)
    if folder in before:
        _write(_CLUSTERS, [each for each in before if each != folder], environ)


def _usable(folder: str) -> trust.Place | None:
    place = trust.judged(os.path.realpath(folder))
    return None if place.fault is not None or not place.runtime else place


def _depth(place: trust.Place, here: str, kinds: tuple[str, ...]) -> int:
    """How long the path is of the folder of these kinds that `here` lies in; -1 for none."""
    found = -1
    for kind in kinds:
        value = place.runtime.get(kind, ())
        for folder in (value,) if isinstance(value, str) else value:
            real = os.path.realpath(folder)
            if here == real or here.startswith(real.rstrip("/") + "/"):
                found = max(found, len(real))
    return found


def _folder(environ: Mapping[str, str]) -> tuple[str, tuple[int, int] | None]:
    """Where the files lie, "" for a user without a home; and whose they are to be, where root makes them
    for who called sudo."""
    import pwd

    sudo = environ.get("SUDO_UID", "")
    if os.geteuid() == 0 and sudo.isascii() and sudo.isdecimal() and 0 < int(sudo) < 1 << 32:
        try:
            entry = pwd.getpwuid(int(sudo))
        except KeyError:
            return "", None
        return f"{entry.pw_dir}/.local/state/dshpc", (entry.pw_uid, entry.pw_gid)
    named, home = environ.get("XDG_STATE_HOME", ""), environ.get("HOME", "")
    if named.startswith("/"):
        return f"{named}/dshpc", None
    return (
        (f"{home}/.local/state/dshpc", None) if home.startswith("/") and home != "/" else ("", None)
    )


def _lines(name: str, environ: Mapping[str, str]) -> list[str]:
    """Absolute paths; whatever else stands there is none."""
    folder, _ = _folder(environ)
    if not folder:
        return []
    try:
        with open(f"{folder}/{name}", encoding="utf-8", errors="surrogateescape") as file:
            text = file.read(1 << 16)
    except OSError:
        return []
    return [line for line in _of(text) if line.startswith("/") and "\0" not in line][:_MOST]


def _of(text: str) -> Iterator[str]:
    return iter(text.split("\n"))


def _write(name: str, lines: list[str], environ: Mapping[str, str]) -> None:
    from pathlib import Path

    from dshpc_setup.errors import DshpcError
    from dshpc_setup.files.atomic import make_folder, remove, write_atomic, write_error

    folder, owner = _folder(environ)
    if not folder:
        raise DshpcError(
            "There is no folder of yours to remember it in: HOME is not set.",
            "",
            ("Name the cluster's folder in DSHPC_DIR.",),
        )
    path = Path(folder) / name
    if not lines:
        try:
            remove(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise write_error(error, path) from None
        return
    make_folder(path.parent, owner)
    write_atomic(path, "".join(f"{line}\n" for line in lines), 0o600, owner=owner)
