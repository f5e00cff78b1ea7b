"""An image made without an engine's builder: Debian's packages, then what our Dockerfile does with them.

The built-in engine has no builder, and Podman's would need a base image, which no registry need have.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dshpc_setup.builtin import image_file
from dshpc_setup.builtin_client import containers
from dshpc_setup.builtin_client.store import Store
from dshpc_setup.engine.images import Image, debian_arch, inspect
from dshpc_setup.environment.layer import LABEL as LAYER_LABEL
from dshpc_setup.environment.layer import current_lock
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import HostFacts
from dshpc_setup.image.base import BaseImage
from dshpc_setup.image.build import LABEL, ImageResult
from dshpc_setup.image.context import LAYER
from dshpc_setup.image.mirror import RELEASE
from dshpc_setup.image.recipe import make_recipe
from dshpc_setup.machine import Machine
from dshpc_setup.project.folder import Project
from dshpc_setup.settings import Settings
from dshpc_setup.terminal.reporter import Reporter

if TYPE_CHECKING:
    from dshpc_setup.builtin.rootfs import Rootfs

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
    # What follows takes the modules that make images, which is seldom
    from dshpc_setup.builtin import rootfs
    from dshpc_setup.builtin_client import images
    from dshpc_setup.debian import sources
    from dshpc_setup.image import builtin_layers

    ids = containers.ids_of(machine)
    lock = current_lock(project.folder, debian_arch(machine.system[2]))
    labels = {"org.dshpc.gpu-type": gpu_type, LABEL: digest}
    if lock is not None:
        labels[LAYER_LABEL] = lock.digest
    described = image_file.Described(
        tag, labels, builtin_layers.ENVIRONMENT, (builtin_layers.ENTRYPOINT,)
    )
    making = builtin_layers.Making(
        machine,
        ids,
        builtin_layers.archive(machine, facts, settings),
        gpu_type,
        settings.cuda_runtime,
        lock,
        context.folder,
        context.renewed,
        reporter,
    )

    def fill(folder: Path) -> None:
        with builtin_layers.below(making) as under:
            reporter.progress("image: installing dsHPC")
            builtin_layers.lay_on(making, under, folder, builtin_layers.last(described))

    if keep is None:
        image = images.make(machine, Store(machine.env), ids, described, digest, fill)
        result = ImageResult(image.id, True, image.size, _ms(machine, started))
    else:
        kept = keep(machine, described, rootfs.make(machine, digest, ids, fill))
        result = ImageResult(kept.id, True, kept.size, _ms(machine, started))
    with contextlib.suppress(DshpcError):  # the image is made, whatever lies there
        rootfs.prune_layers(machine, ids)
    if (freed := sources.prune(machine.env)) > 0:
        reporter.progress(f"Debian: {freed >> 20} MiB that no image needs any more are removed")
    return replace(result, replaced=there.id) if there is not None else result


def _ms(machine: Machine, started: float) -> float:
    return round((machine.clock() - started) * 1000, 1)
