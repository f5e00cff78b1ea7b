"""What a workflow's last run was: <work>/jobs/UID/.workflows/NAME.json, one run of it at a time.

Each user has workflows of their own: of two users with one name, neither takes the other's results.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from dshpc_setup import codec
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.files import locks
from dshpc_setup.files.atomic import write_error
from dshpc_setup.jobs import records, safe_open, workspace, workspace_folders
from dshpc_setup.jobs.safe_open import NotTheirsError
from dshpc_setup.workflows.model import Need

SCHEMA = "dshpc.workflow-state/1"
FOLDER = ".workflows"


@dataclass(frozen=True)
class Ran:
    """A job of the run; without a number it was not submitted, and its needs say why.

    `reused`: it ended well in an earlier run, whose workspace counts.
    """

    job_id: str | None = None
    workspace: str | None = None
    fingerprint: str | None = None
    needs: tuple[Need, ...] = ()
    reused: bool = False


@dataclass(frozen=True)
class State:
    """`jobs` in the order of their submission; times are seconds since 1970."""

    name: str
    file: str
    submitted: float
    jobs: Mapping[str, Ran] = field(default_factory=dict)

    def with_job(self, name: str, ran: Ran) -> State:
        return replace(self, jobs={**self.jobs, name: ran})


def folder(work: str) -> str:
    """This user's."""
    return f"{workspace.of_user(work, os.getuid())}/{FOLDER}"


@contextlib.contextmanager
def _opened_folder(work: str) -> Iterator[int]:
    """That folder, open; OSError where it is not there, or not this user's."""
    with (
        workspace.user_opened(work, os.getuid()) as user,
        safe_open.opened(FOLDER, user) as at,
    ):
        safe_open.check_owner(os.fstat(at), os.getuid(), user, FOLDER)
        yield at


def path(work: str, name: str) -> str:
    return f"{folder(work)}/{name}.json"


def read(work: str, name: str) -> State | None:
    """The last run; None where there was none, or its file is not one of ours."""
    try:
        with _opened_folder(work) as at:
            value = records.read_at(f"{name}.json", at, os.getuid())
    except OSError:
        return None
    try:
        found = codec.from_json(State, value, SCHEMA, whole=True)
    except ValueError:
        return None
    return found if all(map(_is_number, found.jobs.values())) else None


def _is_number(ran: Ran) -> bool:
    number = ran.job_id
    return number is None or (number.isascii() and number.isdecimal() and len(number) <= 10)


def names(work: str) -> list[str]:
    """The workflows that have been run."""
    try:
        with _opened_folder(work) as at:
            listed = os.listdir(at)
    except OSError:
        return []
    return sorted(name[:-5] for name in listed if name.endswith(".json") and name[0] != ".")


def write(work: str, state: State) -> None:
    """Raises DshpcError where it cannot be written."""
    value = codec.to_json(state, SCHEMA)
    try:
        with _opened_folder(work) as at:
            text = json.dumps(value, indent=1) + "\n"
            safe_open.replace(f"{state.name}.json", text, at, sync=True)
    except OSError as error:
        raise write_error(error, path(work, state.name)) from None


def _opened(lock: str, at: int) -> int:
    """The lock's file: for reading, so that another user's can be held, too.

    Linux lets nobody open what may be another's with O_CREAT in a folder such as /tmp
    (fs.protected_regular), so that it is made only where it is missing.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        return os.open(lock, flags, dir_fd=at)
    except FileNotFoundError:
        with contextlib.suppress(FileExistsError):  # made by another run meanwhile
            return os.open(lock, flags | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=at)
        return os.open(lock, flags, dir_fd=at)


def is_begun(work: str, name: str) -> bool:
    """Whether it has been run, or its first run has begun."""
    try:
        with _opened_folder(work) as at:
            return not {f"{name}.json", f"{name}.lock"}.isdisjoint(os.listdir(at))
    except OSError:
        return False


@contextlib.contextmanager
def _files(work: str, name: str) -> Iterator[tuple[int, int]]:
    """The lock, and the mark that a cancellation sets: another lock, for one that is held ends with
    its process. Makes the folder; raises DshpcError where it cannot be written."""
    handles: list[int] = []
    try:
        with workspace_folders.of_user(work, os.getuid()) as user:
            with contextlib.suppress(FileExistsError):
                os.mkdir(FOLDER, 0o700, dir_fd=user)
            with safe_open.opened(FOLDER, user) as at:
                safe_open.check_owner(os.fstat(at), os.getuid(), user, FOLDER)
                for file in (f"{name}.lock", f"{name}.cancel"):
                    handles.append(_opened(file, at))
    except OSError as error:
        for handle in handles:
            os.close(handle)
        raise _not_kept(work, error) from None
    try:
        yield handles[0], handles[1]
    finally:
        for handle in handles:
            os.close(handle)


def _not_kept(work: str, error: OSError) -> DshpcError:
    """Why what a workflow has run cannot be kept."""
    at = folder(work)
    if isinstance(error, NotTheirsError):
        return _of_somebody_else(at)
    if not isinstance(error, PermissionError) or os.getuid() == 0 or os.path.isdir(at):
        return write_error(error, at)
    return DshpcError(
        f"The folder {at} cannot be made: {error.strerror or error}.",
        "It holds what this user's workflows have run.",
        (workspace_folders.room_for_writing(error, work),),
    )


def _of_somebody_else(at: str) -> DshpcError:
    return DshpcError(
        f"The folder {at} is not this user's.",
        "It holds what this user's workflows have run, so that results of others are not taken for it.",
        (f"Remove it: rm -r {at}",),
    )


@contextlib.contextmanager
def lock(work: str, name: str) -> Iterator[Callable[[], bool]]:
    """Hold the workflow for one submission; a second one is refused. Makes the folder.

    What it gives says whether somebody wants the workflow cancelled by now.
    """
    with _files(work, name) as (handle, mark):
        if not locks.hold(handle, fcntl.LOCK_EX):
            raise DshpcError(
                f"The workflow {name} is being submitted at this moment, by another run.",
                "Two at once would take each other's results.",
                (f"See how it is: dshpc workflow status {name}",),
            )

        def is_cancelled() -> bool:
            free = locks.hold(mark, fcntl.LOCK_EX)
            if free:
                with contextlib.suppress(OSError):  # a file system without locks
                    fcntl.flock(mark, fcntl.LOCK_UN)
            return not free

        yield is_cancelled


@contextlib.contextmanager
def cancelling(work: str, name: str, deadline_s: float) -> Iterator[bool]:
    """Hold the workflow to cancel it: whether a submission had to be stopped for that.

    Raises DshpcError (incomplete) where that one does not stop in time.
    """
    with _files(work, name) as (handle, mark):
        free = locks.hold(handle, fcntl.LOCK_EX)
        if not free and not (
            locks.hold(mark, fcntl.LOCK_SH, deadline_s)
            and locks.hold(handle, fcntl.LOCK_EX, deadline_s)
        ):
            raise DshpcError(
                f"The workflow {name} is being submitted, and its submission does not stop.",
                f"It was waited for, {deadline_s:.0f} seconds long.",
                (f"See how it is: dshpc workflow status {name}",
                 f"Try again: dshpc workflow cancel {name}"),
                Exit.INCOMPLETE,
            )  # fmt: skip
        yield not free
