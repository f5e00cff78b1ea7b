"""Nodes on other machines: what they are given, and what they offer."""

from __future__ import annotations

from dshpc_setup.node.arguments import no_arguments, own_paths, wrong_usage


def forget_node(rest: list[str]) -> int:
    from dshpc_setup.container import nodes
    from dshpc_setup.machine.local import LocalMachine

    if len(rest) != 1:
        raise wrong_usage("dshpc-node forget-node takes NODE.")
    nodes.forget(own_paths(), *rest)
    nodes.wait_written(LocalMachine(), own_paths(), *rest)
    return 0


def join_about(rest: list[str]) -> int:
    import json

    from dshpc_setup import codec
    from dshpc_setup.container import joining
    from dshpc_setup.container.run import slurm_user
    from dshpc_setup.machine.local import LocalMachine

    no_arguments(rest)
    found = joining.about(LocalMachine(), slurm_user()[0])
    print(json.dumps(codec.to_json(found, joining.ABOUT_SCHEMA)))
    return 0


def give_key(rest: list[str]) -> int:
    import json

    from dshpc_setup import codec
    from dshpc_setup.container import joining

    no_arguments(rest)
    print(json.dumps(codec.to_json(joining.give(own_paths()), joining.KEY_SCHEMA)))
    return 0


def take_key(rest: list[str]) -> int:
    import os

    from dshpc_setup import settings
    from dshpc_setup.container import far, joining
    from dshpc_setup.container.run import slurm_user
    from dshpc_setup.machine.local import LocalMachine

    no_arguments(rest)
    changed = joining.take(own_paths(), slurm_user(), joining.read_stdin())
    moved = far.lead_to_controller(own_paths(), settings.of_container(os.environ))
    in_force = not (changed or moved) or joining.take_up(LocalMachine(), own_paths())
    print("ok" if in_force else "changed")
    return 0


def keep_users(rest: list[str]) -> int:
    import sys

    from dshpc_setup.container import other_users

    if len(rest) != 1:
        raise wrong_usage(
            "dshpc-node keep-users takes NODE, and lines of a passwd file from stdin."
        )
    other_users.keep(own_paths(), rest[0], sys.stdin.read(other_users.MOST_BYTES))
    return 0


def listen_anew(rest: list[str]) -> int:
    import os

    from dshpc_setup import settings
    from dshpc_setup.container import far
    from dshpc_setup.machine.local import LocalMachine

    no_arguments(rest)
    far.listen_anew(LocalMachine(), own_paths(), settings.of_container(os.environ))
    return 0


def collect_offers(rest: list[str]) -> int:
    from dshpc_setup.container import far
    from dshpc_setup.machine.local import LocalMachine

    no_arguments(rest)
    for name in far.collect(LocalMachine(), own_paths()):
        print(name)
    return 0


def carry(rest: list[str]) -> int:
    from dshpc_setup.container import carriers
    from dshpc_setup.machine.local import LocalMachine

    no_arguments(rest)
    carriers.tend(LocalMachine(), own_paths())
    return 0


def carried(rest: list[str]) -> int:
    """For Slurm's prolog and epilog, which tell the numbers of the job and of its user."""
    from dshpc_setup.container import carried

    match rest:
        case ["begin", job, uid, gid, folder] if uid.isdecimal() and gid.isdecimal():
            carried.begin(own_paths(), job, int(uid), int(gid), folder)
        case ["end", job, uid, folder] if uid.isdecimal():
            carried.end(own_paths(), job, int(uid), folder)
        case _:
            raise wrong_usage(
                "dshpc-node carried takes begin JOB UID GID FOLDER, or end JOB UID FOLDER."
            )
    return 0
