"""Containers of the built-in engine: made, started, stopped, entered, removed, as Docker's client says it."""

from __future__ import annotations

import contextlib
import datetime
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from dshpc_setup import engine_client
from dshpc_setup.builtin import enter, launch, log, processes, rights, rootfs, trees
from dshpc_setup.builtin.ids import Ids
from dshpc_setup.builtin.wanted import ALIVE, Mount, Wanted
from dshpc_setup.builtin_client import executing, volumes
from dshpc_setup.builtin_client.failing import ClientError, none, refused
from dshpc_setup.builtin_client.plan import Planned
from dshpc_setup.builtin_client.store import Container, Image, Store, new_id
from dshpc_setup.files import atomic
from dshpc_setup.machine import Machine

_LOOK_S = 0.2
_KILLED_S = 5.0


def now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat().replace("+00:00", "Z")


def need(store: Store, name: str) -> Container:
    found: Container | None = store.find("container", name)
    if found is None:
        raise none("container", name)
    return found


def need_image(store: Store, ref: str) -> Image:
    found: Image | None = store.find("image", ref)
    if found is None:
        raise none("image", ref)
    return found


def ids_of(machine: Machine) -> Ids:
    """Raises DshpcError where this user may have no container."""
    return rights.need(rights.find(machine), rights.current_user())


def make(machine: Machine, store: Store, planned: Planned) -> Container:
    """The record of a new container, with its volumes; nothing runs yet."""
    image = need_image(store, planned.image)
    if store.find("container", planned.name) is not None:
        raise refused(f'Conflict. The container name "/{planned.name}" is already in use.')
    ids = ids_of(machine)
    root = rootfs.known(machine, image.digest, ids)
    if root is None:
        raise refused(f"the root filesystem of {image.ref} is not in the cache any more")
    mounts, named = [], {}
    for each in planned.mounts:
        if each.volume is None:
            mounts.append(Mount(each.source, each.target, each.read_only))
            continue
        made = volumes.ensure(machine, store, ids, each.source, planned.folder, each.volume)
        mounts.append(Mount(made.path, each.target, each.read_only))
        named[each.target] = made.name
    run = planned.folder / "containers" / planned.name
    atomic.make_folder(run, mode=0o700)
    wanted = Wanted(
        planned.name,
        root,
        str(run),
        (*(planned.entrypoint or image.entrypoint), *planned.argv),
        planned.host_name or planned.name,
        {**image.environment, **planned.environment},
        tuple(mounts),
        devices=planned.devices,
        capabilities=planned.capabilities,
        tmpfs=("/run",),  # /tmp is gone with the container, and takes no memory
        shm_mib=planned.shm_mib,
        log_bytes=planned.log_bytes,
        restart=planned.restart,
    )
    container = Container(
        new_id(),
        planned.name,
        planned.image,
        now(),
        wanted,
        {**image.labels, **planned.labels, engine_client.IDS_LABEL: ids.way},
        named,
        planned.grace_s,
    )
    store.put("container", container.name, container)
    return container


def start(machine: Machine, store: Store, container: Container) -> None:
    """Its program has begun then; DshpcError where it does not come up."""
    _end_orphan(container)
    outcome, status = launch.start(machine, container.wanted)
    if outcome == "started":
        supervisor = status.record.supervisor if status.record is not None else None
        store.put(
            "container", container.name, replace(container, started=now(), supervisor=supervisor)
        )


def stop(container: Container, grace_s: float | None = None) -> None:
    launch.stop(container.run, container.grace_s if grace_s is None else grace_s)
    _end_orphan(container)


def is_orphan(container: Container) -> bool:
    """Whether it runs and its folder was moved or removed: what is in it can no longer be asked."""
    alive = container.supervisor is not None and processes.runs(container.supervisor)
    return alive and launch.find(container.run).state == "gone"


def _end_orphan(container: Container) -> None:
    if container.supervisor is None or not is_orphan(container):
        return
    processes.send(container.supervisor, signal.SIGTERM)
    if not processes.wait_gone(container.supervisor, container.grace_s):
        processes.send(container.supervisor, signal.SIGKILL)  # all that is in it ends with it
        processes.wait_gone(container.supervisor, _KILLED_S)


def remove(machine: Machine, store: Store, container: Container, *, force: bool = False) -> None:
    if launch.find(container.run).state in ALIVE:
        if not force:
            raise refused(f"You cannot remove a running container {container.id}.")
        launch.stop(container.run, 0.0)
    _end_orphan(container)
    launch.remove(machine, container.run, container.wanted.rootfs.ids)
    store.forget("container", container.name)
    remove_empty(container.run.parent)


def execute(container: Container, what: executing.Asked) -> int:
    """Run in it with our streams: its exit code."""
    try:
        return executing.run(container.run, what)
    except enter.RefusedError as error:
        if launch.find(container.run).state != "running":
            raise refused(f"Container {container.id} is not running") from None
        if error.fault == "stopped":
            brief = f"Container {container.id} was started by another version of dsHPC"
            raise refused(f"{brief}: dshpc down --stop-jobs, then dshpc up") from None
        raise enter.in_words(error, what.command.user) from None


def run_to_end(
    machine: Machine, store: Store, planned: Planned, user: str | None, *, remove_after: bool
) -> int:
    """`docker run`: its log goes to our stdout and stderr together; the exit code is its own."""
    with store.changing():
        container = make(machine, store, planned)
    ended = signal.getsignal(signal.SIGTERM)
    try:
        signal.signal(signal.SIGTERM, _interrupted)
        if user is None:
            return _to_end(machine, store, container)
        return _as_user(machine, store, container, user)
    finally:
        signal.signal(signal.SIGTERM, ended)
        with contextlib.suppress(ClientError), store.changing():
            launch.stop(container.run, 0.0)
            if remove_after:
                remove(machine, store, container, force=True)


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def _to_end(machine: Machine, store: Store, container: Container) -> int:
    start(machine, store, container)
    status = launch.find(container.run)
    while status.state in ALIVE:
        time.sleep(_LOOK_S)
        status = launch.find(container.run)
    sys.stdout.buffer.write(log.read(container.run)[0])
    sys.stdout.flush()
    return 137 if status.code is None else status.code


def _as_user(machine: Machine, store: Store, container: Container, user: str) -> int:
    """Another user than root: entered beside a first process that only waits. Where root is the only user
    there is, all are."""
    alone = container.wanted.rootfs.ids.way == "single"
    what = enter.Command(container.wanted.argv, "root" if alone else user)
    waits = replace(
        container.wanted, argv=("/bin/sh", "-c", "trap 'exit 0' TERM; sleep 3600 & wait")
    )
    start(machine, store, replace(container, wanted=waits))
    try:
        done = enter.capture(container.run, what)
    except enter.RefusedError as error:
        raise enter.in_words(error, what.user) from None
    for stream, text in ((sys.stdout, done.stdout), (sys.stderr, done.stderr)):
        stream.buffer.write(text)
        stream.flush()
    return done.code


def follow(container: Container, to: BinaryIO, at: int) -> None:
    """What it writes from that byte of its log on, until it ends."""
    file = container.run / log.NAME
    while True:
        runs = launch.find(container.run).state in ALIVE
        size = file.stat().st_size if file.exists() else 0
        if size < at:
            at = 0  # another file has taken its place
        if size > at:
            with open(file, "rb") as source:
                source.seek(at)
                to.write(source.read(size - at))
                to.flush()
            at = size
        elif not runs:
            return
        time.sleep(_LOOK_S)


def remove_volume(machine: Machine, store: Store, name: str) -> None:
    volume = store.find("volume", name)
    if volume is None:
        raise none("volume", name)
    users = [each for each in store.all("container") if name in each.volumes.values()]
    if users:
        raise refused(f"remove {name}: volume is in use - [{users[0].id}]")
    trees.remove(machine, volume.ids, Path(volume.path))
    store.forget("volume", name)
    remove_empty(Path(volume.path).parent)


def remove_empty(folder: Path) -> None:
    """The folder of containers or of volumes, and the one of both, where nothing is left in it."""
    with contextlib.suppress(OSError):
        folder.rmdir()
        folder.parent.rmdir()
