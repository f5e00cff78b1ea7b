"""The folder of a recording: all of its files are written, or none."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from dshpc_setup.errors import DshpcError, usage_error
from dshpc_setup.files.atomic import sync_folder, write_error


def need_room(folder: Path) -> None:
    """Raises DshpcError where the folder is neither new nor empty, or has no place to be in."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        names = []
    except NotADirectoryError:
        raise usage_error(f"{folder} is a file, or below one.", "", "Name a folder.") from None
    except OSError as error:
        raise _unwritten(error, folder) from None
    if names:
        raise usage_error(
            f"The folder {folder} is not empty.",
            f"It holds {names[0]!r}.",
            "Name a folder that is new, or an empty one.",
        )
    parent = Path(os.path.realpath(folder)).parent
    if not parent.is_dir():
        raise usage_error(f"There is no folder {parent}.", "", "Make it first.")


def write(folder: Path, texts: Mapping[str, str]) -> None:
    """A new folder is written beside its place and renamed; in an empty one each file is.

    That one stays what it is: it may be where somebody stands, or a mount, or not ours to replace.
    """
    final = Path(os.path.realpath(folder))
    made, placed = "", []
    try:
        is_new = not final.exists()
        made = tempfile.mkdtemp(prefix=f".{final.name}.", dir=final.parent if is_new else final)
        for name, text in texts.items():
            with open(os.path.join(made, name), "w", encoding="utf-8", newline="") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        if is_new:
            os.chmod(made, 0o755 & ~_umask())
            os.rename(made, final)
        for name in () if is_new else texts:
            placed.append(final / name)
            os.rename(os.path.join(made, name), placed[-1])
        placed.clear()
    except OSError as error:
        raise _unwritten(error, folder) from None
    finally:
        for path in placed:  # they are not all there
            path.unlink(missing_ok=True)
        if made:
            shutil.rmtree(made, ignore_errors=True)
    with contextlib.suppress(OSError):
        sync_folder(final.parent if is_new else final)


def _unwritten(error: OSError, folder: Path) -> DshpcError:
    told = write_error(error, folder)
    return DshpcError(told.brief, told.details, ("Make room there, or name another folder.",))


def _umask() -> int:
    mask = os.umask(0o22)
    os.umask(mask)
    return mask
