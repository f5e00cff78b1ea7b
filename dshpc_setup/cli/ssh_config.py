"""`dshpc ssh-config`: the block of ~/.ssh that makes ssh, scp, rsync and editors reach jobs."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dshpc_setup.cli import job_request, put, ssh_proxy
from dshpc_setup.errors import DshpcError, Exit, usage_error
from dshpc_setup.files import atomic
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.ssh import client_config, own_keys
from dshpc_setup.ssh.client_config import Client
from dshpc_setup.terminal.command_names import as_called

if TYPE_CHECKING:
    from dshpc_setup.terminal.reporter import Reporter

_KEYGEN_S = 20.0
_HOST = re.compile(r"[^-\s][^\s]*")  # ssh takes what begins with a hyphen for an option


def show(folder: str | None, linger: str, through: str | None) -> int:
    """The whole configuration on stdout, for `ssh -F`; `through`: for another machine, which reaches this
    one by that name."""
    ssh_proxy.seconds(linger)
    if through is not None and not _HOST.fullmatch(through):
        raise usage_error(
            f"--through {through!r} is not a host's name.",
            "",
            "dshpc ssh-config --through USER@HOST",
        )
    here = job_request.cluster(folder)
    said = ssh_proxy.ca(here.runtime)
    if through is not None:
        command = ("ssh", through, shlex.join(_command(here.project, linger)))
        put(client_config.text(_client(here.project, said, command, None, ())))
        return int(Exit.OK)
    put(client_config.text(_own(here.project, said, linger)))
    return int(Exit.OK)


def write(folder: str | None, linger: str, reporter: Reporter) -> int:
    """Into a file of its own in ~/.ssh, and one line into ~/.ssh/config, after asking."""
    ssh_proxy.seconds(linger)
    here = job_request.cluster(folder)
    said = ssh_proxy.ca(here.runtime)
    ssh = own_keys.folder()
    own, config = ssh / own_keys.OWN / "config", ssh / "config"
    before = _read(config)
    after = client_config.with_include(before)
    what = f"Write {own}" + (
        f", and a line that includes it into {config}?" if after != before else "?"
    )
    if not reporter.ask(what):
        raise DshpcError(
            "Nothing was written.",
            "",
            ("Answer yes, or say so beforehand: dshpc ssh-config --yes",
             "Use it without: dshpc ssh-config --print >FILE, then ssh -F FILE gpu"),
        )  # fmt: skip
    text = client_config.text(_own(here.project, said, linger))
    atomic.write_atomic(own, text, 0o600)
    if after != before:
        # The file that a link leads to: people keep theirs elsewhere
        atomic.write_atomic(Path(os.path.realpath(config)), after, 0o600)
    lines = [f"Written: {own}", "Try: ssh gpu hostname"]
    put("".join(f"{as_called(line)}\n" for line in lines))
    return int(Exit.OK)


def _own(project: str, said: dict[str, Any], linger: str) -> Client:
    """For this machine, with what it names made: the file of the CA, and a key where there is none."""
    ssh = own_keys.folder()
    folder = ssh / own_keys.OWN
    for each in (ssh, folder):
        atomic.make_folder(each, mode=0o700)
    if not own_keys.usable(ssh):
        _make_key(folder / own_keys.IDENTITY)
    identities = tuple(map(str, own_keys.usable(ssh)))
    known = folder / "known_hosts"
    # Whoever started ssh with another $HOME comes with the same keys
    keys = () if ssh == own_keys.of_account() else ("--keys", str(ssh))
    command = (*_command(project, linger), *keys)
    client = _client(project, said, command, str(known), identities)
    atomic.write_atomic(known, client_config.known_hosts(client), 0o600)
    return client


def _client(
    project: str,
    said: dict[str, Any],
    command: tuple[str, ...],
    known: str | None,
    identities: tuple[str, ...],
) -> Client:
    login, principal, ca = (str(said[key]) for key in ("login", "principal", "ca"))
    return Client(project, command, login, principal, ca, known, identities)


def _command(project: str, linger: str) -> tuple[str, ...]:
    """Good from any folder: editors start ssh in one of theirs."""
    lingers = () if linger == ssh_proxy.LINGER else ("--linger", linger)
    return (_program(), "ssh-proxy", "--dir", project, *lingers)


def _program() -> str:
    """The launcher by which we were called, that of the checkout, or the command in PATH."""
    called = os.environ.get("DSHPC_COMMAND")
    launcher = Path(called).parent / "dshpc" if called else Path(__file__).parents[2] / "dshpc"
    if launcher.is_file():
        return os.path.abspath(launcher)
    import shutil

    return shutil.which("dshpc") or os.path.abspath(sys.argv[0])


def _make_key(path: Path) -> None:
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "dshpc", "-f", str(path)]
    done = LocalMachine().run(argv, deadline_s=_KEYGEN_S)
    if done.state == "absent":
        raise DshpcError(
            "OpenSSH's client is not installed: there is no ssh-keygen.",
            "",
            ("Install it: sudo apt-get install openssh-client",),
        )
    if not done.ok:
        raise DshpcError(f"No key could be made in {path.parent}.", done.text or done.state)


def _read(path: Path) -> str:
    try:
        found = atomic.read_plain(path)
        return "" if found is None else found.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise atomic.read_error(error, path) from None
