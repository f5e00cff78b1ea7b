"""`dshpc job clean`: what can go is shown, asked about, and removed in the container as the calling user."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dshpc_setup.cli import print_json, put
from dshpc_setup.cli.job_request import Cluster, ask, cluster
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.jobs import clean
from dshpc_setup.jobs.clean import Request
from dshpc_setup.terminal.amounts import size
from dshpc_setup.terminal.command_names import as_called
from dshpc_setup.terminal.reporter import Reporter
from dshpc_setup.terminal.sanitize import counted, plain

_MOST_ROWS = 20
_DAY_S, _HOUR_S = 86400, 3600
_KEPT = {  # why -> its words
    "going": "queued or running",
    "needed": "needed by jobs that are queued or running",
    "younger": "ended less than {after} ago",
    "unknown": "of another cluster or a destroyed one: nothing says that they ended (--lost)",
}
_LEFT = {"upload": "interrupted upload", "put-aside": "put aside"}


@dataclass(frozen=True)
class Line:
    """What stands in the command line."""

    folder: Path | None = None
    older_than: str | None = None
    lost: bool = False
    dry_run: bool = False
    json: bool = False


def carry_out(line: Line, reporter: Reporter) -> int:
    """The exit code; raises DshpcError, also where the answer is no."""
    if line.older_than is not None:
        _check(line.older_than)
    here = cluster(line.folder)
    request = Request(here.work, line.older_than, line.lost)
    found = ask(here.runtime, "clean", request)
    every = [*found["workspaces"], *_left(found)]
    told = {**found, "bytes": _bytes(every)}
    if line.dry_run or not every:
        _show({**told, "removed": [], "failed": []}, line)
        return int(Exit.OK)
    if not line.json:
        put(_text(_table(told)))
    results = ", with all results and logs in them" if found["workspaces"] else ""
    question = f"Remove {_what(told)}{results}?"
    if not reporter.ask(question):
        raise DshpcError(
            "Nothing was removed.",
            f"{question}\nThat was not answered with yes (without a terminal it takes --yes).",
            ("See what would go: dshpc job clean --dry-run", "Then: dshpc job clean --yes"),
        )
    done = _removed(here, request, found, reporter)
    if line.json:
        print_json({**told, **done})
    else:
        put(_text(_outcome(told, done)))
    return int(done["exit_code"])


def _check(age: str) -> None:
    try:
        clean.seconds(age)
    except DshpcError as error:
        raise replace(error, brief=f"--older-than {error.brief}") from None


def _removed(
    here: Cluster, request: Request, found: Mapping[str, Any], reporter: Reporter
) -> dict[str, Any]:
    """All of them, in as many calls as that takes: each looks at all that is left before it begins."""
    left = [each["name"] for each in (*found["workspaces"], *_left(found))]
    gone: list[str] = []
    failed: list[dict[str, str]] = []
    while left:
        reporter.progress(f"removing {len(left)} folders")
        done = ask(here.runtime, "clean", replace(request, remove=tuple(left)))
        gone += done["removed"]
        failed += done["failed"]
        over = {*done["removed"], *(each["name"] for each in done["failed"])}
        if not over:  # those that are left have gone by themselves
            break
        left = [name for name in left if name not in over]
    code = int(Exit.WARNING if failed else Exit.OK)
    return {"exit_code": code, "removed": gone, "failed": failed}


def _left(found: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """What interrupted submissions have left; a container of an older version says nothing of it."""
    left: Sequence[Mapping[str, Any]] = found.get("leftovers", ())
    return left


def _show(told: Mapping[str, Any], line: Line) -> None:
    if line.json:
        print_json(dict(told))
    elif told["workspaces"] or _left(told):
        put(_text([*_table(told), f"Nothing was removed. It would be: {_what(told)}."]))
    else:
        put(_text(["There is nothing to remove.", *_stays(told), *told["notes"]]))


def _text(lines: Sequence[str]) -> str:
    return "".join(f"{as_called(line)}\n" for line in lines)


def _table(told: Mapping[str, Any]) -> list[str]:
    """The oldest first."""
    now = time.time()
    rows = [("JOB", "NAME", "ENDED", "SIZE", "WORKSPACE")]
    rows += [
        (
            each["job_id"] or "?",
            plain(each["job_name"]),
            _ago(now - each["ended"]),
            size(each["bytes"]),
            plain(each["name"]),
        )
        for each in told["workspaces"][:_MOST_ROWS]
    ]
    rows += [
        (
            "-",
            _LEFT[each["kind"]],
            _ago(now - each["changed"]),
            size(each["bytes"]),
            plain(each["name"]),
        )
        for each in _left(told)[: max(0, _MOST_ROWS - len(told["workspaces"]))]
    ]
    widths = [max(len(row[place]) for row in rows) for place in range(5)]
    lines = [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    if (more := len(told["workspaces"]) + len(_left(told)) - _MOST_ROWS) > 0:
        lines.append(f"... and {more} more; all of them: --json")
    return [*lines, *_stays(told), *told["notes"]]


def _stays(told: Mapping[str, Any]) -> list[str]:
    """One line for each reason."""
    lines = []
    for why, words in _KEPT.items():
        if count := told["kept"].get(why, 0):
            lines.append(f"Kept: {count} {words.format(after=_age(told['older_than']))}.")
    return lines


def _what(told: Mapping[str, Any]) -> str:
    """ "3 workspaces of ended jobs and 1 leftover of interrupted submissions in FOLDER, 1.4 GiB"."""
    count, left = len(told["workspaces"]), len(_left(told))
    unknown = any(each["bytes"] is None for each in (*told["workspaces"], *_left(told)))
    more = "more than " if unknown else ""
    jobs = "s of ended jobs" if count != 1 else " of an ended job"
    parts = [
        *([f"{count} workspace{jobs}"] if count else ()),
        *([f"{counted(left, 'leftover')} of interrupted submissions"] if left else ()),
    ]
    return f"{' and '.join(parts)} in {told['folder']}, {more}{size(told['bytes'])}"


def _outcome(told: Mapping[str, Any], done: Mapping[str, Any]) -> list[str]:
    gone = set(done["removed"])
    left = {each["name"] for each in _left(told)}
    every = (*told["workspaces"], *_left(told))
    freed = _bytes([each for each in every if each["name"] in gone])
    workspaces, leftovers = len(gone - left), len(gone & left)
    parts = [
        *([counted(workspaces, "workspace")] if workspaces or not leftovers else ()),
        *([counted(leftovers, "leftover")] if leftovers else ()),
    ]
    lines = [f"Removed: {' and '.join(parts)}, {size(freed)}."]
    lines += [f"Not removed: {each['workspace']}: {each['why']}" for each in done["failed"]]
    return lines


def _bytes(workspaces: Sequence[Mapping[str, Any]]) -> int:
    return sum(each["bytes"] or 0 for each in workspaces)


def _ago(seconds: float) -> str:
    days, hours = int(seconds // _DAY_S), int(seconds // _HOUR_S)
    if days >= 2:
        return f"{days} days ago"
    return f"{hours} h ago" if hours else f"{max(0, int(seconds // 60))} min ago"


def _age(text: str) -> str:
    """ "30d" as "30 days"."""
    words = {"d": "days", "h": "hours", "m": "minutes"}
    return f"{text[:-1]} {words[text[-1]]}" if text[-1:] in words else "a minute"
