"""A plan in, the texts of the configuration files out. Pure: only templates are read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dshpc_setup import resources
from dshpc_setup.passthrough.handover import GpuStanza
from dshpc_setup.plan import ClusterPlan
from dshpc_setup.render import gpu_lines
from dshpc_setup.render.isolation import Rights
from dshpc_setup.render.log_bounds import LogBounds

if TYPE_CHECKING:
    import jinja2

CONFIG_FILES = (
    "slurm.conf",
    "gres.conf",
    "cgroup.conf",
)  # of config/, which a user may make his own
LUA_FILES = ("job_submit.lua", "cli_filter.lua")  # only in the container's /etc/slurm


def render_slurm(
    plan: ClusterPlan, names: Sequence[str] = (*CONFIG_FILES, *LUA_FILES)
) -> dict[str, str]:
    """File name -> text of all that /etc/slurm holds, or of these, in a fixed order."""
    environment = _environment()
    return {name: environment.get_template(f"{name}.j2").render(plan=plan) for name in names}


@dataclass(frozen=True)
class ComposeFile:
    """All that docker-compose.yml.j2 needs."""

    prefix: str
    container: str
    node: str
    image: str
    shm_size: str
    gpu_comment: tuple[str, ...]  # lines
    environment: Mapping[str, str]  # with those of `gpu`, as `volumes`
    labels: Mapping[str, str]
    volumes: tuple[str, ...]
    gpu: GpuStanza
    rights: Rights = field(default_factory=Rights)  # of the isolation tier
    pids_limit: int = 0  # processes and threads; 0: none
    log: LogBounds | None = None  # None: as the engine is set
    ulimits: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # soft, hard; -1: none
    build: Mapping[str, Any] | None = None  # {"build": ..., "secrets": ...} of image/build.py
    simulated: bool = False
    ports: tuple[str, ...] = ()  # ADDRESS:PORT:PORT
    network_mode: str = ""  # "host": the machine's own network; "": one of the cluster's
    service: str = "slurm"
    own_network: bool = True  # of the cluster; else its containers have the machine's
    workers: tuple[ComposeFile, ...] = ()  # further nodes: of each counts what its service needs

    @property
    def services(self) -> tuple[ComposeFile, ...]:
        return (self, *self.workers)

    @property
    def gpu_lines(self) -> list[str]:
        """The keys of the service that are there for its GPUs alone."""
        return gpu_lines.cluster_lines(self.gpu)


def render_compose(compose: ComposeFile) -> str:
    """docker-compose.yml: valid for compose v2, and for v1 1.29 where `build` holds no secrets."""
    return _environment().get_template("docker-compose.yml.j2").render(c=compose)


def render_env(prefix: str) -> str:
    """The .env beside docker-compose.yml."""
    return _environment().get_template("env.j2").render(prefix=prefix)


def inputs(plan: ClusterPlan, compose: ComposeFile) -> str:
    """Names all that the files of a project folder are rendered from, but for the build section.

    That is these two, the templates, and what writes the texts: the same name, the same texts.
    """
    import hashlib  # the container renders too, without it

    values = [asdict(plan), asdict(replace(compose, build=None))]
    digest = hashlib.sha256(json.dumps(values, default=list).encode())
    for path in (Path(__file__), Path(gpu_lines.__file__), *_templates()):
        data = path.read_bytes()
        digest.update(f"{path.name} {len(data)}\n".encode() + data)
    return digest.hexdigest()


def _templates() -> Sequence[Path]:
    folders = (resources.templates(), resources.share())
    return [path for folder in folders for path in sorted(folder.glob("*.j2"))]


def _quoted(value: object) -> str:
    """A YAML double-quoted scalar with compose's own interpolation switched off."""
    return _json(str(value))


def _json(value: object) -> str:
    """YAML in one line, with compose's own interpolation switched off."""
    return gpu_lines.in_line(value).replace("$", "$$")


def _oneline(text: object) -> str:
    """For a comment: one line of characters that can be printed; YAML refuses others even there."""
    plain = "".join(char if char.isprintable() else " " for char in str(text))
    return " ".join(plain.split())


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([resources.templates(), resources.share()]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    filters: dict[str, Any] = {
        "q": _quoted,
        "json": _json,
        "oneline": _oneline,
    }
    environment.filters.update(filters)
    return environment
