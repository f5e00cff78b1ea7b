"""The OpenSSH client's configuration for a cluster's jobs. Pure: texts from values."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from dshpc_setup.ssh import names

INCLUDE = "Include ~/.ssh/dshpc/config"


@dataclass(frozen=True)
class Client:
    """`command`: what reaches a job, without its name. `principal`: what the certificate of the user's host
    key is good for. `known_hosts`: the file that names the CA; None: a command prints it."""

    project: str
    command: tuple[str, ...]
    login: str
    principal: str
    ca: str
    known_hosts: str | None
    identities: tuple[str, ...] = ()


def known_hosts(client: Client) -> str:
    return f"@cert-authority {client.principal} {client.ca.strip()}\n"


def text(client: Client) -> str:
    """The block. A host's name is that of no machine: it says what is asked for."""
    lines = [
        f"# Jobs of the cluster in {client.project}, by `dshpc ssh-config`, which rewrites it.",
        f"Host {' '.join(names.PATTERNS)}",
        f"    ProxyCommand {_escaped(shlex.join(client.command))} %n",
        f"    User {client.login}",
        f"    HostKeyAlias {client.principal}",
        *_hosts(client),
        "    GlobalKnownHostsFile /dev/null",
        "    StrictHostKeyChecking yes",
        "    UpdateHostKeys no",
        "    CheckHostIP no",
        *(f"    IdentityFile {_quoted(path)}" for path in client.identities),
        # By the processor's own AES: a copy takes as long as its ciphers do
        "    Ciphers aes128-gcm@openssh.com,aes256-gcm@openssh.com,chacha20-poly1305@openssh.com",
        "    ServerAliveInterval 30",
        "    ServerAliveCountMax 40",
    ]
    return "\n".join(lines) + "\n"


def _hosts(client: Client) -> Sequence[str]:
    if client.known_hosts is not None:
        return (f"    UserKnownHostsFile {_quoted(client.known_hosts)}",)
    kind, key, *_ = client.ca.split()
    said = f"@cert-authority {client.principal} {kind} {key}"
    return (
        "    UserKnownHostsFile /dev/null",
        f"    KnownHostsCommand /bin/echo {said}",
    )


def _escaped(text: str) -> str:
    return text.replace("%", "%%")


def _quoted(path: str) -> str:
    whole = _escaped(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{whole}"' if " " in whole else whole


def with_include(config: str) -> str:
    """~/.ssh/config with our line at its top: further down it would belong to a Host block."""
    lines = [line.strip() for line in config.splitlines()]
    return config if INCLUDE in lines else f"{INCLUDE}\n\n{config}" if config else f"{INCLUDE}\n"
