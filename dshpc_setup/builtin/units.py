"""A supervisor as a service of systemd, which starts it again where it was killed.

Root has the system's manager. A user has a manager of his own, and it may be used only where it outlives his
last session ("lingering", loginctl(1)): else it would end the cluster at logout, which a process of its own
survives.

A container that is to be started again has a unit with a file, which the manager starts with the machine, too
(docs/decisions/0084-after-a-restart-of-the-machine.md). All else is a transient unit, gone with its program.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from dshpc_setup.builtin import processes
from dshpc_setup.errors import DshpcError
from dshpc_setup.files import atomic
from dshpc_setup.machine import CommandResult, Machine

_ASK_S = 30.0
_SYSTEM = "/run/systemd/system"  # sd_booted(3)
_LINGER = "/var/lib/systemd/linger"  # a file for each user who lingers, by name
_SYSTEM_UNITS = "/etc/systemd/system"
_PRIVATE = "/run/user/{uid}/systemd/private"  # the socket of a user's manager
_ABOUT = "dsHPC setup: a cluster of the built-in engine"
_LOG = "supervisor.log"
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


_PROPERTIES = (
    "Type=exec",
    "Restart=on-failure",
    "RestartSec=1",
    "KillMode=mixed",  # the supervisor ends the container in order
    "OOMPolicy=continue",  # a job that is out of memory takes no other along
    "TasksMax=infinity",  # as for a process of its own
    f"TimeoutStopSec={60 + _MORE_S}",
    "WorkingDirectory=/",
)


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
    properties = (*_PROPERTIES, f"StandardOutput=append:{log}", f"StandardError=append:{log}")
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


def text(program: Sequence[str], run: Path, env: Sequence[str], *, user: bool) -> str:
    """The unit's file, systemd.unit(5): started with the machine while the run folder is there."""
    log = _specifiers(str(run / _LOG))
    return "\n".join(
        (
            "[Unit]",
            f"Description={_ABOUT}",
            f"ConditionPathIsDirectory={_specifiers(str(run))}",
            # What has ended is forgotten, as of a transient unit
            "CollectMode=inactive-or-failed",
            *([] if user else ["Wants=network-online.target", "After=network-online.target"]),
            "",
            "[Service]",
            *_PROPERTIES,
            f"StandardOutput=append:{log}",
            f"StandardError=append:{log}",
            *(f"Environment={_quoted(each)}" for each in env),
            "ExecStart=" + " ".join(_quoted(word).replace("$", "$$") for word in program),
            "",
            "[Install]",
            f"WantedBy={'default' if user else 'multi-user'}.target",
            "",
        )
    )


def _specifiers(text: str) -> str:
    return text.replace("%", "%%")


def _quoted(word: str) -> str:
    """systemd.syntax(7): one word, whatever is in it."""
    kept = word.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{_specifiers(kept)}"'


def start(
    machine: Machine,
    run: Path,
    program: Sequence[str],
    user: str,
    about: str = _ABOUT,
    *,
    with_machine: bool = False,
) -> processes.Process | None:
    """The program as a service; None where no manager would keep it, or that refuses. `with_machine`: where
    its manager can, it starts it with the machine, too, until `forget`."""
    reach = manager(machine, user)
    if reach is None:
        return None
    scope = [] if machine.uid == 0 else ["--user"]
    unit = name_of(run)
    env = [f"{name}={machine.env[name]}" for name in ("PATH", "HOME") if name in machine.env]
    # One that systemd is about to start again keeps the name
    _told(machine, reach, "stop", unit)
    lasting = text(program, run, env, user=bool(scope)) if with_machine else None
    if lasting is None or not _enabled(machine, reach, run, lasting):
        line = argv(reach, unit, program, str(run / _LOG), env, user=bool(scope), about=about)
        if not machine.run(line, deadline_s=_ASK_S).ok:
            return None
    told = _told(machine, reach, "show", "--property=MainPID", "--value", unit).stdout.strip()
    pid = int(told) if told.isascii() and told.isdecimal() else 0
    return processes.of(pid) if pid else None


def _enabled(machine: Machine, reach: Sequence[str], run: Path, content: str) -> bool:
    """Whether the unit runs by a file of its own; else there is none."""
    file = _folder(machine) / name_of(run)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        atomic.write_atomic(file, content)
    except (OSError, DshpcError):
        return False
    _told(machine, reach, "daemon-reload")
    if _told(machine, reach, "enable", "--now", file.name).ok:
        return True
    _forget(machine, reach, file)
    return False


def forget(machine: Machine, run: Path, user: str) -> None:
    """The machine does not start it any more."""
    file = _folder(machine) / name_of(run)
    if file.exists():
        _forget(machine, manager(machine, user), file)


def _forget(machine: Machine, reach: Sequence[str] | None, file: Path) -> None:
    if reach is not None:
        _told(machine, reach, "disable", file.name)
    file.unlink(missing_ok=True)
    if reach is not None:
        _told(machine, reach, "daemon-reload")


def _folder(machine: Machine) -> Path:
    """Where this user's manager looks for units that people made: what a shell's XDG_CONFIG_HOME says, that
    does not know."""
    if machine.uid == 0:
        return Path(_SYSTEM_UNITS)
    return Path(machine.env.get("HOME", "/")) / ".config/systemd/user"


def _told(machine: Machine, reach: Sequence[str], *words: str) -> CommandResult:
    scope = [] if machine.uid == 0 else ["--user"]
    return machine.run([*reach, "systemctl", *scope, *words], deadline_s=_ASK_S)
