"""Users of the host made known here, with their homes, workspaces and sessions."""

from __future__ import annotations

import os
import re
import sys

from dshpc_setup.node.arguments import no_arguments, own_paths, wrong_usage


def add_user(rest: list[str]) -> int:
    from dshpc_setup.container import accounts, nodes, other_users, users

    if len(rest) not in (3, 4):
        raise wrong_usage("dshpc-node add-user takes UID GID NAME and maybe HOME.")
    user = accounts.checked(*rest)
    account = users.add(own_paths(), user)
    nodes.name_owner(own_paths(), user.uid)
    if os.path.exists(own_paths().database_conf):  # as long as accounting is on
        associate([])  # where it is away, the service `associations` does it later
    for other in other_users.on_other_machines(own_paths(), (user,)):
        print(
            f"{other_users.words(other)} Until then keep off it: --exclude={other.node}",
            file=sys.stderr,
        )
    if user.home and account.home != user.home:
        from dshpc_setup.container import own_homes

        why = own_homes.why_not(own_paths(), user, own_homes.roots(os.environ))
        if why is not None:
            print(own_homes.words(why, user), file=sys.stderr)
    return 0


def homes(rest: list[str]) -> int:
    """A JSON object a line."""
    import json
    from dataclasses import asdict

    from dshpc_setup.container import users
    from dshpc_setup.machine.local import LocalMachine

    if rest == ["kept"]:
        for each in users.kept(own_paths()):
            print(json.dumps(asdict(each)))
        return 0
    if rest[:1] != ["copy"] or not all(re.fullmatch(r"[0-9]+=/.*", word) for word in rest[1:]):
        raise wrong_usage("dshpc-node homes takes kept, or copy UID=HOME...")
    told = (word.partition("=") for word in rest[1:])
    for done in users.copy_kept(
        LocalMachine(), own_paths(), {int(uid): home for uid, _, home in told}
    ):
        print(json.dumps(asdict(done)), flush=True)
    return 0


def associate(rest: list[str]) -> int:
    from dshpc_setup import settings
    from dshpc_setup.container import accounting
    from dshpc_setup.errors import Exit
    from dshpc_setup.machine.local import LocalMachine

    no_arguments(rest)
    done = accounting.associate(
        LocalMachine(), own_paths(), settings.of_container(os.environ).prefix
    )
    return int(Exit.OK if done else Exit.INCOMPLETE)


def add_ground(rest: list[str]) -> int:
    from dshpc_setup.container import users

    if len(rest) != 3:
        raise wrong_usage("dshpc-node add-ground takes WORK UID GID.")
    users.add_ground(own_paths(), *rest)
    return 0


def ssh_certify(rest: list[str]) -> int:
    import json

    from dshpc_setup.container import ssh_ca
    from dshpc_setup.machine.local import LocalMachine
    from dshpc_setup.slurm.paths import Paths

    match rest:
        case [uid, gid, name]:
            caller = (uid, gid, name)
        case _:
            raise wrong_usage("dshpc-node ssh-certify takes UID GID NAME.")
    said = ssh_ca.certify(LocalMachine(), Paths(), caller, sys.stdin.read(4096))
    print(json.dumps(said))
    return 0
