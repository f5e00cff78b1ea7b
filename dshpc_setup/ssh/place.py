"""Where a user's sessions are kept in the container: in the home, for nobody else to read.

    host_key, host_key-cert.pub     the user's host key, and what the cluster's CA says of it
    ca.pub                          the CA that said so
    authorized_keys                 the user's keys, as the host had them when a job was asked for last
    NAME.sock                       where the listener of `ssh NAME` listens, while there is one
    NAME.say                        what is said to who connects
    NAME.json, NAME.lock            which job it is; held while one is looked for or submitted
    NAME.conf                       sshd's configuration, with the job's variables

All of it is written and read by processes of the user; root opens none of it. Paths are relative to the
folder: that of a socket may be no longer than 107 characters. A home that is the machine's own may be that
of other clusters, too: the folder has the cluster's name there.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # each connection takes this
if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping

_ROOTS_HOME = "/var/lib/dshpc/home/root"
_IN_HOME = ".local/state/dshpc-ssh"
_KEPT_HOMES = "/var/lib/dshpc/home/"  # this cluster's volume of homes
_CLUSTER = "/run/dshpc/cluster"
HOST_KEY, CERTIFICATE, CA, KEYS = "host_key", "host_key-cert.pub", "ca.pub", "authorized_keys"
ENTER, LISTEN = "/usr/local/lib/dshpc/ssh-enter", "/usr/local/lib/dshpc/ssh-listen"
CURRENT_CA = "/run/dshpc/ssh-ca.pub"  # of this start; every user may read it
SOCKET = "@dshpc-socket@"  # in a server's words: where it is to listen
NONE_THERE = 75  # exit code of ENTER where nobody listens; it has read nothing then


def enter() -> None:
    """Make the folder of the user that we are, and stand in it; PermissionError where it is not his alone."""
    if os.getuid() == 0:
        home = _ROOTS_HOME
    else:
        import pwd

        home = pwd.getpwuid(os.getuid()).pw_dir
    path = in_home(home, (read(_CLUSTER) or "").strip())
    try:
        os.chdir(path)
    except FileNotFoundError:
        os.makedirs(path, mode=0o700, exist_ok=True)
        os.chdir(path)
    if not is_ours(os.stat(".")):
        raise PermissionError(1, "it is open to other users", path)


def is_ours(folder: os.stat_result) -> bool:
    return folder.st_uid == os.geteuid() and not folder.st_mode & 0o077


def peer(joined: socket.socket) -> int:
    """The uid of who is at the other end, as this machine or container counts."""
    import socket
    import struct

    return int(struct.unpack("3i", joined.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1])


def in_home(home: str, cluster: str) -> str:
    return in_volume(home) if home.startswith(_KEPT_HOMES) else f"{home}/{_IN_HOME}-{cluster}"


def in_volume(home: str) -> str:
    """Of a home that the cluster keeps, and no other cluster has."""
    return f"{home}/{_IN_HOME}"


def read(name: str) -> str | None:
    try:
        with open(name, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return None


def write(name: str, text: str) -> None:
    """The old file or the new, 0600."""
    temporary = f".{name}.{os.getpid()}"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with open(handle, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(temporary, name)


def sshd_config(folder: str, variables: Mapping[str, str]) -> str:
    """For a session in a job, by the job's user: no PAM, no passwords, no port. sshd clears the
    environment, and takes the first SetEnv alone: all variables stand in one."""
    given = " ".join(
        '"' + f"{name}={value}".replace("\\", "\\\\").replace('"', '\\"') + '"'
        for name, value in sorted(variables.items())
        if _can_be_set(name, value)
    )
    lines = [
        f"HostKey {folder}/{HOST_KEY}",
        f"HostCertificate {folder}/{CERTIFICATE}",
        f"AuthorizedKeysFile {folder}/{KEYS}",
        "AuthenticationMethods publickey",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "PermitRootLogin prohibit-password",
        "UsePAM no",
        "StrictModes no",  # the folder is looked at by us; homes may be shared with a group
        "PidFile none",
        "UseDNS no",
        "PrintMotd no",
        "PrintLastLog no",
        "X11Forwarding no",
        "AllowTcpForwarding yes",
        "AllowStreamLocalForwarding yes",
        "MaxAuthTries 50",  # an agent may hold many keys
        "MaxSessions 100",
        "ClientAliveInterval 60",
        "ClientAliveCountMax 30",
        "LogLevel INFO",
        "Subsystem sftp internal-sftp",
        *([f"SetEnv {given}"] if given else []),
    ]
    return "\n".join(lines) + "\n"


# What sshd gives the session itself
_SSHDS = ("USER", "LOGNAME", "SHELL", "TERM", "MAIL", "PWD", "OLDPWD", "SHLVL", "_", "LD_PRELOAD")


def _can_be_set(name: str, value: str) -> bool:
    return (
        name.isidentifier() and name.isascii() and name not in _SSHDS
        and not name.startswith(("SSH_", "DSHPC_")) and value.isprintable()
    )  # fmt: skip
