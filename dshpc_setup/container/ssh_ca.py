"""The cluster's CA of host keys: `dshpc-node ssh-certify UID GID NAME`, a public key (or nothing) on stdin.

Its key lies beside Slurm's, in a folder that no user can enter, and is made when it is needed first. A user's
certificate is good for one name, by which the user's own client alone asks (HostKeyAlias): nobody's sshd is
taken for another's.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import tempfile

from dshpc_setup.container import accounts, keys, users
from dshpc_setup.errors import DshpcError, Fix, usage_error
from dshpc_setup.files.storage import open_lock, read_text, replace_text
from dshpc_setup.machine import Machine
from dshpc_setup.slurm.paths import Paths
from dshpc_setup.ssh import place

SCHEMA = "dshpc.ssh-ca/1"
_KEYGEN_S = 20.0
_PUBLIC = re.compile(r"ssh-ed25519 [A-Za-z0-9+/]{60,80}={0,2}(?: [\w.@-]{0,64})?\n?")


def certify(
    machine: Machine, paths: Paths, caller: tuple[str, str, str], key: str
) -> dict[str, object]:
    """What a client has to know of the cluster, and the certificate of `key`, where one was given."""
    user = accounts.checked(*caller) if caller[0] != "0" else None
    login = "root" if user is None else users.add(paths, user).login
    principal = f"dshpc-{caller[0]}"
    if key and not _PUBLIC.fullmatch(key):
        raise usage_error("What is to be certified is no public key of ssh-keygen's (ed25519).")
    with open_lock(f"{paths.run}/ssh-ca.lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        public = _ensured(machine, paths)
    return {
        "schema": SCHEMA,
        "exit_code": 0,
        "ca": public,
        "login": login,
        "principal": principal,
        "certificate": _signed(machine, paths, key, principal) if key else None,
    }


def _path(paths: Paths) -> str:
    return f"{os.path.dirname(paths.key)}/ssh_ca"


def _ensured(machine: Machine, paths: Paths) -> str:
    """The public key of the CA, made where there is none."""
    path = _path(paths)
    if not os.path.lexists(path):
        new = f"{path}.new"
        for left in (new, f"{new}.pub"):  # of one that was killed
            if os.path.lexists(left):
                os.unlink(left)
        _run(machine, "-q", "-t", "ed25519", "-N", "", "-C", "dshpc", "-f", new)
        os.replace(f"{new}.pub", f"{path}.pub")
        os.replace(new, path)
    _refuse_unsafe(path)
    public = read_text(f"{path}.pub")
    if not public or not _PUBLIC.fullmatch(public):
        raise _damaged(path)
    if read_text(paths.at(place.CURRENT_CA)) != public:
        replace_text(paths.at(place.CURRENT_CA), public, sync=False)
    return public


def _refuse_unsafe(path: str) -> None:
    found = os.lstat(path)
    why = keys.why_refused(found)
    if why is None and stat.S_IMODE(found.st_mode) == 0o600:
        return
    raise DshpcError(
        f"The key {path} is not safe to use: {why or 'its mode is not 0600'}.",
        "Whoever has it can pose as any session of this cluster.",
        (_remove(path),),
    )


def _damaged(path: str) -> DshpcError:
    return DshpcError(f"{path}.pub is not the public key of a CA.", "", (_remove(path),))


def _remove(path: str) -> Fix:
    return Fix(
        "Remove it, then write the client's configuration again (dshpc ssh-config)",
        f"dshpc exec --root -- rm {path} {path}.pub",
    )


def _signed(machine: Machine, paths: Paths, key: str, principal: str) -> str:
    with tempfile.TemporaryDirectory(dir=paths.run) as folder:
        name = f"{folder}/key.pub"
        replace_text(name, key, 0o600, sync=False)
        _run(machine, "-q", "-s", _path(paths), "-h", "-I", principal, "-n", principal, name)
        return read_text(f"{folder}/key-cert.pub") or ""


def _run(machine: Machine, *argv: str) -> None:
    done = machine.run(["ssh-keygen", *argv], deadline_s=_KEYGEN_S)
    if not done.ok:
        raise DshpcError("ssh-keygen failed.", done.text or done.state)
