"""What an image without an engine's builder is laid on: Debian's packages, then methods' of Python's.

Each is a root filesystem of its own in the cache, called by all that it was made from: another version of
dsHPC is laid on the same ones. Files below /usr are shared with the one below by a second name; what is run
in a layer replaces and removes them, and does not write to them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from dshpc_setup import codec, debian
from dshpc_setup.builtin import image_file, rootfs, trees
from dshpc_setup.builtin.ids import Ids, become_root
from dshpc_setup.builtin.rootfs import Rootfs
from dshpc_setup.builtin_client import containers
from dshpc_setup.builtin_client.store import Store
from dshpc_setup.debian import base, inside
from dshpc_setup.environment.layer import ARCHIVE
from dshpc_setup.environment.model import Lock
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import HostFacts
from dshpc_setup.image.context import (
    CUDA_PACKAGES,
    LAYER,
    SMALL,
    gpu_packages,
)
from dshpc_setup.image.mirror import RELEASE, mirror_for
from dshpc_setup.machine import Machine, Say
from dshpc_setup.settings import Settings
from dshpc_setup.terminal.reporter import Reporter

ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
}
BUILD = "/run/dshpc-build"
ENTRYPOINT = "/usr/local/lib/dshpc/init"
_DEBIAN = "http://deb.debian.org"
_LAYER = "/run/dshpc-layer"
_SHARED = "usr"
_MADE_S = 1800.0
_SET_UP_S = 600.0
_COPIED_S = 300.0
# Of container/install.sh: what the image has whatever the GPUs are
_PACKAGES = (
    *("slurmctld", "slurmd", "slurm-client", "slurmrestd", "slurm-wlm-jwt-plugin"),
    *("slurmdbd", "mariadb-server-core"),
    *("s6", "python3", "procps", "openssh-server", "rsync", "tcc"),
    "systemd-standalone-sysusers",
)


@dataclass(frozen=True)
class Making:
    """`context`: the build folder. `renewed`: when its packages were last asked to be those of the day."""

    machine: Machine
    ids: Ids
    archive: base.Archive
    gpu_type: str
    cuda_runtime: str
    lock: Lock | None
    context: Path
    renewed: str
    reporter: Reporter

    @property
    def has_python(self) -> bool:
        return (self.context / LAYER / ARCHIVE).exists()

    def packages_digest(self) -> str:
        """Of what Debian's packages are made from, the code that does it included."""
        code = (*sorted(Path(debian.__path__[0]).glob("*.py")), self.context / "install.sh")
        what = [
            *(hashlib.sha256(path.read_bytes()).hexdigest() for path in code),
            asdict(self.archive),
            self.extra,
            gpu_packages()[self.gpu_type],
            self.gpu_type,
            sorted(self.pinned.items()),
            (self.context / SMALL).read_text(),
            self.renewed,
        ]
        return _digest(what)

    def python_digest(self) -> str:
        """The hashes of its packages stand for them."""
        wheels = (self.context / LAYER / "requirements.txt").read_text()
        return _digest([self.packages_digest(), wheels])

    @property
    def extra(self) -> tuple[str, ...]:
        cuda = CUDA_PACKAGES if self.cuda_runtime == "yes" else ()
        return (*_PACKAGES, *cuda)

    @property
    def pinned(self) -> dict[str, str]:
        return {} if self.lock is None else {each.name: each.version for each in self.lock.debian}


def _digest(what: object) -> str:
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()


@contextlib.contextmanager
def below(making: Making) -> Iterator[Rootfs]:
    """What the image is laid on, made where it is not there; DshpcError."""
    machine, ids = making.machine, making.ids

    def python(folder: Path) -> None:
        with rootfs.layer(machine, making.packages_digest(), ids, packages) as under:
            lay_on(making, under, folder, _PYTHON)

    def packages(folder: Path) -> None:
        _debian(making, folder)

    digest, fill = making.packages_digest(), packages
    if making.has_python:
        digest, fill = making.python_digest(), python
    with rootfs.layer(machine, digest, ids, fill) as found:
        yield found


def lay_on(making: Making, under: Rootfs, folder: Path, script: str) -> None:
    """A root filesystem like the one below it in that folder, and what the script makes of it; DshpcError."""

    def question(say: Say) -> None:
        become_root(making.machine, making.ids)
        trees.copy_here(Path(under.folder), folder, _SHARED)
        say("done")

    with _removed_where_it_fails(making, folder):
        ended = making.machine.apart({"lay": question}, deadline_s=_COPIED_S)["lay"]
        if "done" not in ended.items:
            brief = f"The root filesystem {under.folder} could not be copied."
            raise DshpcError(brief, ended.detail or "", ("See what is full: df -h ~",))
        _run(making, folder, script)


def forget(machine: Machine) -> None:
    """All layers go, where there is no image of the built-in engine's any more. DshpcError."""
    if rootfs.layers_folder(machine.env).is_dir() and not Store(machine.env).all("image"):
        rootfs.prune_layers(machine, containers.ids_of(machine), unused_s=0.0)


def _debian(making: Making, folder: Path) -> None:
    archive = making.archive
    base.make_base(
        making.machine,
        archive.mirror,
        archive.suite,
        making.ids,
        folder,
        extra=making.extra,
        optional=gpu_packages()[making.gpu_type],
        components=archive.components,
        security=archive.security,
        pinned=making.pinned,
        options=(making.context / SMALL).read_text(),
        progress=lambda text: making.reporter.progress(f"image: {text}"),
        deadline_s=_MADE_S,
    )
    with _removed_where_it_fails(making, folder):
        _run(making, folder, f"sh {BUILD}/install.sh finish\n")


_PYTHON = f"""set -eu
mkdir -p {_LAYER}
tar -xf {BUILD}/{LAYER}/{ARCHIVE} -C {_LAYER}
sh {BUILD}/install.sh python
cp -a --remove-destination {_LAYER}/. /
rm -rf {_LAYER}
"""


@contextlib.contextmanager
def _removed_where_it_fails(making: Making, folder: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        trees.remove(making.machine, making.ids, folder)
        raise


def _run(making: Making, folder: Path, text: str) -> None:
    environment = {
        **ENVIRONMENT,
        "GPU_TYPE": making.gpu_type,
        "CUDA_RUNTIME": making.cuda_runtime,
        "HOME": "/root",
    }
    script = inside.Script(text, environment, {str(making.context): BUILD})
    log = folder.with_name(f".{folder.name}.log")
    try:
        code = inside.run(making.machine, folder, making.ids, script, log, _SET_UP_S)
        if code != 0:
            raise DshpcError("Setting the image up failed.", inside.tail(log), ("Run this again.",))
    finally:
        log.unlink(missing_ok=True)


def archive(machine: Machine, facts: HostFacts, settings: Settings) -> base.Archive:
    """Where its packages come from: the mirror of the settings, this machine's, or Debian's own."""
    mirror = mirror_for(machine, facts.platform.os_id, settings.apt_mirror)
    security = mirror.security if mirror is not None else None
    return base.Archive(
        mirror.main if mirror is not None else f"{_DEBIAN}/debian",
        RELEASE,
        ("main", "contrib", "non-free"),
        security or f"{_DEBIAN}/debian-security",
    )


def last(described: image_file.Described) -> str:
    """Our own part of the image, which is laid on all others: what the Dockerfile's last stages do. Pure."""
    lines = [
        "set -eu",
        f"sh {BUILD}/install.sh plugins",
        f"cp -r --preserve=mode,links --remove-destination {BUILD}/rootfs/. /",
        f"sh {BUILD}/install.sh package",
        f"cat >/{image_file.FILE} <<'END'",
        json.dumps(codec.to_json(described, image_file.SCHEMA), indent=1),
        "END",
    ]
    return "\n".join(lines) + "\n"
