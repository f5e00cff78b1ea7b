"""A supervisor as a service of systemd, which starts it again where it was killed.

Root has the system's manager. A user has a manager of his own, and it may be used only where it outlives his
last session ("lingering", loginctl(1)): else it would end the cluster at logout, which a process of its own
survives.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from dshpc_setup.builtin import processes
from dshpc_setup.machine import Machine

_ASK_S = 30.0
_SYSTEM = "/run/systemd/system"  # sd_booted(3)
_LINGER = "/var/lib/systemd/linger"  # a file for each user who lingers, by name
_PRIVATE = "/run/user/{uid}/systemd/private"  # the socket of a user's manager
_ABOUT = "dsHPC setup: a cluster of the built-in engine"
_MORE_S = 10  # beyond the container's own grace, for the supervisor to end


def manager(machine: Machine, user: str) -> tuple[str, ...] | None:
    """What a command line of systemd's begins with to reach the manager that keeps services for this user;
    None where there is none, or it ends with the last session."""
    if not machine.exists(_SYSTEM) or machine.which("systemd-run") is None:
        return None
    if machine.uid == 0:
        return ("env",)
    folder = f"/run/user/{machine.uid}"
    if not machine.exists(f"{_LINGER}/{user}") or not machine.exists(
        _PRIVATE.format(uid=machine.uid)
    ):
        return None
    return ("env", f"XDG_RUNTIME_DIR={folder}")


def name_of(run: Path) -> str:
    """The unit's name: the same for a run folder each time, and no two folders have one."""
    digest = hashlib.sha256(os.fsencode(run)).hexdigest()[:12]
    return f"dshpc-{digest}.service"


def argv(
    reach: Sequence[str],
    unit: str,
    program: Sequence[str],
    log: str,
    env: Sequence[str],
    *,
    user: bool,
    about: str = _ABOUT,
) -> list[str]:
    """The call of systemd-run(1): a unit that is gone with the program, unless that was killed."""
    properties = (
        "Type=exec",
        "Restart=on-failure",
        "RestartSec=1",
        "KillMode=mixed",  # the supervisor ends the container in order
        "OOMPolicy=continue",  # a job that is out of memory takes no other along
        "TasksMax=infinity",  # as for a process of its own
        f"TimeoutStopSec={60 + _MORE_S}",
        f"StandardOutput=append:{log}",
        f"StandardError=append:{log}",
        "WorkingDirectory=/",
    )
    return [
        *reach,
        "systemd-run",
        *(["--user"] if user else []),
        "--quiet",
        "--collect",
        f"--unit={unit}",
        f"--description={about}",
        *(f"--property={each}" for each in properties),
        *(f"--setenv={each}" for each in env),
        "--",
        *(word.replace("$", "$$") for word in program),  # systemd fills in $NAME
    ]


def start(
    machine: Machine, run: Path, program: Sequence[str], user: str, about: str = _ABOUT
) -> processes.Process | None:
    """The program as a service; None where no manager would keep it, or that refuses."""
    reach = manager(machine, user)
    if reach is None:
        return None
    scope = [] if machine.uid == 0 else ["--user"]
    unit = name_of(run)
    env = [f"{name}={machine.env[name]}" for name in ("PATH", "HOME") if name in machine.env]
    line = argv(reach, unit, program, str(run / "supervisor.log"), env, user=bool(scope),
                about=about)  # fmt: skip
    # One that systemd is about to start again keeps the name
    machine.run([*reach, "systemctl", *scope, "stop", unit], deadline_s=_ASK_S)
    if not machine.run(line, deadline_s=_ASK_S).ok:
        return None
    shown = machine.run(
        [*reach, "systemctl", *scope, "show", "--property=MainPID", "--value", unit],
        deadline_s=_ASK_S,
    )
    text = shown.stdout.strip()
    pid = int(text) if text.isascii() and text.isdecimal() else 0
    return processes.of(pid) if pid else None
