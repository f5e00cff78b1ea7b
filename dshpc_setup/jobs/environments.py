"""The environments of a user's jobs: made once, in the user's folder of the work folder, by the user.

<work>/jobs/<uid>/.envs/<digest>/     one environment, by the content of the files that declare it
                        .new-.../     one that is being made, held by a lock

Nobody else uses what a user has made: see docs/decisions/0061-environments-of-jobs.md. Each use changes the
time of its folder; one that none has used for a month, and that no job holds, goes as another one is made.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time

from dshpc_setup.errors import DshpcError
from dshpc_setup.jobs import folder_lock, removal, safe_open, workspace

TYPE_CHECKING = False  # imports are counted where a job is submitted, and where it starts
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dshpc_setup.environment.declared_folder import Declared
    from dshpc_setup.jobs.staging import Incoming
    from dshpc_setup.machine import Machine

    Maker = Callable[[Machine, Declared, Path, str, Callable[[str], None]], None]

FOLDER = ".envs"
UNUSED_S = 30 * 86400.0
_NEW = ".new-"
_ACTIVATE = 'for each in "$CONDA_PREFIX"/etc/conda/activate.d/*.sh; do . "$each"; done; exec "$@"'
_TRIES = 100  # to make a folder that is still there once it is held


def ready(folder: str, incoming: Incoming) -> str:
    """The environment that a folder declares, as the job has it; made where it is not there yet.

    With a dry `incoming`, where it would be. Raises DshpcError where it cannot be made.
    """
    from dshpc_setup.environment import declared_folder

    return made(declared_folder.read(os.path.realpath(os.path.expanduser(folder))), incoming)


def made(declared: Declared, incoming: Incoming, make: Maker | None = None) -> str:
    """As `ready`, of what is declared already; `make` in place of uv's, where it is of another kind."""
    name = declared.digest
    final = f"{workspace.of_user(incoming.work, incoming.uid)}/{FOLDER}/{name}"
    if incoming.dry:
        return final
    with kept(FOLDER, incoming, f"The environment {final} cannot be made", "environments") as at:
        if not used(name, at):
            clean(at, time.time() - UNUSED_S)
            _make(declared, final, at, incoming, make)
    return final


@contextlib.contextmanager
def kept(folder: str, incoming: Incoming, failed: str, kind: str) -> Iterator[int]:
    """The user's folder for what is made once and used by many jobs, made and open; what fails there is
    told as `failed`."""
    try:
        with incoming.user_folder() as user:
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder, 0o700, dir_fd=user)
            with safe_open.opened(folder, user) as at:
                safe_open.check_owner(os.fstat(at), incoming.uid, user, folder)
                yield at
    except OSError as error:
        from dshpc_setup.jobs.workspace_folders import room_for_writing

        raise DshpcError(
            f"{failed}: {error.strerror or error}.",
            f"The {kind} of your jobs lie in the work folder, where they see them.",
            (room_for_writing(error, incoming.work),),
        ) from None


def used(name: str, at: int) -> bool:
    """Whether it is there; its time is that of its last use."""
    try:
        os.utime(name, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _make(declared: Declared, final: str, at: int, incoming: Incoming, make: Maker | None) -> None:
    if incoming.owner is not None:
        raise DshpcError(
            "An environment is made by the user whom it is for, and this one is not there yet.",
            "Under sudo, root would run uv on files of somebody else's.",
            ("Run the same command without sudo.",),
        )
    from pathlib import Path

    from dshpc_setup.machine.local import LocalMachine

    incoming.before_long()
    name = os.path.basename(final)
    new, handle = new_and_held(at)
    try:
        into = Path(os.path.dirname(final)) / new
        (make or _maker(declared))(LocalMachine(), declared, into, final, say)
        keep(new, name, at)
    finally:
        os.close(handle)
        removal.discard(new, at)


def _maker(declared: Declared) -> Maker:
    if declared.kind == "conda":
        from dshpc_setup.environment import conda

        return conda.make
    from dshpc_setup.environment import prefix

    return prefix.make


def new_and_held(at: int) -> tuple[str, int]:
    """A folder for what is being made, and its lock. Who cleans meanwhile may take one that is not held yet
    for what a killed run has left: then it is another one."""
    for _ in range(_TRIES):
        name = f"{_NEW}{os.urandom(6).hex()}"
        try:
            handle = safe_open.new_folder(name, at, 0o700)
        except FileNotFoundError:  # before it was open
            continue
        try:
            folder_lock.hold(handle)
            if os.path.samestat(os.fstat(handle), os.stat(name, dir_fd=at, follow_symlinks=False)):
                return name, handle
        except (BlockingIOError, FileNotFoundError):
            pass
        os.close(handle)
    raise BlockingIOError(11, os.strerror(11))


def keep(new: str, name: str, at: int) -> None:
    """What was made in the folder `new` gets its name, unless somebody else of ours has made the same
    meanwhile; raises OSError where it is not there then."""
    with contextlib.suppress(OSError):
        if not used(name, at):
            os.rename(f"{new}/tree", name, src_dir_fd=at, dst_dir_fd=at)
    os.stat(name, dir_fd=at, follow_symlinks=False)


def clean(at: int, before: float) -> None:
    """Remove, of the folder of environments, those that nobody holds and that were used before then last."""
    for name in os.listdir(at):
        with contextlib.suppress(OSError):
            left = name.startswith(_NEW)
            if left or os.stat(name, dir_fd=at, follow_symlinks=False).st_mtime < before:
                with folder_lock.alone(name, at):
                    removal.discard(name, at)


def hold(folder: str) -> int:
    """In a job: the environment, open and locked, so that it stays; OSError where it is not there."""
    handle = safe_open.folder(folder)
    folder_lock.hold(handle)
    found = os.stat(folder, follow_symlinks=False)  # it may have gone before it was held
    if found.st_ino != os.fstat(handle).st_ino:
        raise FileNotFoundError(2, os.strerror(2), folder)
    with contextlib.suppress(OSError):
        os.utime(handle)
    return handle


def variables(folder: str, path: str) -> dict[str, str]:
    """Those by which its programs are found first; `path` is the PATH so far. None without programs."""
    own = {"PATH": f"{folder}/bin:{path}"}
    if os.path.exists(f"{folder}/conda-meta"):
        return {"CONDA_PREFIX": folder, "CONDA_DEFAULT_ENV": folder, "CONDA_SHLVL": "1", **own}
    if os.path.exists(f"{folder}/pyvenv.cfg"):
        return {"VIRTUAL_ENV": folder, **own}
    return {}


def activated(folder: str, argv: list[str]) -> list[str]:
    """The words behind the scripts that conda's packages have for a shell that uses them."""
    if not os.path.isdir(f"{folder}/etc/conda/activate.d"):
        return argv
    return ["/bin/bash", "-c", _ACTIVATE, "dshpc", *argv]


def say(text: str) -> None:
    sys.stderr.write(f"dshpc: {text}\n")
    sys.stderr.flush()
