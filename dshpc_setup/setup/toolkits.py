"""The machine's CUDA and ROCm that jobs are lent, as the setting `toolkit` says: found before anything is
made or stopped."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from dshpc_setup.errors import usage_error
from dshpc_setup.project.folder import Project
from dshpc_setup.settings import Settings
from dshpc_setup.settings.lent import COMPILERS, Kind, Toolkit, first_of_each, fits, parse
from dshpc_setup.setup.shared_folders import unfit
from dshpc_setup.terminal.sanitize import listed, plain

USUAL = ("/usr/local/cuda", "/usr/local/cuda-*", "/opt/cuda", "/opt/rocm", "/opt/rocm-*")
_VERSION = re.compile(r"[0-9]+")


def with_toolkits(project: Project, settings: Settings) -> Settings:
    """With those that are to be lent. DshpcError (usage) where one is named that is none, or where they are
    asked for and there is none."""
    if settings.toolkit != "host":
        return replace(settings, toolkits=())
    named = settings.cuda_paths
    found = tuple(dict.fromkeys(_all(named or _usual(), project, is_named=bool(named))))
    if not found:
        raise usage_error(
            "The setting toolkit = host lends jobs this machine's CUDA or ROCm, and there is none.",
            f"Looked for {', '.join(USUAL)}. Nothing was stopped or changed.",
            "Install one of them there, or name its folder: configure-environment --cuda-paths DIR",
            "Or lend none: dshpc config set toolkit none",
        )
    return replace(settings, toolkits=tuple(map(str, found)))


def here() -> tuple[Toolkit, ...]:
    """Those that lie where they do as a rule, each by its first name, whether or not jobs are lent them."""
    found: dict[str, Toolkit] = {}
    for path in _usual():
        kind, real = _kind(path), os.path.realpath(path)
        if kind is not None:
            found.setdefault(real, Toolkit(kind, real, path))
    return tuple(found.values())


def _kind(path: str) -> Kind | None:
    return next(
        (kind for kind, name in COMPILERS.items() if os.path.isfile(f"{path}/{name}")), None
    )


def told(settings: Settings) -> str:
    found = tuple(map(parse, settings.toolkits))
    first = tuple(each.place for each in first_of_each(found))
    others = tuple(sorted({each.place for each in found} - set(first)))
    more = f" They also see {listed(others)}." if others else ""
    return f"Jobs are lent this machine's {listed(first)}, for reading.{more}"


def _usual() -> Iterable[str]:
    """Those without a version first, then the newest."""
    found = (path for pattern in USUAL for path in glob.glob(pattern))
    return sorted(found, key=lambda path: ("-" in path, [-n for n in _numbers(path)]))


def _numbers(path: str) -> list[int]:
    return [int(each) for each in _VERSION.findall(path)]


def _all(folders: Iterable[str], project: Project, *, is_named: bool) -> Iterator[Toolkit]:
    """Each where it is named, and where it lies: its programs know one path or the other."""
    for folder in folders:
        path = os.path.normpath(folder)
        kind, source = _kind(path), os.path.realpath(path)
        why = unfit(path, project.folder, lambda real: not fits(real))
        if why is None and kind is None:
            why = f"it has no {' and no '.join(COMPILERS.values())}"
        if why is None and not fits(path):
            why = "it would cover what the container itself lives on"
        if why is not None and is_named:
            raise usage_error(
                f"The folder {plain(folder)} cannot be lent to jobs: {why}.",
                "It is of the setting cuda_paths. Nothing was stopped or changed.",
                "Name the folder of a CUDA or ROCm: configure-environment --cuda-paths /usr/local/cuda",
            )
        if why is None and kind is not None:
            yield Toolkit(kind, source, path)
            if fits(source):
                yield Toolkit(kind, source, source)
