"""The vendors of GPUs: each a folder of `vendors/`, found by being there. See docs/decisions/0035-vendors.md.

A folder has `descriptor.py`, which is data alone, and an aspect for each thing that takes code, under a name
that all vendors share: `probe`, `readings`, `handover`, `remedies`, `checks`, `signs`. No room imports a
vendor by its name: it asks here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType
from typing import Literal

from dshpc_setup import lazy

_ROOM = "dshpc_setup.vendors"


@dataclass(frozen=True)
class Toolkit:
    """What a vendor gives container engines to hand its GPUs over."""

    label: str  # "NVIDIA Container Toolkit"
    programs: Mapping[str, str]  # its parts (hook, runtime, ctk, cdi_hook) -> their programs
    version: str  # the argument by which `ctk` tells its version
    driver_signs: tuple[
        str, ...
    ]  # what the vendor's driver leaves behind, where a toolkit is missed
    spec_path: str  # the CDI specification that `ctk` writes
    needed: bool = True  # or device nodes do as well
    has_config: bool = False  # a config.toml, as NVIDIA's
    rootless: bool = False  # whether `ctk` configures an engine that does not run as root
    drops_features: bool = (
        False  # whether `ctk` takes out what else daemon.json has under `features`
    )
    refreshes_since: str | None = (
        None  # from which version on `refresh_units` renew the specification
    )
    refresh_units: tuple[str, ...] = ()
    nixos_unit: str | None = None  # that writes the specification on NixOS

    @property
    def ctk(self) -> str:
        return self.programs["ctk"]


@dataclass(frozen=True)
class Variables:
    """The variables that say to a program which GPUs are its own: set for each task by the task prolog.

    `visible` lists numbers among the vendor's own GPUs, of a task without one `none`. `order` is a variable
    and the value by which the numbers hold: with another one UUIDs are listed. `uuids` lists UUIDs, for
    containers that a job starts. `ranks` count from 0 what `visible` leaves over: `elsewhere` where other
    vendors' GPUs are beside, `if_set` where the task has the variable.
    """

    visible: str
    none: str = ""
    order: tuple[str, str] | None = None
    uuids: str | None = None
    uuids_none: str = ""
    ranks_beside_others: tuple[str, ...] = ()
    ranks_if_set: tuple[str, ...] = ()
    others: tuple[str, ...] = ()  # that programs read, and that are not to be a method's

    @property
    def names(self) -> tuple[str, ...]:
        """All of them, `visible` first."""
        uuids = () if self.uuids is None else (self.uuids,)
        order = () if self.order is None else self.order[:1]
        ranks = (*self.ranks_beside_others, *self.ranks_if_set)
        return (self.visible, *uuids, *ranks, *order, *self.others)


@dataclass(frozen=True)
class Slurm:
    """What Slurm knows of the vendor."""

    env_flag: str | None = (
        None  # of gres.conf: Slurm sets the vendor's variable; None: it knows none
    )
    sharing: tuple[str, ...] = ("shard",)  # ways by which jobs share a GPU
    compute_prefix: str = ""  # of the feature that names what a GPU computes: "cc9.0", "gfx942"


@dataclass(frozen=True)
class Nodes:
    """Device nodes. `own` matches those of one GPU or a part of it; `shared` are opened beside them."""

    own: str
    shared: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)  # folder -> pattern of names: all nodes
    glob: str = ""  # of those of GPUs, for a shell
    top: str = ""  # pattern of the names in /dev that are the vendor's, files and folders
    by_group: bool = False  # whether only members of a group may open them
    looked_at: str = "/dev"  # for `ls -l`, where one is missing
    read_only: str = ""  # pattern of those that open for reading alone


@dataclass(frozen=True)
class DriverFiles:
    """The files of the driver that programs load, for a container that no toolkit fills: where they are
    looked for, and by which names they are to be there.

    A library is called as programs load it (`libcuda.so.1`), and `.so.*` where its name ends with the
    driver's own version. In a folder `{multiarch}` is the processor as Debian has it, and the last part may
    be a pattern. A file of which the name ends with another version than the running driver's is another
    driver's.
    """

    modules: tuple[str, ...]  # kernel drivers whose files these are
    versions: Mapping[str, str]  # file -> pattern of the running driver's version in it
    numbered: str  # pattern of a version at the end of a library's name
    libraries: tuple[str, ...]
    needed: tuple[str, ...]  # of these libraries: nothing computes without them
    also: Mapping[str, str] = field(default_factory=dict)  # a further name -> that of the library
    programs: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()  # beside `Nodes.shared`, where they are there
    folders: tuple[str, ...] = ()  # where the loader does not look by itself


@dataclass(frozen=True)
class Image:
    """What the image holds for the vendor: packages of Debian, and Python packages from the host."""

    packages: tuple[str, ...] = ()
    wheels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Python:
    """How packages that compute on the vendor's GPUs are told from others."""

    torch: str  # pattern of the local part of its version: "+cu128"
    jax: tuple[str, str] | None = (
        None  # of its plugin jax-NAME7-plugin, and the extra that takes it in
    )


@dataclass(frozen=True)
class Record:
    """What a recording of a machine asks for, beside what the probes read."""

    programs: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()  # walked whole
    nodes: str | None = None  # pattern of names in /dev
    words: tuple[str, ...] = ()  # kept beside the names above: of models, of what tools print


@dataclass(frozen=True)
class Descriptor:
    """All that is known of a vendor and takes no code."""

    name: str  # "nvidia": the setting `gpu`, GPU_TYPE, the vendor in JSON
    label: str  # "NVIDIA"
    order: int  # among the vendors: whose GPUs are counted first
    pci: int  # vendor id on the PCI bus
    modules: tuple[str, ...]  # kernel drivers that make GPUs of its cards
    evidence: tuple[str, ...]  # what its probe says that it looked at
    nodes: Nodes
    variables: Variables
    slurm: Slurm = Slurm()
    image: Image = Image()
    record: Record = Record()
    python: Python | None = None
    toolkit: Toolkit | None = None
    runtimes: tuple[
        str, ...
    ] = ()  # of its toolkit, as engines know them; the first has the vendor's name
    wsl_environment: Mapping[str, str] = field(default_factory=dict)  # with the node of WSL
    profiling: bool = False  # whether the setting amd_profiling opens what its tools need
    first_evidence: str | None = None  # what its probe asks first: its failure leaves all unknown
    nodes_suffice: bool = True  # whether containers compute with the device nodes alone
    driver_files: DriverFiles | None = None  # what they need beside them
    capabilities: Mapping[str, str] = field(
        default_factory=dict
    )  # variables with each way but nodes
    cuda: bool = False  # its driver offers a CUDA, and `compute` of its GPUs is a number
    numbered_by: Literal["address", "driver"] = "address"  # how its programs count the GPUs
    lists_all: bool = False  # its readings are of each GPU: one that is not in them is lost
    tools: tuple[str, ...] = ()  # programs that tell of its GPUs
    hidden: tuple[
        str, ...
    ] = ()  # what the kernel tells of them, beside PCI and DRM: not where some are made up
    list_command: str = ""  # lists its GPUs
    holders_command: str | None = None  # lists the programs on its GPUs
    findings: tuple[str, ...] = ()  # what begins the ids of those that are this vendor's alone
    kernel_log: str = ""  # pattern of what the kernel's log says of its GPUs

    @property
    def runtime_variable(self) -> str:
        """By which the vendor's container runtime is told the GPUs."""
        return f"{self.name.upper()}_VISIBLE_DEVICES"

    @property
    def toolkit_label(self) -> str:
        return f"{self.label} Container Toolkit" if self.toolkit is None else self.toolkit.label

    @property
    def cdi_kind(self) -> str:
        return f"{self.name}.com/gpu"

    def named_in(self, spec_kind: str | None) -> bool:
        """Whether a CDI specification of that kind is this vendor's."""
        return (spec_kind or "").startswith(f"{self.name}.com/")


@cache
def of(name: str) -> Descriptor:
    """Of the vendor of that name; raises LookupError where there is none."""
    module = aspect(name, "descriptor")
    if module is None:
        raise LookupError(f"{name} is no vendor of GPUs")
    found: Descriptor = module.DESCRIPTOR
    return found


def all_of_them() -> tuple[Descriptor, ...]:
    """In their order. A test lays further folders beside ours, by the package's `__path__`."""
    return _all(tuple(lazy.package(_ROOM).__path__))


def names() -> tuple[str, ...]:
    return tuple(each.name for each in all_of_them())


def label(name: str) -> str:
    """ "NVIDIA" of "nvidia"."""
    return of(name).label


def find(name: str) -> Descriptor | None:
    """None where there is no vendor of that name: "mixed", or what somebody wrote."""
    return of(name) if aspect(name, "descriptor") is not None else None


def has_cuda(name: str) -> bool:
    """Whether that is a vendor whose driver offers a CUDA."""
    found = find(name)
    return found is not None and found.cuda


def variables() -> frozenset[str]:
    """All that say to a program of some vendor which GPUs are its own."""
    return frozenset(name for each in all_of_them() for name in each.variables.names)


def uuid_variables() -> tuple[str, ...]:
    """Those in which a task finds the UUIDs of its GPUs, of all vendors."""
    return tuple(each.variables.uuids for each in all_of_them() if each.variables.uuids)


def with_runtime() -> tuple[Descriptor, ...]:
    """Those whose GPUs an engine hands over by name: by a runtime, or by a device request."""
    return tuple(each for each in all_of_them() if each.runtimes)


def with_toolkit() -> tuple[Descriptor, ...]:
    return tuple(each for each in all_of_them() if each.toolkit is not None)


def named_by(cdi_names: Iterable[str]) -> frozenset[str]:
    """The vendors of qualified names: "nvidia.com/gpu=0"."""
    return frozenset(name.partition(".com/")[0] for name in cdi_names)


def aspect(name: str, which: str) -> ModuleType | None:
    """A module of the vendor's folder; None where it has none of that name."""
    if not name.isidentifier():
        return None
    room = f"{_ROOM}.{name}"
    try:
        return lazy.module(room, which)
    except ModuleNotFoundError as error:
        if error.name not in (room, f"{room}.{which}"):
            raise
        return None


@cache
def _all(places: tuple[str, ...]) -> tuple[Descriptor, ...]:
    found = {
        name
        for place in places
        for name in os.listdir(place)
        if os.path.exists(f"{place}/{name}/descriptor.py")
    }
    return tuple(sorted(map(of, found), key=lambda each: each.order))
