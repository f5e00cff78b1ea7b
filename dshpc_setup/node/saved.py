"""What outlives a start: backups, and the queue that slurmctld has saved."""

from __future__ import annotations

import os

from dshpc_setup.node.arguments import no_arguments, own_paths, wrong_usage


def backup(rest: list[str]) -> int:
    from dshpc_setup import settings
    from dshpc_setup.container import backup
    from dshpc_setup.machine.local import LocalMachine

    no_arguments(rest)
    return backup.write(LocalMachine(), own_paths(), settings.of_container(os.environ))


def restore(rest: list[str]) -> int:
    from dshpc_setup import settings
    from dshpc_setup.container import restore
    from dshpc_setup.machine.local import LocalMachine

    match rest:
        case ["check"]:
            return restore.check(LocalMachine(), own_paths(), settings.of_container(os.environ))
        case ["accept"]:
            return restore.accept(own_paths())
        case ["drop"]:
            return restore.drop(own_paths())
        case _:
            raise wrong_usage("dshpc-node restore takes check, accept or drop.")


def saved_state(rest: list[str]) -> int:
    from dshpc_setup.container import saved_state, state_trial
    from dshpc_setup.container.run import slurm_user
    from dshpc_setup.files.storage import read_text
    from dshpc_setup.machine.local import LocalMachine

    paths = own_paths()
    text = read_text(f"{paths.etc_slurm}/slurm.conf") or ""
    refuses = state_trial.in_force(LocalMachine(), paths)
    match rest:
        case ["check"]:
            saved_state.check_whole(paths, text, refuses)
        case ["restore" | "give-up" as choice]:
            print(saved_state.repair(paths, choice, text, slurm_user(), refuses))
        case _:
            raise wrong_usage("dshpc-node saved-state takes check, restore or give-up.")
    return 0
