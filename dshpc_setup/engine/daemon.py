"""Starting the Docker engine that is installed, and saying why one does not start."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import Literal

from dshpc_setup.engine.packages import last_lines
from dshpc_setup.engine.privilege import run_as_root, steps
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.machine import Machine
from dshpc_setup.terminal.reporter import Reporter

Starter = Literal["systemd", "openrc", "snap", "direct"]

LOG = "/var/log/dshpc-dockerd.log"
_PID_FILES = ("/run/docker.pid", "/var/run/docker.pid")
_PID_FILES_OF = {
    "/run/docker.pid": "dockerd",
    "/run/docker/containerd/containerd.pid": "containerd",
}
_UP_S = 90.0
_START_S = 120.0
_ASK_S = 20.0

# What dockerd says before it dies -> why, and what to do. First match wins; the most telling first.
_REASONS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        r"pid file found|ensure docker is not running|process with PID \d+ is still running",
        "Another dockerd seems to run already, or died and left its pid file.",
        ("See whether one runs: pgrep -a dockerd", "If none does: sudo rm /var/run/docker.pid"),
    ),
    (
        r"iptables.*(?:[Pp]ermission denied|[Oo]peration not permitted)",
        "It may not set up the network.",
        ("Start it as root; inside a container it takes the capability NET_ADMIN.",),
    ),
    (
        r"Failed to initialize nft|\(nf_tables\).*(?:RULE_APPEND failed|Could not fetch rule set)",
        "This kernel does not know nf_tables, which this machine's iptables uses.",
        (
            "sudo update-alternatives --set iptables /usr/sbin/iptables-legacy",
            "sudo update-alternatives --set ip6tables /usr/sbin/ip6tables-legacy",
        ),
    ),
    (
        r"[Ii]ptables not found|exec: \"iptables\"",
        "The program iptables is missing, or not on the PATH.",
        ("Install the package iptables.",),
    ),
    (
        r"can't initialize iptables table|iptables failed",
        "iptables could not set up the network: the kernel seems to lack its modules.",
        ("Try: sudo modprobe -a ip_tables iptable_nat (after a kernel upgrade: restart).",),
    ),
    (
        r"[Dd]evices cgroup isn't mounted|cgroup mountpoint does not exist|"
        r"no cgroup mount found|mountpoint for devices not found",
        "The cgroup file systems are not mounted, which an init system does at the start.",
        ("sudo mount -t cgroup2 cgroup2 /sys/fs/cgroup, or install the package cgroupfs-mount.",),
    ),
    (
        r"error initializing graphdriver|driver not supported|failed to mount overlay",
        "No storage driver works on the file system of /var/lib/docker.",
        (
            "Move it to a disk with ext4 or xfs, or write "
            '{"storage-driver": "vfs"} to /etc/docker/daemon.json (slow, and takes much room).',
        ),
    ),
    (
        r"unable to configure the Docker daemon with file|invalid character .* looking for",
        "Docker's configuration file is broken.",
        ("Mend /etc/docker/daemon.json; try it with: dockerd --validate",),
    ),
    (
        r"[Nn]o space left on device",
        "The disk is full.",
        ("Make room: df -h /var/lib/docker shows the disk.",),
    ),
    (
        r"needs to be started with root|[Oo]peration not permitted|[Pp]ermission denied",
        "It was not allowed to do what it needs: full root rights.",
        ("Inside a container Docker needs a privileged one; otherwise run it as root.",),
    ),
    (
        r"failed to start containerd|containerd: timeout|exec: \"containerd\"",
        "containerd, which Docker needs, did not come up.",
        ("See whether it is installed: containerd --version",),
    ),
)


def installed(machine: Machine) -> bool:
    """Whether a Docker daemon is installed (a client alone is none)."""
    return dockerd(machine) is not None or snap(machine)


def dockerd(machine: Machine) -> str | None:
    """The path of dockerd; a user's PATH often lacks the sbin folders."""
    folders = ("/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin")
    there = (f"{folder}/dockerd" for folder in folders if machine.exists(f"{folder}/dockerd"))
    return machine.which("dockerd") or next(there, None)


def snap(machine: Machine) -> bool:
    """Whether Docker is installed as a snap."""
    return machine.exists("/snap/bin/docker") or machine.exists("/snap/docker/current")


def starter(machine: Machine) -> Starter:
    """How services are started on this machine."""
    if snap(machine) and dockerd(machine) is None:
        return "snap"
    if machine.exists("/run/systemd/system"):  # sd_booted(3)
        return "systemd"
    if machine.exists("/run/openrc") and machine.which("rc-service"):
        return "openrc"
    return "direct"


def start(machine: Machine, reporter: Reporter, *, interactive: bool) -> None:
    """Start the engine, now and at every boot where there is an init system; wait until it answers.

    Raises `DshpcError` with the last lines of its log and the reason, where one can be read there.
    """
    match starter(machine):
        case "systemd":
            _service(machine, reporter, [["systemctl", "enable", "--now", "docker"]], interactive)
        case "openrc":
            commands = [
                ["rc-update", "add", "docker", "default"],
                ["rc-service", "docker", "start"],
            ]
            _service(machine, reporter, commands, interactive)
        case "snap":
            _service(machine, reporter, [["snap", "start", "--enable", "docker"]], interactive)
        case "direct":
            _direct(machine, reporter, interactive)


def answers(machine: Machine) -> str | None:
    """The engine's version where it answers root or us, else None (denied is an answer as well).

    None says that nothing answered within the deadline, and not that no engine runs.
    """
    asked = machine.run(["docker", "version", "--format", "{{.Server.Version}}"], deadline_s=_ASK_S)
    if asked.ok and asked.stdout.strip():
        return asked.stdout.strip()
    return "denied" if "permission denied" in asked.text.lower() else None


def _service(
    machine: Machine, reporter: Reporter, commands: list[list[str]], interactive: bool
) -> None:
    reporter.progress(f"Starting Docker ({commands[-1][0]})")
    for command in commands:
        done = run_as_root(
            machine, command, interactive=interactive, deadline_s=_START_S, by_hand=commands
        )
        if not done.ok:
            raise _did_not_start(_service_log(machine) or last_lines(done), steps(commands))
    if not _wait(machine, lambda: True):
        raise _no_answer(_service_log(machine), steps(commands))


def _service_log(machine: Machine) -> str:
    """The end of the service's log, as far as we may read it."""
    if machine.which("journalctl"):
        argv = ["journalctl", "-u", "docker", "-b", "-n", "40", "-o", "cat", "--no-pager"]
        return _last(machine.run(argv, deadline_s=_ASK_S).stdout)
    return _last(machine.read("/var/log/docker.log").text or "")


def _direct(machine: Machine, reporter: Reporter, interactive: bool) -> None:
    """Without an init system: dockerd in a session of its own, so that it outlives us."""
    program = dockerd(machine) or "dockerd"
    already = running(machine)
    if already is None:
        _forget_the_dead(machine, reporter, interactive)
        reporter.progress("Starting dockerd")
        before = len(machine.read(LOG).text or "")
        pid = _launch(machine, program, interactive)
    else:
        reporter.progress(f"Waiting for the dockerd that runs already (process {already})")
        before, pid = 0, already
    alive = _wait(machine, lambda: _alive(machine, pid))
    if alive:
        return
    log = _last((machine.read(LOG).text or "")[before:])
    by_hand = (f"As root: {program} >>{LOG} 2>&1 &",)
    raise _no_answer(log, by_hand) if _alive(machine, pid) else _did_not_start(log, by_hand)


def _launch(machine: Machine, program: str, interactive: bool) -> int:
    if machine.uid == 0:
        # A root shell's PATH may lack the sbin folders, and dockerd calls iptables by its name.
        path = machine.env.get("PATH", "/usr/bin:/bin")
        lacking = [each for each in ("/usr/sbin", "/sbin") if each not in path.split(":")]
        return machine.start_daemon(["env", f"PATH={':'.join([path, *lacking])}", program], log=LOG)
    # sudo's child belongs to sudo's terminal: nohup and setsid part them before sudo ends
    line = f"nohup setsid {shlex.quote(program)} </dev/null >>{LOG} 2>&1 & echo $!; sleep 1"
    done = run_as_root(
        machine,
        ["sh", "-c", line],
        interactive=interactive,
        deadline_s=_START_S,
        by_hand=[["sh", "-c", f"{program} >>{LOG} 2>&1 &"]],
    )
    pid = done.stdout.strip().splitlines()[:1]
    if not done.ok or not pid or not pid[0].isdecimal():
        raise _did_not_start(last_lines(done), (f"As root: {program} >>{LOG} 2>&1 &",))
    return int(pid[0])


def _forget_the_dead(machine: Machine, reporter: Reporter, interactive: bool) -> None:
    """Remove the pid files that a killed dockerd and its containerd have left.

    dockerd refuses to start while any process has the number in its own, and waits in vain for a
    containerd while any has the number in the other: numbers are given out again, and a killed
    process may stay a zombie for a while.
    """
    for path, program in _PID_FILES_OF.items():
        text = machine.read(path).text
        if text is None or _runs(machine, text, program):
            continue
        done = run_as_root(machine, ["rm", "-f", path], interactive=interactive, deadline_s=_ASK_S)
        if done.ok:
            reporter.note(f"Removed {path}, left by a {program} that runs no more.")


def _runs(machine: Machine, pid: str, program: str) -> bool:
    number = pid.strip()
    if not number.isdecimal() or not _alive(machine, int(number)):
        return False
    return (machine.read(f"/proc/{number}/comm").text or "").strip() == program


def running(machine: Machine) -> int | None:
    """The process of a dockerd that runs already, by its pid file."""
    for path in _PID_FILES:
        text = machine.read(path).text or ""
        if _runs(machine, text, "dockerd"):
            return int(text)
    return None


def _alive(machine: Machine, pid: int) -> bool:
    """Whether the process is there and no zombie (of which we may be the parent)."""
    text = machine.read(f"/proc/{pid}/stat").text
    # "pid (name) state ...", and the name may hold blanks and brackets: proc(5)
    return text is not None and text.rpartition(")")[2].split()[:1] not in ([], ["Z"], ["X"])


def _wait(machine: Machine, alive: Callable[[], bool]) -> bool:
    """Until the engine answers; False where it died or `_UP_S` have passed."""
    until = machine.clock() + _UP_S
    while machine.clock() < until:
        if answers(machine) is not None:
            return True
        if not alive():
            return False
        machine.run(["sleep", "0.2"], deadline_s=5)
    return False


def why(log: str) -> tuple[str, tuple[str, ...]]:
    """What a daemon's last words mean, and the steps against it; ("", ()) where unknown."""
    for line in reversed(log.splitlines()):  # the reason comes last, warnings before it
        for pattern, reason, todo in _REASONS:
            if re.search(pattern, line) and not re.search(r"level=(?:info|warning|debug)", line):
                return reason, todo
    return "", ()


def _did_not_start(log: str, by_hand: tuple[str, ...]) -> DshpcError:
    reason, todo = why(log)
    return DshpcError(
        "Docker did not start" + (f": {reason[0].lower()}{reason[1:]}" if reason else ""),
        log or "It left no log.",
        (*todo, *by_hand, "Then run this again."),
    )


def _no_answer(log: str, by_hand: tuple[str, ...]) -> DshpcError:
    return DshpcError(
        f"Docker was started, but did not answer within {_UP_S:.0f} seconds",
        log or "It left no log.",
        ("See whether it comes up: docker version", *by_hand),
        Exit.INCOMPLETE,
    )


def _last(text: str, count: int = 12) -> str:
    return "\n".join([line for line in text.splitlines() if line.strip()][-count:])
