"""The folders that workspaces lie in: `jobs`, which nobody can turn against others, and each user's own.

As a rule root makes both, in the container, before it becomes the user who submits (`prepare`). Where
root may not write in the work folder (NFS with root_squash), and for a submission from within a job, the
user does it, as far as that is safe for the others (`of_user`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import stat
from collections.abc import Iterator

from dshpc_setup.errors import DshpcError
from dshpc_setup.jobs import rights, safe_open, workspace
from dshpc_setup.jobs.safe_open import OTHERS_WRITE
from dshpc_setup.jobs.workspace import JOBS


def prepare(work: str, uid: int, gid: int) -> None:
    """As root: `jobs`, where only its owner makes folders, and in it that user's.

    What somebody else has put in their places loses its name, and nothing that was there before is given
    to anybody. Raises OSError where root may not do it here.
    """
    at = safe_open.walked(work, ())
    try:
        found = os.fstat(at)
        with _jobs(at, found.st_uid) as jobs:
            _take(jobs, found.st_uid)
            _inherit_group(jobs, found)
            _users(jobs, uid, gid)
    finally:
        os.close(at)


def _inherit_group(jobs: int, work: os.stat_result) -> None:
    """The group of a work folder that hands its own on (chmod g+s), also to a `jobs` made before that."""
    found = os.fstat(jobs)
    is_handed_on = found.st_gid == work.st_gid and found.st_mode & stat.S_ISGID
    if work.st_mode & stat.S_ISGID and not is_handed_on and found.st_uid in (0, work.st_uid):
        with contextlib.suppress(PermissionError):
            os.fchown(jobs, -1, work.st_gid)
            os.fchmod(jobs, stat.S_IMODE(found.st_mode) | stat.S_ISGID)


def make(work: str) -> None:
    """`jobs` of a new work folder, before anybody else could make it; raises OSError."""
    at = safe_open.walked(work, ())
    try:
        with _jobs(at, os.fstat(at).st_uid):
            pass
    except NotADirectoryError:
        pass  # what stands in its place is told as it is needed
    finally:
        os.close(at)


@contextlib.contextmanager
def _jobs(at: int, owner: int) -> Iterator[int]:
    """`jobs`, made where it is missing: the work folder's owner's, who could do with it what he likes."""
    try:
        os.mkdir(JOBS, 0o755, dir_fd=at)
    except FileExistsError:
        made = False
    else:
        made = True
    with safe_open.opened(JOBS, at) as jobs:
        if made and os.fstat(jobs).st_uid == os.getuid() != owner:
            with contextlib.suppress(PermissionError):
                os.fchown(jobs, owner, -1)
        if made:
            safe_open.give_mode(jobs, 0o755)
        yield jobs


def _take(jobs: int, owner: int) -> None:
    """From whoever made it when all users did (1777, the first one's). One that was never shared is left
    to its owner, and refused later: it may be no `jobs` at all."""
    found = os.fstat(jobs)
    shared = bool(found.st_mode & OTHERS_WRITE)
    with contextlib.suppress(PermissionError):
        if found.st_uid not in (0, owner) and shared:
            os.fchown(jobs, owner, -1)
        if shared:
            os.fchmod(jobs, stat.S_IMODE(found.st_mode) & ~OTHERS_WRITE)


def _users(jobs: int, uid: int, gid: int) -> None:
    name = str(uid)
    try:
        with safe_open.opened(name, jobs) as there:
            found = os.fstat(there)
            # Where all users are one, he has made it on the host under his own number
            is_ours = found.st_uid == os.getuid() and rights.is_one_id()
            if is_ours or safe_open.is_of(found, uid, jobs):
                return
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
    # Made aside: what has the name by now may be anything, and is given to nobody
    new = f".new-{os.urandom(6).hex()}"
    made = safe_open.new_folder(new, jobs, workspace.folder_mode())
    try:
        group = -1 if os.fstat(made).st_mode & stat.S_ISGID else gid  # a project's group stays
        with contextlib.suppress(PermissionError):  # a file system that has owners of its own
            os.fchown(made, uid, group)
    finally:
        os.close(made)
    with contextlib.suppress(FileNotFoundError):
        os.rename(name, f".not-of-{uid}-{os.urandom(6).hex()}", src_dir_fd=jobs, dst_dir_fd=jobs)
    os.rename(new, name, src_dir_fd=jobs, dst_dir_fd=jobs)


@contextlib.contextmanager
def of_user(work: str, uid: int) -> Iterator[int]:
    """The folder of a user's workspaces, open, made where that is safe; `uid` is ours, or we are root.

    Raises OSError where it cannot be made, DshpcError where somebody else could turn it against us.
    """
    at = safe_open.walked(work, ())
    try:
        owner = os.fstat(at).st_uid
        jobs = _jobs_of(at, work, owner)
    finally:
        os.close(at)
    try:
        _check_jobs(jobs, work, owner)
        with contextlib.suppress(FileExistsError):
            os.mkdir(str(uid), 0o700, dir_fd=jobs)
        user = safe_open.folder(str(uid), jobs)
    except NotADirectoryError:
        raise _of_somebody_else(work, uid) from None
    finally:
        os.close(jobs)
    try:
        found = os.fstat(user)
        if not safe_open.is_of(found, uid, user):
            raise _of_somebody_else(work, uid)
        least = stat.S_IMODE(found.st_mode) & ~OTHERS_WRITE
        safe_open.give_mode(user, least | workspace.folder_mode())
        yield user
    finally:
        os.close(user)


def _jobs_of(at: int, work: str, owner: int) -> int:
    """`jobs`, open. Only who owns the work folder makes it: another one's would be no place for others."""
    try:
        return safe_open.folder(JOBS, at)
    except FileNotFoundError:
        pass
    except NotADirectoryError:
        raise _not_safe(work, "it is not a folder") from None
    if os.getuid() not in (0, owner) and owner != safe_open.others_given(at):
        raise PermissionError(errno.EACCES, f"only user {owner} may make {work}/{JOBS}")
    shared = os.fstat(at).st_mode & OTHERS_WRITE
    with contextlib.suppress(FileExistsError):
        # Who may make folders in the work folder may do so there; what others made stays theirs
        made = safe_open.new_folder(JOBS, at, 0o755 | (stat.S_ISVTX | shared if shared else 0))
        os.close(made)
    return safe_open.folder(JOBS, at)


def _check_jobs(jobs: int, work: str, owner: int) -> None:
    """Raises DshpcError where somebody else than root, the cluster's owner or we could rename in it."""
    found = os.fstat(jobs)
    safe = not found.st_mode & OTHERS_WRITE or bool(found.st_mode & stat.S_ISVTX)
    known = found.st_uid in (0, owner, os.getuid())
    if (known and safe) or found.st_uid == safe_open.others_given(jobs):
        return
    if not known:
        raise _not_safe(work, f"it belongs to user {found.st_uid}")
    if found.st_uid != os.getuid():
        raise _not_safe(work, "everybody may rename what is in it")
    safe_open.give_mode(jobs, stat.S_IMODE(found.st_mode) | stat.S_ISVTX)


def _not_safe(work: str, why: str) -> DshpcError:
    jobs = f"{work}/{JOBS}"
    return DshpcError(
        f"The folder {jobs} is not safe: {why}.",
        "Workspaces lie in it, and whoever may rename them could put others in their place.",
        (f"Give it to the work folder's owner: sudo chown --reference={work} {jobs}",
         f"Let nobody else write in it: sudo chmod go-w {jobs}"),
    )  # fmt: skip


def _of_somebody_else(work: str, uid: int) -> DshpcError:
    at = workspace.of_user(work, uid)
    return DshpcError(
        f"{at} is not a folder of this user's (user {uid}).",
        "It holds the user's workspaces, and nobody else may write there.",
        (f"Remove it: sudo rm -r {at}",),
    )


def not_made(path: str, work: str, error: OSError) -> DshpcError:
    """Why a workspace cannot be made, in words."""
    why = "A job's workspace lies in the work folder and belongs to who submits it."
    todo = room_for_writing(error, work)
    if error.errno == errno.ENOENT and not _has_name(work):
        why = f"{work} was removed while the cluster ran, which holds the removed folder still."
        todo = f"Make it again where it is gone (mkdir {shlex.quote(work)}), then: dshpc restart"
    if isinstance(error, PermissionError) and os.getuid() == 0:
        why += " Its file system refuses root (as NFS does with root_squash)."
        todo = f"Submit as a user who may write in {work}, without sudo."
    return DshpcError(
        f"The workspace {path} cannot be made: {error.strerror or error}.", why, (todo,)
    )


def _has_name(folder: str) -> bool:
    """Whether any name leads to it; a folder that is mounted may have been removed where it lies."""
    try:
        return os.stat(folder).st_nlink > 0
    except OSError:
        return False


def room_for_writing(error: OSError, work: str) -> str:
    """What a user has to do for a workspace or a copy that could not be written in the work folder."""
    jobs = f"{work.rstrip('/')}/{JOBS}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"Make room in {work}. Workspaces of ended jobs: dshpc job clean"
    return f"Let the owner of {work} make it for all users: mkdir -p {jobs}; chmod 1777 {jobs}"
