"""Restarting an engine that answers, and not where it would not come back."""

from __future__ import annotations

import shlex

from dshpc_setup.documents import foreign
from dshpc_setup.engine import daemon
from dshpc_setup.engine.packages import last_lines
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.repair.engine_repairs import DAEMON_JSON
from dshpc_setup.repair.model import Repair
from dshpc_setup.repair.site import Site

_RESTART_S = 180.0  # containers get ten seconds each to end
_UP_S = 90.0
_ASK_S = 20.0


def restart_engine(site: Site, repair: Repair) -> None:
    """Restart it and wait until it answers; its configuration is tried before."""
    rootless = bool(site.known.facts.engine.rootless)
    path = f"{site.here.home}/.config/docker/daemon.json" if rootless else DAEMON_JSON
    snap = site.known.facts.engine.kind == "snap"
    if not snap:  # a snap has its own file and brings its own dockerd
        _refuse_broken(site, path, rootless=rootless)
    (argv,) = repair.commands
    done = site.run(argv, root=repair.root, deadline_s=_RESTART_S)
    if not done.ok:
        late = done.state == "timeout"
        how = f"was not done after {_RESTART_S:.0f} seconds" if late else "failed"
        raise _not_back(site, repair, path, f"{shlex.join(argv)} {how}", last_lines(done))
    until = site.machine.clock() + _UP_S
    while daemon.answers(site.machine) is None:
        if site.machine.clock() >= until:
            brief = f"Docker did not answer within {_UP_S:.0f} seconds after its restart"
            raise _not_back(site, repair, path, brief, "")
        site.machine.run(["sleep", "0.2"], deadline_s=5)


def _refuse_broken(site: Site, path: str, *, rootless: bool) -> None:
    """An engine that runs with a broken configuration would end with its restart."""
    text = site.machine.read(path).text
    if text is not None and text.strip() and not _is_object(text):
        raise _broken(path, "It holds no JSON object.")
    program = daemon.dockerd(site.machine)
    if program is None:
        return
    argv = [program, "--validate", *([f"--config-file={path}"] if rootless and text else [])]
    tried = site.run(argv, root=not rootless, deadline_s=_ASK_S)
    # before 23.0 there was no such flag
    if tried.state == "present" and tried.code != 0 and "unknown flag" not in tried.text:
        raise _broken(path, last_lines(tried))


def _is_object(text: str) -> bool:
    try:
        return isinstance(foreign.value(text), dict)
    except ValueError:
        return False


def _broken(path: str, details: str) -> DshpcError:
    return DshpcError(
        "Docker was not restarted: it would not start with its configuration as it is.",
        details,
        (f"Correct {path}; check it with: dockerd --validate", "Then run this again."),
    )


def _not_back(site: Site, repair: Repair, path: str, brief: str, details: str) -> DshpcError:
    sudo = "sudo " if repair.root else ""
    log = (
        "journalctl --user -u docker -n 50"
        if not repair.root
        else "sudo journalctl -u docker -n 50"
    )
    steps = [f"See its log: {log}"]
    if copy := site.backups.get(path):
        steps.append(
            f"Bring its former configuration back: {sudo}{shlex.join(['cp', '-p', copy, path])}"
        )
    return DshpcError(brief, details, (*steps, *repair.shown()), Exit.ERROR)
