"""`dshpc-node job clean`: the calling user's workspaces of ended jobs, and what interrupted submissions have
left, told, and removed if so asked.

It is asked twice: first what can go, and then, once a person has agreed, to remove just that. The second
time all is looked at anew before the first file goes.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dshpc_setup import codec
from dshpc_setup.documents import foreign
from dshpc_setup.errors import DshpcError, Exit, usage_error
from dshpc_setup.jobs import cleanable, command_words, leftovers, removal, workspace
from dshpc_setup.jobs.cleanable import Found, Wanted, Workspace
from dshpc_setup.jobs.command_words import Words
from dshpc_setup.jobs.reader import JobReader
from dshpc_setup.slurm import job_states

ASKED, ANSWERED = "dshpc.job-clean-request/1", "dshpc.job-clean/1"
AFTER, DEFAULT = "DSHPC_CLEAN_AFTER", "30d"  # the setting, in the container's environment
_MEASURE_S = 20.0  # for all sizes
_REMOVE_S = 40.0  # then the caller asks again for the rest
_MOST_NAMED = 3


@dataclass(frozen=True)
class Request:
    """`older_than`: a time such as "30d", None for the setting; `remove`: names, None for a look."""

    work: str
    older_than: str | None = None
    lost: bool = False
    remove: tuple[str, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        return codec.to_json(self, ASKED)


def main(rest: Sequence[str]) -> int:
    """What is asked stands on stdin; the answer, or the error, is on stdout."""
    try:
        if rest:
            raise usage_error("dshpc-node job clean takes no words.")
        said = answer(_request(sys.stdin.read()))
    except DshpcError as error:
        said = error.to_object()
    sys.stdout.write(json.dumps(said) + "\n")
    return int(said["exit_code"])


def _request(text: str) -> Request:
    try:
        return codec.from_json(Request, foreign.value(text), ASKED)
    except ValueError as error:
        raise usage_error("The request to clean up cannot be read.", str(error)) from None


def seconds(text: str) -> int:
    """ "30d" as seconds; raises DshpcError (usage)."""
    from dshpc_setup.settings import texts

    try:
        age = texts.age(text)
    except ValueError as error:
        raise usage_error(f"{job_states.shown(text)!r} {error}.") from None
    return texts.seconds(age)


def answer(asked: Request) -> dict[str, Any]:
    """The `dshpc.job-clean/1` object; raises DshpcError before anything is removed."""
    after = asked.older_than if asked.older_than is not None else os.environ.get(AFTER, DEFAULT)
    look = command_words.look_at(Words(work=asked.work))
    found = cleanable.find(look, Wanted(seconds(after), asked.lost))
    picked = found.workspaces if asked.remove is None else _picked(found, asked.remove)
    told: dict[str, Any] = {
        "schema": ANSWERED,
        "exit_code": int(Exit.OK),
        "older_than": after,
        "folder": workspace.of_user(asked.work, os.getuid()),
        "kept": cleanable.counted(found.kept),
        "notes": look.limits.lines(),
    }
    left = leftovers.find(asked.work, os.getuid(), seconds(after))
    if asked.remove is None:
        until = time.monotonic() + _MEASURE_S
        return {
            **told,
            "workspaces": _measured(look, picked, until) if picked else [],
            "leftovers": leftovers.measured(asked.work, os.getuid(), left, until),
        }
    until = time.monotonic() + _REMOVE_S
    gone, failed = _removed(look, picked, until) if picked else ([], [])
    wanted = [each for each in left if each.name in asked.remove]
    more, kept = leftovers.remove(asked.work, os.getuid(), wanted, until)
    gone, failed = [*gone, *more], [*failed, *kept]
    return {
        **told,
        "exit_code": int(Exit.WARNING if failed else Exit.OK),
        "removed": gone,
        "failed": failed,
    }


def _picked(found: Found, names: Sequence[str]) -> list[Workspace]:
    """All of them, the oldest first; raises DshpcError where one may not go any more. One that is gone by
    now is left out."""
    can_go = {each.name: each for each in found.workspaces}
    if changed := [name for name in names if name in found.kept]:
        more = f" and {len(changed) - _MOST_NAMED} more" if len(changed) > _MOST_NAMED else ""
        named = ", ".join(job_states.shown(name) for name in changed[:_MOST_NAMED])
        raise DshpcError(
            "Nothing was removed: a job that started, or was queued, uses what was to go.",
            f"That is: {named}{more}.",
            ("See what can go now: dshpc job clean --dry-run",),
        )
    wanted = set(names)
    return [each for name, each in can_go.items() if name in wanted]


def _measured(look: JobReader, picked: Sequence[Workspace], until: float) -> list[dict[str, Any]]:
    told = []
    with _user(look) as user:
        for each in picked:
            late = time.monotonic() > until
            told.append(
                {
                    "name": each.name,
                    "workspace": each.path,
                    "job_id": None if each.job_id is None else str(each.job_id),
                    "job_name": job_states.shown(each.job_name),
                    "ended": each.ended,
                    "bytes": None if late else removal.size(each.name, user, until),
                }
            )
    return told


def _removed(
    look: JobReader, picked: Sequence[Workspace], until: float
) -> tuple[list[str], list[dict[str, str]]]:
    """The names that are gone, and of those that are not why; what is in neither was not begun."""
    gone: list[str] = []
    failed: list[dict[str, str]] = []
    with _user(look) as user:
        _check(look, picked)
        for each in picked:
            try:
                removal.remove(each.name, user)
            except OSError as error:
                if not _is_there(each.name, user):  # another clean was quicker
                    gone.append(each.name)
                    continue
                why = error.strerror or str(error)
                failed.append({"name": each.name, "workspace": each.path, "why": why})
            else:
                gone.append(each.name)
            if time.monotonic() > until:
                break
    return gone, failed


def _is_there(name: str, at: int) -> bool:
    try:
        os.stat(name, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _check(look: JobReader, picked: Sequence[Workspace]) -> None:
    """Raises DshpcError unless each is this user's, and a workspace in the place of one."""
    for each in picked:
        try:
            with workspace.Workspace(look.work, os.getuid(), each.name).opened():
                pass
        except FileNotFoundError:
            pass
        except OSError as error:
            raise DshpcError(
                f"Nothing was removed: {each.path} cannot be opened: {error.strerror or error}.",
                "",
                (f"Look whose it is: ls -ld {each.path}",),
            ) from None


@contextlib.contextmanager
def _user(look: JobReader) -> Iterator[int]:
    """The folder of the caller's workspaces, open; raises DshpcError."""
    uid = os.getuid()
    with contextlib.ExitStack() as stack:
        try:
            at = stack.enter_context(workspace.user_opened(look.work, uid))
        except OSError as error:
            path = workspace.of_user(look.work, uid)
            raise DshpcError(f"{path} cannot be opened: {error.strerror or error}.") from None
        yield at
