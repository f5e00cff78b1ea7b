"""The project folder: whose each file is, whether it can be used, and what would be written now."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dshpc_setup.apply.owned import JOURNAL, NEW, OWNABLE
from dshpc_setup.checkup import renderings
from dshpc_setup.cluster import own_files
from dshpc_setup.cluster import refused as refusals
from dshpc_setup.documents import foreign
from dshpc_setup.engine.compose import FILE as COMPOSE_FILE
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import HostFacts
from dshpc_setup.files import ownership
from dshpc_setup.observed.model import ProjectFile
from dshpc_setup.plan import ClusterPlan
from dshpc_setup.project.folder import MANIFEST, OWN, Project
from dshpc_setup.render import gpu_part
from dshpc_setup.render.stanza import Worker
from dshpc_setup.settings import Settings
from dshpc_setup.settings.overruled import Overruled
from dshpc_setup.slurm import slurm_conf

SETTINGS_FILE = "dshpc.yaml"
_MOST_TEXT = 64 << 10  # that is kept
_MOST_BYTES = 4 << 20  # as the container has it
_TEMPORARY = re.compile(r"\..+\.dshpc-tmp")


@dataclass(frozen=True)
class FolderSeen:
    """For the fields of the same names of `Observed`."""

    files: tuple[ProjectFile, ...] = ()
    wanted_gpus: tuple[str, ...] | None = None
    written_gpus: tuple[str, ...] | None = None
    leftovers: tuple[str, ...] = ()
    overruled: tuple[Overruled, ...] = ()
    refused: dict[str, Any] | None = None


def project_files(
    project: Project,
    facts: HostFacts,
    settings: Settings,
    plan: ClusterPlan | None,
    workers: Sequence[Worker] = (),
) -> FolderSeen:
    """All of it; nothing is written or started, and nothing raises for what lies in the folder.

    Without a plan (the settings cannot be used) it is not known what would be written.
    """
    wanted = (
        renderings.made_now(project, facts, settings, plan, workers)
        if plan is not None
        else renderings.Renderings({})
    )
    recorded = _recorded(project)
    files = tuple(
        _written(project.folder, path, recorded.get(path), wanted.texts.get(path))
        for path in OWNABLE
    )
    extra = (_settings_file(project.folder), _manifest(project.folder))
    written = _written_gpus(project.folder)
    return FolderSeen(
        (*files, *extra),
        _agreed(wanted.gpus, written),
        written,
        leftovers(project),
        own_files.of_project(project, settings),
        refusals.standing(project, settings),
    )


def _agreed(
    wanted: tuple[tuple[str, ...], ...], written: tuple[str, ...] | None
) -> tuple[str, ...] | None:
    """The GPU part that is written, where it is one that would do; else the best."""
    return written if written in wanted else next(iter(wanted), None)


def leftovers(project: Project) -> tuple[str, ...]:
    """Files that a run left which died while it wrote: apply.finish_interrupted completes a journal."""
    found = [JOURNAL] if (project.folder / JOURNAL).exists() else []
    for folder in ("", "config/", f"{OWN}/"):
        try:
            names = sorted(os.listdir(project.folder / folder))
        except OSError:
            continue
        found += [f"{folder}{name}" for name in names if _TEMPORARY.fullmatch(name)]
    return tuple(found)


# -- what is there ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Found:
    """A file's bytes; `data` is None where there are none that could be read."""

    there: bool
    data: bytes | None = None
    mode: int | None = None
    detail: str | None = None  # why it cannot be used
    closed: bool = False  # it is a file, and may not be read


def _read(path: Path) -> _Found:
    try:
        about = path.stat()
        mode = stat.S_IMODE(about.st_mode)
        if not stat.S_ISREG(about.st_mode):  # a pipe would be waited for
            what = "it is a folder" if stat.S_ISDIR(about.st_mode) else "it is not a regular file"
            return _Found(True, mode=mode, detail=what)
        if about.st_size > _MOST_BYTES:
            return _Found(True, mode=mode, detail=f"it is larger than {_MOST_BYTES >> 20} MiB")
        return _Found(True, path.read_bytes(), mode)
    except (FileNotFoundError, NotADirectoryError):
        return _Found(False)
    except OSError as error:
        return _Found(True, detail=error.strerror or str(error), closed=True)


def _written(
    folder: Path, path: str, recorded: str | None, texts: tuple[str, ...] | None
) -> ProjectFile:
    """A file that configure-environment writes."""
    offered = (folder / f"{path}{NEW}").exists()
    found = _read(folder / path)
    if found.data is None:
        return replace(_without_text(path, found), offered=offered)
    text = found.data.decode("utf-8", "surrogateescape")
    owner = ownership.classify(text, recorded)
    wrong = None if path == ".env" else _wrong(path, found.data)
    return ProjectFile(
        path,
        owner,
        "invalid" if wrong else "good",
        wrong,
        stale=renderings.stale(path, text, texts),
        offered=offered,
        mode=found.mode,
        text=None if path == ".env" else _kept(found.data),
        sha256=None if path == ".env" else ownership.digest(text),
    )


def _without_text(path: str, found: _Found) -> ProjectFile:
    if not found.there:
        return ProjectFile(path, "missing")
    if found.closed:
        return ProjectFile(path, "edited", "unreadable", found.detail, mode=found.mode)
    return ProjectFile(path, "edited", "invalid", found.detail, mode=found.mode)


def _kept(data: bytes) -> str | None:
    """The text, where it is one and not too long for a report."""
    try:
        return data.decode() if len(data) <= _MOST_TEXT else None
    except UnicodeDecodeError:
        return None


def _settings_file(folder: Path) -> ProjectFile:
    """The user's own; what its settings mean is told by reading them."""
    found = _read(folder / SETTINGS_FILE)
    if found.data is None:
        return _without_text(SETTINGS_FILE, found)
    wrong = _wrong_yaml(found.data)
    return ProjectFile(
        SETTINGS_FILE,
        "custom",
        "invalid" if wrong else "good",
        wrong,
        mode=found.mode,
        text=_kept(found.data),
    )


def _manifest(folder: Path) -> ProjectFile:
    found = _read(folder / MANIFEST)
    if found.data is None:
        return _without_text(MANIFEST, found)
    wrong = None
    try:
        value = foreign.value(found.data)
        if not isinstance(value, dict) or not isinstance(value.get("files"), dict):
            wrong = "it names no files"
    except (ValueError, RecursionError) as error:
        wrong = f"it is not JSON: {error}"
    return ProjectFile(MANIFEST, "ours", "invalid" if wrong else "good", wrong, mode=found.mode)


def _recorded(project: Project) -> Mapping[str, str]:
    try:
        return project.manifest
    except (DshpcError, RecursionError):  # told by the manifest's own state
        return {}


# -- what cannot be used ---------------------------------------------------------------------------


def _wrong(path: str, data: bytes) -> str | None:
    """Why the program that reads the file cannot; None where nothing speaks against it."""
    if path == COMPOSE_FILE:
        wrong = _wrong_yaml(data)
        services = None if wrong else gpu_part.parsed(data)
        if wrong is None and not (isinstance(services, dict) and services.get("services")):
            wrong = "it names no services"
        return wrong
    return slurm_conf.wrong(data)


def _wrong_yaml(data: bytes) -> str | None:
    from dshpc_setup.documents import yaml_nodes  # who only reads what was seen here needs none

    if len(data) > gpu_part.MOST_BYTES:
        return f"it is larger than {gpu_part.MOST_BYTES >> 20} MiB"
    try:
        yaml_nodes.load(data.decode())
    except UnicodeDecodeError as error:
        number = data[: error.start].count(b"\n") + 1
        return f"line {number}: it is not UTF-8 text"
    except yaml_nodes.YamlError as error:
        return f"it is not YAML: {error}"
    return None


def _written_gpus(folder: Path) -> tuple[str, ...] | None:
    document = gpu_part.parsed(_read(folder / COMPOSE_FILE).data or b"")
    return gpu_part.words(document) if isinstance(document, dict) else None
