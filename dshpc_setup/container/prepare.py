"""The first steps of a start: what must stand before any Slurm program is started."""

from __future__ import annotations

import os
import socket

from dshpc_setup.container import (
    accounting,
    folders,
    keys,
    rest,
    restore,
    state_volume,
    unclean,
    users,
)
from dshpc_setup.container.run import Run
from dshpc_setup.errors import DshpcError
from dshpc_setup.files.storage import replace_text
from dshpc_setup.machine import Machine
from dshpc_setup.slurm import completion_log
from dshpc_setup.slurm.paths import ACCOUNTS, HOMES, SHARED_NETWORK


def prepare(run: Run) -> None:
    """Host name, folders, users, key; DshpcError where the container cannot do without."""
    status, paths = run.status, run.paths
    with status.step("host name"):
        _name_hosts(run)
    if run.is_worker:
        _prepare_worker(run)
        return
    with status.step("folders"):
        restored = restore.take(paths)
        if restored is not None:
            status.note(restored)
        folders.make_folders(paths, run.slurm)
        if run.settings.place.role == "controller":
            os.makedirs(paths.at(ACCOUNTS), exist_ok=True)
        state_volume.ensure_room(paths)
        completion_log.trim(paths.at(completion_log.LOG), run.slurm)
        unclean.trim(paths)
        note = folders.adopt_state(paths, run.slurm)
        if note:
            status.note(note)
        if os.path.ismount(paths.state) and not os.path.ismount(paths.homes):
            status.note(
                "What users leave in their homes is lost with this container: no volume is mounted at "
                f"{HOMES}, as the rendered docker-compose.yml does."
            )
    with status.step("users"):
        count = users.restore(paths)
        if count:
            status.say(f"{count} users of the host are known.")
    with status.step("key"):
        note = keys.ensure_key(paths, run.slurm)
        if note:
            status.say(note)
        if run.settings.rest != "off":
            rest.ensure_key(paths, run.slurm)
    accounting.prepare(run)


def _name_hosts(run: Run) -> None:
    """The names by which Slurm's daemons find each other lead somewhere; DshpcError without a network."""
    if run.machine.listdir("/sys/class/net") == ("lo",):
        raise _no_network()
    if run.settings.listens:
        from dshpc_setup.container import far

        far.name_hosts(run)
    names = [socket.gethostname(), run.settings.node]
    if run.is_worker and run.machine.env.get(SHARED_NETWORK):
        names.append(run.settings.prefix)  # all of them are at the loopback
    for name in dict.fromkeys(names):
        let_resolve(run, name)


def _prepare_worker(run: Run) -> None:
    """Users and key are the controller's; of one on another machine, what it has been given of them."""
    from dshpc_setup.container import worker

    is_joined = run.settings.place.is_joined
    with run.status.step("folders"):
        folders.make_folders(run.paths, run.slurm, with_key=is_joined)
        os.makedirs(run.paths.own, exist_ok=True)
    if is_joined:
        worker.await_key(run)
        users.restore(run.paths)
        if (owner := run.settings.place.owner) is not None:
            replace_text(f"{run.paths.run}/owner", f"{owner}\n", sync=False)
        if work := run.settings.place.carried_work:
            from dshpc_setup.container import carried

            carried.prepare(run.paths, work, run.settings.node)
    else:
        worker.await_cluster(run)
    with run.status.step("key"):
        keys.refuse_unusable(run.paths)
        state_volume.ensure_room(run.paths)


def let_resolve(run: Run, name: str) -> None:
    """Make the name resolve, with a note where that took an entry of ours."""
    own = socket.gethostname()
    note = folders.host_name_note(run.paths, name, own, lambda n: _resolves(run.machine, n))
    if note:
        run.status.note(note)


def _resolves(machine: Machine, name: str) -> bool:
    return machine.run(["getent", "hosts", name], deadline_s=1.0).ok


def _no_network() -> DshpcError:
    return DshpcError(
        "The container has no network.",
        "Slurm's daemons speak to each other by TCP and do not start with the loopback device alone.",
        ("Start it with a network, such as Docker's own: docker run --network bridge ...",),
    )
