"""Slurm's REST API in the container: the key of its clients' tokens, and its daemon slurmrestd.

slurmrestd has no rights of its own: it is neither root nor Slurm's user, holds no key, and hands each
request on with the token that came with it (rest_auth/jwt). slurmctld judges the token, so that a client
is the user to whom slurmctld gave it. The other plugin, rest_auth/local, would let in slurmrestd's own user
and root alone.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
import time

from dshpc_setup.container import daemons, network
from dshpc_setup.container.run import Run
from dshpc_setup.errors import DshpcError, Fix
from dshpc_setup.files.storage import replace_bytes
from dshpc_setup.machine import Machine
from dshpc_setup.slurm.paths import REST_LISTEN, Paths

SERVICE = "slurmrestd"
USER = "slurmrest"
_KEY_BYTES = 32  # HS256 takes as many
_UP_S = 20.0
_ASK_S = 10.0


def ensure_key(paths: Paths, slurm: tuple[int, int]) -> None:
    """The key in its place, for SlurmUser alone; DshpcError where others could read the one that is there."""
    path = paths.rest_key
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        replace_bytes(path, secrets.token_bytes(_KEY_BYTES), 0o600, slurm)
        return
    sound = stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_size >= _KEY_BYTES
    if not sound or found.st_mode & 0o077 or found.st_uid not in (slurm[0], os.geteuid()):
        raise DshpcError(
            f"The key {path} is not safe to use.",
            "It must be a plain file of Slurm's user alone: whoever has it can be any user by the REST API.",
            (
                Fix(
                    "Remove it, so that the next start makes a new one; tokens of the old one are refused",
                    f"dshpc exec --root -- rm {path} && dshpc restart",
                ),
            ),
        )
    if found.st_uid != slurm[0]:
        os.chown(path, *slurm)


def start(run: Run) -> None:
    """Start slurmrestd where the setting asks for it; what is wrong with it is a note, and jobs run."""
    wanted = run.settings.rest
    if wanted == "off":
        return
    listen = run.machine.env.get(REST_LISTEN) or ("" if wanted == "on" else wanted)
    _write_listen(run.paths, listen)
    with run.status.step("rest"):
        port = int(listen.rpartition(":")[2]) if listen else None
        if port is not None and network.listens(port):
            run.status.note(
                f"The REST API is not up: another program listens on port {port} already. Choose "
                "another one, on the host: dshpc config set rest 127.0.0.1:PORT"
            )
            return
        if not _bring_up(run, port):
            daemons.take_down(run.machine, run.paths, SERVICE)
            run.status.note("The REST API is not up: slurmrestd does not start. See: dshpc logs")
            return
    run.status.values["rest"] = {
        "socket": Paths().rest_socket,
        "address": None if wanted == "on" else wanted,
        "version": version(run.machine),
    }


def restart(run: Run, before: object) -> None:
    """After a reconfiguration: it reads slurm.conf as it starts. `before`: what `start` told of it."""
    if isinstance(before, dict):
        run.status.values["rest"] = before
        run.machine.run(["s6-svc", "-r", f"{run.paths.services}/{SERVICE}"], deadline_s=_ASK_S)


def _write_listen(paths: Paths, listen: str) -> None:
    """The folder of the socket, and for the service where else it listens."""
    folder = os.path.dirname(paths.rest_socket)
    os.makedirs(folder, exist_ok=True)
    user = _user()
    os.chown(folder, *user)
    os.chmod(folder, 0o755)
    replace_bytes(paths.rest_listen, f"{listen}\n".encode(), 0o644)


def _user() -> tuple[int, int]:
    import pwd

    entry = pwd.getpwnam(USER)
    return entry.pw_uid, entry.pw_gid


def _bring_up(run: Run, port: int | None) -> bool:
    path = run.paths.rest_socket
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    ended = f"{run.paths.run}/{SERVICE}.ended"
    daemons.order_up(run.machine, run.paths, SERVICE)
    until = time.monotonic() + _UP_S
    while time.monotonic() < until:
        if os.path.exists(path) and (port is None or network.listens(port)):
            return True
        if os.path.exists(ended):
            return False
        time.sleep(0.02)
    return False


def version(machine: Machine) -> str | None:
    """The newest API that this slurmrestd has, as its paths name it: "v0.0.42"."""
    # As the service does; root may ask
    env = "SLURMRESTD_SECURITY=disable_unshare_sysv,disable_unshare_files,disable_user_check"
    asked = machine.run(["env", env, SERVICE, "-d", "list"], deadline_s=_ASK_S)
    found = re.findall(r"data_parser/v(\d+)\.(\d+)\.(\d+)", asked.text)
    newest = max((tuple(map(int, each)) for each in found), default=None)
    return None if newest is None else f"v{'.'.join(map(str, newest))}"
