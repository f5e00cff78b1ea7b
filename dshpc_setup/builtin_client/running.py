"""`docker run` as the passthrough test calls it: a container for one program, thrown away after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dshpc_setup.builtin_client import containers
from dshpc_setup.builtin_client.failing import usage
from dshpc_setup.builtin_client.plan import Planned, device_of, mount_of
from dshpc_setup.builtin_client.store import Store, new_id
from dshpc_setup.builtin_client.words import Options

if TYPE_CHECKING:
    from dshpc_setup.builtin_client.words import Takes
from dshpc_setup.machine import Machine

_KNOWN: dict[str, Takes] = {
    "--rm": "nothing",
    "--pull": "value",
    "--name": "value",
    "--label": "value",
    "--stop-timeout": "value",
    "--network": "value",
    "--cap-drop": "value",
    "--security-opt": "value",
    "--user": "value",
    "--device": "value",
    "--volume": "value",
    "-v": "value",
    "--env": "value",
    "-e": "value",
    "--entrypoint": "value",
}


def run(machine: Machine, store: Store, argv: list[str]) -> int:
    """The exit code of the program; ClientError and DshpcError."""
    options = Options(argv, _KNOWN)
    if not options.words:
        raise usage('"docker run" requires at least 1 argument.')
    image, *words = options.words
    entrypoint = options.value("--entrypoint")
    try:
        planned = Planned(
            options.value("--name") or f"run-{new_id()[:8]}",
            image,
            store.folder,
            tuple(words),
            entrypoint=(entrypoint,) if entrypoint else (),
            environment=dict(each.partition("=")[::2] for each in options.values("--env", "-e")),
            labels=dict(each.partition("=")[::2] for each in options.values("--label")),
            mounts=tuple(mount_of(each) for each in options.values("--volume", "-v")),
            devices=tuple(device_of(each) for each in options.values("--device")),
            capabilities=() if "ALL" in options.values("--cap-drop") else Planned.capabilities,
        )
    except ValueError as error:
        raise usage(f"invalid argument: {error}") from None
    user = options.value("--user") or "root"
    return containers.run_to_end(machine, store, planned, user, remove_after=options.has("--rm"))
