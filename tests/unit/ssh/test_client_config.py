"""The client's configuration, and sshd's: each word where it belongs, whatever is in it."""

from __future__ import annotations

import shlex
from dataclasses import replace

from dshpc_setup.ssh import client_config, place
from dshpc_setup.ssh.client_config import INCLUDE, Client

CLIENT = Client(
    "/srv/my 100% lab", ("/opt/d s/dshpc", "ssh-proxy", "--dir", "/srv/my 100% lab"), "ada", "dshpc-1000",
    "ssh-ed25519 AAAA dshpc\n", "/home/ada x/.ssh/dshpc/known_hosts", ("/home/ada x/.ssh/id_ed25519",),
)  # fmt: skip


def options(text: str) -> dict[str, str]:
    rows = (line.strip().partition(" ") for line in text.splitlines() if line.startswith(" "))
    return {row[0]: row[2] for row in rows}


def test_paths_with_blanks_and_percent_signs() -> None:
    said = options(client_config.text(CLIENT))
    words = shlex.split(said["ProxyCommand"].replace("%n", "gpu").replace("%%", "%"))
    assert words == [*CLIENT.command, "gpu"]
    assert said["UserKnownHostsFile"] == '"/home/ada x/.ssh/dshpc/known_hosts"'
    assert said["IdentityFile"] == '"/home/ada x/.ssh/id_ed25519"'


def test_nobody_is_asked_and_the_ca_alone_is_believed() -> None:
    said = options(client_config.text(CLIENT))
    assert said["StrictHostKeyChecking"] == "yes"
    assert said["GlobalKnownHostsFile"] == "/dev/null"
    assert said["HostKeyAlias"] == "dshpc-1000"
    assert (
        client_config.known_hosts(CLIENT) == "@cert-authority dshpc-1000 ssh-ed25519 AAAA dshpc\n"
    )


def test_for_another_machine_no_file_of_this_one_is_named() -> None:
    text = client_config.text(replace(CLIENT, known_hosts=None, identities=()))
    assert "/home" not in text
    said = options(text)
    assert said["KnownHostsCommand"] == "/bin/echo @cert-authority dshpc-1000 ssh-ed25519 AAAA"


def test_the_include_stands_first_and_once() -> None:
    assert client_config.with_include("") == f"{INCLUDE}\n"
    once = client_config.with_include("Host x\n  User y\n")
    assert once.startswith(f"{INCLUDE}\n")
    assert once.endswith("Host x\n  User y\n")
    assert client_config.with_include(once) == once


def test_variables_stand_in_one_line_of_sshds() -> None:
    text = place.sshd_config(
        "/home/ada/x",
        {
            "SLURM_JOB_ID": "7",
            "ODD": 'a "b" \\c # $HOME',
            "USER": "eve",
            "SSH_CLIENT": "x",
            "LINES": "a\nPermitRootLogin yes",
            "BASH_FUNC_x%%": "() { :; }",
            "A B": "c",
        },
    )
    (line,) = (line for line in text.splitlines() if line.startswith("SetEnv"))
    assert line == 'SetEnv "ODD=a \\"b\\" \\\\c # $HOME" "SLURM_JOB_ID=7"'
    assert "PermitRootLogin yes" not in text
    assert [name for name in text.splitlines() if "SetEnv" in name] == [line]
