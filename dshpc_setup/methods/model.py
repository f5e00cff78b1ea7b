"""A method and what it needs, as `method.json` declares them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

ParameterType = Literal["string", "integer", "number", "boolean", "file"]
OptionalGpus = Literal["auto", "always", "never"]
Value = str | int | float | bool | None


@dataclass(frozen=True)
class Parameter:
    """One parameter; `default` is None where there is none, `allowed_values` empty where all are."""

    name: str
    type: ParameterType
    description: str = ""
    required: bool = False
    default: Value = None
    allowed_values: tuple[Value, ...] = ()


@dataclass(frozen=True)
class Resources:
    """What a job asks for; None is "not said": then the cluster's own default holds.

    Memory in MiB. `cpus` 0 is all of the node's. `memory_mb` is what the job gets; `min_memory_mb` is
    the least that it can do with, and what it gets where `memory_mb` is not said. `time_limit` is in
    minutes. `gpu_type` is what `--gres=gpu:TYPE:N` takes: a type of the cluster, a vendor, a model,
    a MIG profile. `gpu_memory_mb`, `min_compute_capability` and `cuda` choose among the types there are.
    """

    cpus: int | None = None
    memory_mb: int | None = None
    min_memory_mb: int | None = None
    time_limit: int | None = None
    gpus: int = 0
    gpu_type: str | None = None
    gpu_memory_mb: int | None = None
    min_compute_capability: str | None = None  # "8.0"
    cuda: str | None = None  # "12.4": the least that the driver must offer
    optional_gpus: OptionalGpus = "always"  # auto: `gpus` where there are some, else none
    shards: int = 0
    nodes: int | None = None
    tasks: int | None = None
    exclusive: bool = False
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Method:
    """A valid method. `folder` holds method.json; `command` is split into words, never given to a shell."""

    name: str
    command: tuple[str, ...]
    script_path: str  # relative to `folder`, inside it
    folder: Path
    description: str = ""
    version: str = ""
    input_modes: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    resources: Resources = field(default_factory=Resources)
    requires: tuple[str, ...] = ()  # methods whose last good result it reads
    env: str = ""  # a folder in `folder` that declares its environment; "": the image's own
    image: str = (
        ""  # one that it runs in: a file in `folder` or elsewhere, or a name; "": the cluster's own
    )

    @property
    def script(self) -> Path:
        return self.folder / self.script_path
