"""`dshpc config accept|reject`: the new text beside an edited file becomes the file, or goes away."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dshpc_setup.apply import apply
from dshpc_setup.apply.apply import Wanted
from dshpc_setup.apply.owned import NEW, OWNABLE
from dshpc_setup.cluster.config_files import HostFile, host_file, path_of
from dshpc_setup.engine import compose
from dshpc_setup.errors import DshpcError, Exit, usage_error
from dshpc_setup.files import ownership
from dshpc_setup.project.folder import MANIFEST, MANIFEST_SCHEMA, REJECTED, Project, json_text
from dshpc_setup.terminal.reporter import Reporter

ANSWER_SCHEMA = "dshpc.config-answer/1"
_MOST_OLD = 100
OLD = ".dshpc-old"  # behind the name: the hand-edited text that was given up


@dataclass(frozen=True)
class Settled:
    """The files that were accepted or rejected, by their paths in the project folder.

    `kept`: where the texts that were given up for the accepted ones lie, in the same order.
    """

    answer: Literal["accepted", "rejected"]
    paths: tuple[str, ...]
    kept: tuple[str, ...] = ()

    def next_steps(self) -> tuple[str, ...]:
        """What puts accepted texts into effect; nothing has to be done for rejected ones."""
        if self.answer == "rejected":
            return ()
        steps = []
        if any(path.startswith("config/") for path in self.paths):
            steps.append("Put it into effect: dshpc reconfigure (or dshpc restart)")
        if any(not path.startswith("config/") for path in self.paths):
            steps.append(f"Put {compose.FILE} into effect: dshpc up")
        return tuple(steps)

    def lines(self) -> list[str]:
        """The same for people."""
        if self.answer == "rejected":
            return [
                f"Rejected: {path} stays as you edited it. A newer text will be offered again."
                for path in self.paths
            ]
        taken = [
            f"Accepted: {path} is the new text; yours is in {kept}"
            for path, kept in zip(self.paths, self.kept, strict=True)
        ]
        return [*taken, *self.next_steps()]

    def to_json(self) -> dict[str, Any]:
        """The `dshpc.config-answer/1` object."""
        return {
            "schema": ANSWER_SCHEMA,
            "exit_code": int(Exit.OK),
            "answer": self.answer,
            "files": list(self.paths),
            "kept": list(self.kept),
            "next": list(self.next_steps()),
        }


def accept(project: Project, names: Sequence[str], every: bool) -> Settled:
    """The new texts become the files; the hand-edited ones are kept as NAME.dshpc-old, .dshpc-old.2, ...

    Raises DshpcError where there is no new text for one of them: then nothing is changed.
    """
    _check_usage(project, names, every, "accept")
    with project.lock():
        apply.finish_interrupted(project)
        files = _chosen(project, names, every)
        kept = {item.path: _unused(project, f"{item.path}{OLD}") for item in files}
        digests = dict(project.manifest)
        rejected = dict(project.rejected)
        wanted: dict[str, Wanted] = {}
        for item in files:
            mode = stat.S_IMODE((project.folder / item.path).stat().st_mode)
            wanted[kept[item.path]] = Wanted(item.text or "", mode)
            wanted[item.path] = Wanted(item.new or "", mode)
            digests[item.path] = ownership.digest(item.new or "")
            rejected.pop(item.path, None)
        wanted[MANIFEST] = Wanted(json_text({"schema": MANIFEST_SCHEMA, "files": digests}))
        if rejected != project.rejected:
            wanted[REJECTED] = Wanted(json_text(rejected))
        expected = {item.path: item.text for item in files}
        gone = [f"{item.path}{NEW}" for item in files]
        edited = apply.replace_files(project, wanted, gone, expected)
    if edited:
        raise DshpcError(
            f"{', '.join(edited)} was edited while this ran, and stays as it is.",
            f"The new text is in NAME{NEW}, as before.",
            ("Look at it, then run this again.",),
        )
    return Settled("accepted", tuple(item.path for item in files), tuple(kept.values()))


def reject(project: Project, names: Sequence[str], every: bool, reporter: Reporter) -> Settled:
    """The new texts go away, and the very same ones are not laid there again."""
    _check_usage(project, names, every, "reject")
    with project.lock():
        apply.finish_interrupted(project)
        files = _chosen(project, names, every)
        paths = [f"{item.path}{NEW}" for item in files]
        question = f"Remove {', '.join(paths)} and keep what you edited?"
        if not reporter.ask(question):
            raise DshpcError(
                "Nothing was changed.",
                question,
                ("Answer with yes, or give --yes: dshpc config reject ... --yes",),
            )
        rejected = project.rejected
        rejected |= {item.path: ownership.digest(item.new or "") for item in files}
        apply.replace_files(project, {REJECTED: Wanted(json_text(rejected))}, paths)
    return Settled("rejected", tuple(item.path for item in files))


def _check_usage(project: Project, names: Sequence[str], every: bool, verb: str) -> None:
    if bool(names) == every:
        raise usage_error(
            "Name the files, or give --all, and not both.",
            f"Files are: {', '.join(path.removeprefix('config/') for path in OWNABLE)}.",
            f"Such as: dshpc config {verb} slurm.conf",
        )
    for name in names:
        path_of(name, OWNABLE, project.folder)


def _chosen(project: Project, names: Sequence[str], every: bool) -> list[HostFile]:
    """Edited files with a new text beside them; raises DshpcError where there is none."""
    if every:
        files = [host_file(project, path) for path in OWNABLE]
        files = [item for item in files if item.owner == "edited" and item.new is not None]
        if not files:
            raise DshpcError(
                "No new text waits for an answer.",
                f"No file that was edited by hand has a NAME{NEW} beside it.",
                ("See what is in force: dshpc config diff",),
            )
        return files
    paths = dict.fromkeys(path_of(name, OWNABLE, project.folder) for name in names)
    files = [host_file(project, path) for path in paths]
    for item in files:
        if item.owner != "edited" or item.new is None:
            raise _nothing_offered(item)
    return files


def _nothing_offered(item: HostFile) -> DshpcError:
    """Why there is no new text for that file."""
    anew = f"rm {item.path} && configure-environment"
    if item.owner == "custom":
        return DshpcError(
            f"{item.path} is marked as yours: there is no new text for it.",
            "A file with the line # USER_CUSTOMIZED=true is never written to, nor anything beside it.",
            (f"To have it written anew: {anew}", "To be offered new texts: take that line out."),
        )
    if item.owner == "missing":
        return DshpcError(
            f"There is no {item.path}.", "", ("Have it written anew: configure-environment",)
        )
    if item.owner == "ours":
        return DshpcError(
            f"{item.path} is as configure-environment wrote it: there is nothing to decide.",
            f"{item.path}{NEW} is left from an earlier time." if item.new is not None else "",
            (f"Remove it: rm {item.path}{NEW}",) if item.new is not None else (),
        )
    return DshpcError(
        f"There is no {item.path}{NEW}.",
        f"{item.path} was edited by hand, and no new text waits beside it.",
        ("Have one made: configure-environment", f"Or give your edits up: {anew}"),
    )


def _unused(project: Project, path: str) -> str:
    """The path, or with a number where a text of an earlier time is kept there: none of them is lost."""
    names = (path, *(f"{path}.{number}" for number in range(2, _MOST_OLD)))
    for name in names:
        if not (project.folder / name).exists():
            return name
    raise DshpcError(
        f"There are {_MOST_OLD - 1} earlier texts of it: {path}, {path}.2, ...",
        "One more of yours would have to replace one of them.",
        (f"Remove what you need no more: ls {project.folder}/{path}*",),
    )
