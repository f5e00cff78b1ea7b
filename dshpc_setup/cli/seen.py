"""The machine that the options of a looking command name."""

from __future__ import annotations

import os

from dshpc_setup.errors import DshpcError, usage_error
from dshpc_setup.machine import Machine
from dshpc_setup.machine.overlay import with_simulated_gpus

_TOP = ("proc", "sys", "dev", "etc")  # what --root reads


def seen_machine(
    root: str | os.PathLike[str], recorded: str | os.PathLike[str] | None, simulate: str
) -> Machine:
    """The machine of `--root`, `--machine` and `--simulate`; raises DshpcError if there is none.

    `recorded` is a folder that `dshpc record` made, or the archive of `dshpc doctor --bundle`.
    """
    machine: Machine
    if recorded is not None and os.fspath(root) != "/":
        raise usage_error("--root and --machine name two machines.", "", "Give one of them.")
    if recorded is not None:
        machine = _recorded(os.fspath(recorded))
    else:
        from dshpc_setup.machine.local import LocalMachine

        _need_tree(os.fspath(root))
        machine = LocalMachine(os.path.abspath(root))
    return with_simulated_gpus(machine, "" if simulate == "none" else simulate)


def _recorded(path: str) -> Machine:
    """Of the folder that `dshpc record` made, or of a report: its archive, or its folder."""
    if os.path.isfile(path) or os.path.isdir(os.path.join(path, "machine")):
        from dshpc_setup.bundle.replay import machine_of

        return machine_of(path)
    from dshpc_setup.machine.recorded import RecordedMachine

    return RecordedMachine(path)


def _need_tree(root: str) -> None:
    """Raises DshpcError where nothing of a machine can be read under the folder."""
    if not os.path.isdir(root):
        what = "It is a file." if os.path.lexists(root) else "There is none of that name."
        raise usage_error(f"--root {root} is not a folder.", what)
    refused = []
    for name in _TOP:
        try:
            os.listdir(os.path.join(root, name))
        except PermissionError as error:
            refused.append(error)
        except OSError:
            continue
        else:
            return
    if refused:
        raise DshpcError(
            f"--root {root} cannot be read.",
            str(refused[0]),
            ("Make its folders readable, or run this as a user who may read them.",),
        )
    raise usage_error(
        f"--root {root} holds no machine.",
        f"It has no folder {', '.join(_TOP[:-1])} or {_TOP[-1]}.",
        "Name the folder that they are in.",
    )
