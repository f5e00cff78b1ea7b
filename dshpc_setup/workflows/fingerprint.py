"""What a job is made from, as one number: two jobs with the same one would compute the same.

SHA-256 over the words, the method's files, the parameters, the inputs, the resources, and the
fingerprints of the jobs that it requires. A file above 64 MiB counts by its size and its time of
change, for reading it could take longer than the job.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dshpc_setup.files import tree
from dshpc_setup.jobs import safe_open
from dshpc_setup.methods.model import Method
from dshpc_setup.workflows.model import Job, Workflow

HUGE_BYTES = 64 << 20
MOST_FILES = 10_000  # of a method's folder, its folders counted
_PASSED_OVER = frozenset(("__pycache__", ".git"))  # not what a method is made of
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Prints:
    """Job -> its fingerprint; None for one that cannot be told apart, and so is run each time."""

    of: Mapping[str, str | None]
    notes: tuple[str, ...] = ()


@dataclass
class _Files:
    """Files, read once each."""

    known: dict[str, str] = field(default_factory=dict)
    huge: set[str] = field(default_factory=set)

    def of(self, path: str) -> str:
        """What is in the file; of one that cannot be read, that it cannot."""
        if path not in self.known:
            try:
                self.known[path] = self._read(path)
            except OSError as error:
                self.known[path] = f"unread: {error.errno}"
        return self.known[path]

    def _read(self, path: str) -> str:
        """By the place that its name leads to, opened by no link; raises OSError for what is no file."""
        with open(safe_open.real_file(os.path.realpath(path)), "rb") as file:
            found = os.fstat(file.fileno())
            digest = hashlib.sha256()
            read = 0
            while found.st_size <= HUGE_BYTES and (block := file.read(_BLOCK)):
                digest.update(block)
                read += len(block)
                if read > HUGE_BYTES:  # it grows
                    found = os.fstat(file.fileno())
                    break
        if max(read, found.st_size) <= HUGE_BYTES:
            return digest.hexdigest()
        self.huge.add(path)
        return f"{found.st_size} bytes of {found.st_mtime_ns}"


def prints(workflow: Workflow) -> Prints:
    """The fingerprints of all its jobs, with what has to be said of them."""
    files = _Files()
    found: dict[str, str | None] = {}
    notes = [f"{job.name}: {note}" for job in workflow.jobs for note in job.notes]
    folders: dict[Path, list[list[Any]] | None] = {}
    for job in workflow.jobs:
        if job.method is not None and job.method.folder not in folders:
            folders[job.method.folder] = _folder(job.method.folder, files)
            if folders[job.method.folder] is None:
                notes.append(f"The folder of the method {job.method.name} cannot be read, or has more "
                             f"than {MOST_FILES} files: its jobs are run each time.")  # fmt: skip
        method = folders[job.method.folder] if job.method is not None else None
        needed = {need.job: [need.ending, found[need.job]] for need in job.needs}
        if (job.method is not None and method is None) or any(
            each[1] is None for each in needed.values()
        ):
            found[job.name] = None
            continue
        found[job.name] = _print(job, method, needed, files)
    if files.huge:
        some = sorted(files.huge)[0]
        count = f" and {len(files.huge) - 1} more" if len(files.huge) > 1 else ""
        notes.append(f"{some}{count}: larger than {HUGE_BYTES >> 20} MiB, so its size and time of "
                     "change say whether it is the same.")  # fmt: skip
    return Prints(found, tuple(notes))


def _print(
    job: Job, method: list[list[Any]] | None, needed: Mapping[str, list[Any]], files: _Files
) -> str:
    value = {
        "argv": job.argv,
        "method": [_method(job.method), method] if job.method else None,
        "parameters": _parameters(job, files),
        "inputs": [_file(path, files) for path in job.inputs],
        "files": [_file(path, files) for path in job.files],
        "resources": asdict(job.resources),
        "requires": needed,
    }
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _method(method: Method) -> list[Any]:
    return [method.name, method.command, method.script_path]


def _parameters(job: Job, files: _Files) -> dict[str, Any]:
    kinds = {each.name: each.type for each in job.method.parameters} if job.method else {}
    return {
        name: _file(value, files) if kinds.get(name) == "file" and isinstance(value, str) else value
        for name, value in job.parameters.items()
    }


def _file(path: str, files: _Files) -> list[str]:
    """The name counts, for programs read endings; where it lies does not."""
    return [os.path.basename(path), files.of(path)]


def _folder(folder: Path, files: _Files) -> list[list[Any]] | None:
    """All files of a method; None where there are too many."""
    found: list[list[Any]] = []
    try:
        with (
            safe_open.above(os.path.realpath(folder)) as (at, name),
            safe_open.opened(name, at) as top,
        ):
            for entry in tree.entries(top, MOST_FILES, _PASSED_OVER):
                if entry.is_folder:
                    continue
                link = entry.link() if entry.is_link else None
                path = str(folder / entry.path)
                is_one = entry.is_file or (link is not None and os.path.isfile(path))
                content = files.of(path) if is_one else None
                found.append([entry.path, bool(entry.seen.st_mode & 0o111), link, content])
    except OSError:  # too many, or changed under our eyes
        return None
    return found
