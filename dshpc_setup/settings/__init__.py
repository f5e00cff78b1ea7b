"""What the user may choose: each setting declared once, and where its value came from.

Precedence: flag, environment, remembered flag (an earlier run in this project folder), dshpc.yaml,
default. `load` is pure: texts and mappings in, `Settings` out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from dshpc_setup.errors import DshpcError, usage_error
from dshpc_setup.settings.declarations import BY_NAME, DECLARATIONS, Declaration

__all__ = [
    "BY_NAME",
    "DECLARATIONS",
    "Declaration",
    "Origin",
    "Settings",
    "Source",
    "load",
    "together",
]

Origin = Literal["flag", "environment", "remembered", "file", "default"]


@dataclass(frozen=True)
class Source:
    origin: Origin
    where: str  # "--prefix", "DSHPC_PREFIX", "dshpc.yaml:3"


@dataclass(frozen=True)
class Settings:
    """All values, parsed; `sources[name]` says where each came from, `texts[name]` what stood there."""

    prefix: str = "dshpc"
    gpu: str = "auto"
    devices: tuple[str, ...] = ()
    unhealthy_gpus: str = "exclude"  # exclude | use
    simulate: str = ""
    work: str = "work"
    workspace_access: str = "private"  # private | group
    partition: str = "debug"
    partitions: tuple[tuple[str, str], ...] = ()  # (name, longest time)
    gpu_sharing: str = "none"  # none | shard:N | mps
    gres_type: str = "model"  # model | index
    isolation: str = "default"  # default | enforced
    slurm_conf_extra: str = ""
    reserve_mib: int | None = None
    shm_size: str = "1g"
    pids_limit: int | None = None  # None: by the number of CPUs; 0: no limit
    log_size: str = ""  # "": as log_bounds.py says; engine; a size
    array_limit: int = 10001
    job_limit: int | None = None  # None: by array_limit
    clean_after: str = "30d"
    base_image: str = "debian:trixie-slim"
    apt_mirror: str = ""
    cuda_runtime: str = "no"
    amd_profiling: str = "no"
    sources: Mapping[str, Source] = field(default_factory=dict, compare=False)
    texts: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def container(self) -> str:
        return f"{self.prefix}-slurm"

    @property
    def node(self) -> str:
        return self.prefix

    def container_env(self) -> dict[str, str]:
        """Variables that give the entrypoint the same settings: those that are not the default."""
        return {
            item.env: self.texts[item.name]
            for item in DECLARATIONS
            if item.in_container and item.name in self.texts
        }


def load(
    *,
    flags: Mapping[str, str | None] | None = None,
    env: Mapping[str, str] | None = None,
    remembered: Mapping[str, str] | None = None,
    yaml_text: str | None = None,
    yaml_name: str = "dshpc.yaml",
) -> Settings:
    """The settings in force.

    Raises DshpcError with exit code 64 for a bad value, naming where it stands (file: line and column),
    and for all that is wrong at once.
    """
    from_file, wrong = _from_file(yaml_text, yaml_name)
    values: dict[str, Any] = {}
    sources: dict[str, Source] = {}
    texts: dict[str, str] = {}
    for item in DECLARATIONS:
        text, source = _pick(item, flags or {}, env or {}, remembered or {}, from_file)
        sources[item.name] = source
        if text is None:
            continue
        try:
            values[item.name] = _parsed(item, text, source)
        except DshpcError as error:
            wrong.append(error)
        texts[item.name] = text
    if wrong:
        raise together(wrong)
    return Settings(**values, sources=sources, texts=texts)


def _parsed(item: Declaration, text: str, source: Source) -> Any:
    try:
        return item.parse(text)
    except ValueError as error:
        raise usage_error(
            f"{source.where}: {item.name} = {_shown(text)} {error}.",
            item.help,
            f"Correct {source.where} and run again.",
        ) from None
    except DshpcError as error:
        if source.origin == "flag":  # of which the error speaks by itself
            raise
        said = error.brief.removeprefix(f"{item.flag} ")
        raise replace(error, brief=f"{source.where}: {item.name} = {said}") from None


def together(wrong: list[DshpcError]) -> DshpcError:
    """One error of several: each with its place, in the order of the file, those of no file first."""
    if len(wrong) == 1:
        return wrong[0]
    lines: list[str] = []
    for error in sorted(wrong, key=_place):
        hint = [f"  {line}" for line in error.details.split(" There are: ")[0].splitlines()]
        lines += [error.brief, *(line for line in hint if line not in lines)]
    return usage_error(
        f"{len(wrong)} settings are wrong.", "\n".join(lines), "Correct them all and run again."
    )


def _place(error: DshpcError) -> tuple[int, int]:
    found = re.match(r".*?:([0-9]+):([0-9]+): ", error.brief)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _shown(text: str) -> str:
    """Quoted, without the login of an address."""
    return repr(re.sub(r"://[^/\s]*@", "://***@", text))


def _from_file(
    text: str | None, name: str
) -> tuple[Mapping[str, tuple[str, str]], list[DshpcError]]:
    if text is None:
        return {}, []
    from dshpc_setup.settings import document  # each start of the container imports this module

    return document.read(text, name)


def _pick(
    item: Declaration,
    flags: Mapping[str, str | None],
    env: Mapping[str, str],
    remembered: Mapping[str, str],
    from_file: Mapping[str, tuple[str, str]],
) -> tuple[str | None, Source]:
    flag = flags.get(item.name)
    if flag is not None:
        return flag, Source("flag", item.flag)
    if item.env in env:
        return env[item.env], Source("environment", item.env)
    if item.name in remembered:
        return remembered[item.name], Source("remembered", f"{item.flag} of an earlier run")
    if item.name in from_file:
        text, where = from_file[item.name]
        return text, Source("file", where)
    return None, Source("default", "default")
