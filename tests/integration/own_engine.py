"""What tests/integration/test_builtin.py does as another user: own_engine.py ACTION PLACE [ARGUMENT...]

Run from a copy of the package that everybody can read, by an interpreter without packages. Prints JSON.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from dshpc_setup.builtin import enter, launch, ports, rights, rootfs, trees
from dshpc_setup.builtin.wanted import Device, Mount, Wanted
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine.local import LocalMachine

MACHINE = LocalMachine()
INIT = "/usr/local/lib/dshpc/init"
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "DSHPC_SIMULATE": "h100:2",
    "DSHPC_PREFIX": "own",
    "DSHPC_NODE": "own",
}
NODES = ("nvidia0", "nvidia1", "nvidiactl")
VOLUMES = ("state", "key", "home")


def found() -> rights.Rights:
    return rights.find(MACHINE)


def wanted(place: Path, argv: list[str]) -> Wanted:
    """A cluster as the image makes it, or another program in its place; ports of its own."""
    ids = rights.need(found(), rights.current_user())
    root = rootfs.ensure(MACHINE, place.parent / "root.tar.gz", ids)
    for name in VOLUMES:
        (place / name).mkdir(parents=True, exist_ok=True)
    kept = ports.keep(ports.registry(MACHINE.env), str(place), ("SlurmctldPort", "SlurmdPort"))
    lines = "\n".join(f"{name}={port}" for name, port in kept.items())
    return Wanted(
        place.name,
        root,
        str(place / "run"),
        tuple(argv) or (INIT,),
        "own",
        {**ENVIRONMENT, "DSHPC_SLURM_CONF_EXTRA": lines},
        tuple(Mount(str(place / name), f"/var/lib/dshpc/{name}") for name in VOLUMES),
        devices=tuple(Device("/dev/null", f"/dev/{name}") for name in NODES),
    )


def captured(run: Path, command: enter.Command, *, threaded: bool) -> enter.Captured:
    try:
        if not threaded:
            return enter.capture(run, command)
        with ThreadPoolExecutor() as pool:
            return pool.submit(enter.capture, run, command).result()
    except enter.RefusedError as error:
        raise enter.in_words(error, command.user) from None


def noted(run: Path, what: str) -> Any:
    """What its supervisor has written down."""
    record = launch.find(run).record
    if record is None:
        return None
    if what == "restarts":
        return record.restarts
    return [record.supervisor.pid, record.init.pid if record.init else 0]


def _refused(*_: object, **__: object) -> None:
    """As a file system answers that keeps no owners: NFS, whose server knows none of a namespace's ids."""
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


def act(action: str, place: Path, rest: list[str]) -> Any:
    run = place / "run"
    match action:
        case "rights":
            seen = found()
            return [seen.ids.way if seen.ids else None, seen.lack]
        case "start" | "keep":
            told = replace(wanted(place, rest), restart=action == "keep")
            outcome, status = launch.start(MACHINE, told)
            storage = status.record.storage if status.record else None
            return [outcome, status.state, storage]
        case "unpack":
            return wanted(place, rest).rootfs.folder
        case "find":
            status = launch.find(run)
            return [status.state, status.code]
        case "stop":
            status = launch.stop(run, float(rest[0]) if rest else 15.0)
            return [status.state, status.code]
        case "pids" | "restarts":
            return noted(run, action)
        case "enter" | "enter-in-a-thread":
            user, deadline, *argv = rest
            command = enter.Command(tuple(argv), user, deadline_s=float(deadline))
            done = captured(run, command, threaded=action != "enter")
            return [done.code, done.stdout.decode(), done.stderr.decode(), done.timed_out]
        case "run" | "terminal":
            how = enter.run if action == "run" else enter.run_terminal
            sys.exit(how(run, enter.Command(tuple(rest), deadline_s=60)))
        case "taken":
            record = launch.find(run).record
            kept = ports.keep(ports.registry(MACHINE.env), str(place), ("SlurmctldPort",))
            seen_ports = ports.taken(kept, record.init if record else None)
            return [list(kept.values()), [[each.port, each.uid] for each in seen_ports]]
        case "remove":
            ids = rights.need(found(), rights.current_user())
            launch.remove(MACHINE, run, ids)
            for name in VOLUMES:
                trees.remove(MACHINE, ids, place / name)
            digest = rootfs.digest_of(place.parent / "root.tar.gz")
            rootfs.remove(MACHINE, digest, ids)
            return os.listdir(rootfs.cache_folder(MACHINE.env))
    raise AssertionError(action)


def main() -> None:
    action, place, *rest = sys.argv[1:]
    if action == "unpack-without-owners":
        action, os.chown, os.fchown = "unpack", _refused, _refused
    try:
        answer = act(action, Path(place), rest)
    except DshpcError as error:
        sys.exit(f"{error.brief}\n{error.details}")
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
