"""What one submission asks for: made on the host, carried out in the container.

The host reads methods, parameters and inputs and says what shall run (`Request`); in the container
`dshpc-node job submit` reads it from stdin, chooses GPUs by what there is now, makes the workspace
and calls sbatch once. One `docker exec` carries it all. Imports are counted here: `dshpc method run`
may take 0.35 s longer than its sbatch call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from dshpc_setup import codec
from dshpc_setup.methods.model import Resources, Value

SCHEMA = "dshpc.job-request/1"
SUBMITTED = "dshpc.job-submitted/1"
Kind = Literal["method", "command"]


@dataclass(frozen=True)
class Request:
    """A job, or an array of jobs, as asked for. Paths are as the container has them.

    `argv` runs in `cwd` with no shell between. `parameters` has one mapping, or one for each
    task of an array. `dependency` are Slurm's own words ("afterok:17"). `targets` are lists of GPUs
    of the node, by index or UUID: one job for each. `fingerprint` says what the job was made from:
    two jobs with the same one would compute the same.
    """

    kind: Kind
    name: str  # the method's, or the program's
    argv: tuple[str, ...]
    work: str  # the work folder: workspaces lie in its folder `jobs`
    resources: Resources = field(default_factory=Resources)
    parameters: tuple[Mapping[str, Value], ...] = ({},)
    is_array: bool = False
    inputs: tuple[str, ...] = ()
    incoming: str | None = None  # a folder in `work` with copies of inputs from elsewhere
    method_dir: str | None = None
    environment: str | None = None  # the venv that it runs in, as `environments` has made it
    image: str | None = None  # the bundle that it runs in, as `images` has unpacked it
    requires: Mapping[str, str] = field(default_factory=dict)  # method -> workspace of its result
    dependency: str | None = None
    targets: tuple[tuple[str, ...], ...] = ()
    node: str | None = None
    target_nodes: tuple[str, ...] = ()  # of each target, where they are on several
    cwd: str | None = None  # where it runs; None: in the workspace
    in_place: bool = False  # it works on that very folder: a copy would not do
    partition: str | None = None
    if_busy: Literal["wait", "refuse"] = "wait"
    dry_run: bool = False
    fingerprint: str | None = None
    workflow: str | None = None  # name/step
    carriers: tuple[str, ...] = ()  # nodes to which its workspace is carried, should it run there
    utc_offset_s: int = 0  # of the caller's clock: the container's own may be another

    def to_json(self) -> dict[str, Any]:
        return codec.to_json(self, SCHEMA)


def from_json(value: Any) -> Request:
    """The request; raises ValueError for an object of another schema or shape."""
    return codec.from_json(Request, value, SCHEMA)
