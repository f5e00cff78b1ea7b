"""An image made without an engine's builder: Debian's packages, then what our Dockerfile does with them.

The built-in engine has no builder, and Podman's would need a base image, which no registry need have.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from dshpc_setup import codec
from dshpc_setup.builtin import image_file, rootfs, trees
from dshpc_setup.builtin.ids import Ids
from dshpc_setup.builtin.rootfs import Rootfs
from dshpc_setup.builtin_client import containers, images
from dshpc_setup.builtin_client.store import Store
from dshpc_setup.debian import base, inside, sources
from dshpc_setup.engine.images import Image, debian_arch, inspect
from dshpc_setup.environment.layer import ARCHIVE, current_lock
from dshpc_setup.environment.layer import LABEL as LAYER_LABEL
from dshpc_setup.environment.model import Lock
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import HostFacts
from dshpc_setup.image.base import BaseImage
from dshpc_setup.image.build import LABEL, ImageResult
from dshpc_setup.image.context import CUDA_PACKAGES, LAYER, gpu_packages
from dshpc_setup.image.mirror import RELEASE, mirror_for
from dshpc_setup.image.recipe import make_recipe
from dshpc_setup.machine import Machine
from dshpc_setup.project.folder import Project
from dshpc_setup.settings import Settings
from dshpc_setup.terminal.reporter import Reporter

_DEBIAN = "http://deb.debian.org"
_MADE_S = 1800.0
_SET_UP_S = 600.0
# Of container/install.sh: what the image has whatever the GPUs are
_PACKAGES = (
    *("slurmctld", "slurmd", "slurm-client", "slurmrestd", "slurm-wlm-jwt-plugin"),
    *("s6", "python3", "procps", "tcc"),
)
_ENTRYPOINT = "/usr/local/lib/dshpc/init"
_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
}
_BUILD = "/run/dshpc-build"

Keep = Callable[[Machine, image_file.Described, Rootfs], Image]


def build(
    machine: Machine,
    facts: HostFacts,
    settings: Settings,
    project: Project,
    tag: str,
    gpu_type: str,
    reporter: Reporter,
    *,
    renew: bool = False,
    keep: Keep | None = None,
) -> ImageResult:
    """The image under `tag`, made where its label does not say that it is this one already; DshpcError.

    `keep`: what gives the new root filesystem to the engine; None: to the built-in one.

    Takes no engine, no root, and no program of this machine but newuidmap where there is a range of ids.
    """
    started = machine.clock()
    plain = BaseImage(f"debian:{RELEASE}", "", "local")
    recipe = make_recipe(
        machine,
        facts,
        settings,
        project,
        plain,
        gpu_type,
        dry_run=False,
        renew=renew,
        say=reporter.progress,
    )
    context = recipe.context
    what = json.dumps(["builtin", context.digest, sorted(recipe.args.items())])
    digest = hashlib.sha256(what.encode()).hexdigest()
    there = inspect(machine, tag)
    declares = (context.folder / LAYER).exists()
    came = there is not None and image_file.LOADED in there.labels and not (renew or declares)
    if there is not None and (came or there.labels.get(LABEL) == digest):
        return ImageResult(there.id, False, there.size, _ms(machine, started))
    ids = containers.ids_of(machine)
    lock = current_lock(project.folder, debian_arch(machine.system[2]))
    labels = {"org.dshpc.gpu-type": gpu_type, LABEL: digest}
    if lock is not None:
        labels[LAYER_LABEL] = lock.digest
    described = image_file.Described(tag, labels, _ENVIRONMENT, (_ENTRYPOINT,))

    def fill(folder: Path) -> None:
        _root(
            machine,
            facts,
            settings,
            gpu_type,
            ids,
            folder,
            context.folder,
            described,
            lock,
            reporter,
        )

    if keep is None:
        image = images.make(machine, Store(machine.env), ids, described, digest, fill)
        result = ImageResult(image.id, True, image.size, _ms(machine, started))
    else:
        kept = keep(machine, described, rootfs.make(machine, digest, ids, fill))
        result = ImageResult(kept.id, True, kept.size, _ms(machine, started))
    if (freed := sources.prune(machine.env)) > 0:
        reporter.progress(f"Debian: {freed >> 20} MiB that no image needs any more are removed")
    return replace(result, replaced=there.id) if there is not None else result


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


def _ms(machine: Machine, started: float) -> float:
    return round((machine.clock() - started) * 1000, 1)


def _root(
    machine: Machine,
    facts: HostFacts,
    settings: Settings,
    gpu_type: str,
    ids: Ids,
    folder: Path,
    context: Path,
    described: image_file.Described,
    lock: Lock | None,
    reporter: Reporter,
) -> None:
    """The whole root filesystem in that folder, which is not there yet."""
    from_ = archive(machine, facts, settings)
    base.make_base(
        machine,
        from_.mirror,
        from_.suite,
        ids,
        folder,
        extra=(*_PACKAGES, *(CUDA_PACKAGES if settings.cuda_runtime == "yes" else ())),
        optional=gpu_packages()[gpu_type],
        components=from_.components,
        security=from_.security,
        pinned={} if lock is None else {each.name: each.version for each in lock.debian},
        progress=lambda text: reporter.progress(f"image: {text}"),
        deadline_s=_MADE_S,
    )
    reporter.progress("image: installing dsHPC")
    text = json.dumps(codec.to_json(described, image_file.SCHEMA), indent=1)
    script = inside.Script(
        _script(text, with_python=(context / LAYER / ARCHIVE).exists()),
        {
            **_ENVIRONMENT,
            "GPU_TYPE": gpu_type,
            "CUDA_RUNTIME": settings.cuda_runtime,
            "HOME": "/root",
        },
        {str(context): _BUILD},
    )
    log = folder.with_name(f".{folder.name}.log")
    try:
        code = inside.run(machine, folder, ids, script, log, _SET_UP_S)
        if code != 0:
            raise DshpcError("Setting the image up failed.", inside.tail(log), ("Run this again.",))
    except BaseException:
        trees.remove(machine, ids, folder)
        raise
    finally:
        log.unlink(missing_ok=True)


def _script(described: str, *, with_python: bool) -> str:
    """What the Dockerfile's stages do after the packages. Pure."""
    lines = ["set -eu", f"sh {_BUILD}/install.sh finish"]
    if with_python:
        lines += [
            "mkdir -p /run/dshpc-layer",
            f"tar -xf {_BUILD}/{LAYER}/{ARCHIVE} -C /run/dshpc-layer",
            f"sh {_BUILD}/install.sh python",
            "cp -a /run/dshpc-layer/. / && rm -rf /run/dshpc-layer",
        ]
    lines += [
        f"cp -r --preserve=mode,links {_BUILD}/rootfs/. /",
        f"sh {_BUILD}/install.sh package",
        f"cat >/{image_file.FILE} <<'END'",
        described,
        "END",
    ]
    return "\n".join(lines) + "\n"
