"""The same command line once more, through sudo: for a user whom Docker does not let in yet."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from dshpc_setup.engine.privilege import can_be_root
from dshpc_setup.engine.refusals import EngineDeniedError
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import Machine
from dshpc_setup.terminal.reporter import Reporter

# What a run depends on and sudo would take away: settings, proxies, certificates, the engine's place
_KEPT = (
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "DOCKER_HOST",
    "DOCKER_CONTEXT",
    "NO_COLOR",
)
_KEPT_IN_ANY_CASE = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy")


def go_on_with_sudo(
    machine: Machine, error: DshpcError | None, reporter: Reporter, *, interactive: bool
) -> None:
    """Where Docker refused this user and sudo is to be had: ask, and become that run.

    Returns where that is not the case, or the answer is no. sudo knows who called it, so files and
    jobs belong to the same user.
    """
    if not isinstance(error, EngineDeniedError):
        return
    way = can_be_root(machine, interactive)
    if way not in ("sudo", "sudo-asks"):
        return
    if reporter.ask("You may not use Docker yet. Go on with sudo, for this run?"):
        argv = sudo_argv(machine.env, [sys.executable, "-I", *sys.argv], asks=way == "sudo-asks")
        sys.stdout.flush()
        sys.stderr.flush()
        os.execvp(argv[0], argv)


def sudo_argv(env: Mapping[str, str], argv: Sequence[str], *, asks: bool) -> list[str]:
    """The command line through sudo; variables go along by name, for values may be secret."""
    kept = sorted(
        name
        for name in env
        if name.startswith("DSHPC_") or name in _KEPT or name.lower() in _KEPT_IN_ANY_CASE
    )
    names = [f"--preserve-env={','.join(kept)}"] if kept else []
    return ["sudo", *([] if asks else ["-n"]), *names, "--", *argv]
