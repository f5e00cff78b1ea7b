"""Installing packages of the distribution, never removing one: apt, dnf, zypper, pacman, apk."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dshpc_setup.engine.privilege import run_as_root, steps
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import Platform
from dshpc_setup.machine import CommandResult, Machine
from dshpc_setup.machine.no_answer import answered
from dshpc_setup.terminal.reporter import Reporter

ManagerName = Literal["apt", "dnf", "zypper", "pacman", "apk"]

_QUERY_S = 120.0  # dnf fetches its metadata for a query
_REFRESH_S = 300.0
_INSTALL_S = 1800.0
_LOCK_S = 600  # how long another package manager may hold the lock

# A query must not depend on the user's language; sudo would drop the proxy.
_PROXIES = (
    "http_proxy",
    "https_proxy",
    "ftp_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
)


@dataclass(frozen=True)
class Manager:
    """How one package manager is spoken to, always without a question."""

    name: ManagerName
    program: str
    query: tuple[str, ...]  # + one name
    install: tuple[str, ...]  # + names
    refresh: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()


_APT = ("apt-get", "-o", f"DPkg::Lock::Timeout={_LOCK_S}", "-q")
# Without recommendations the list shown to the user is the list that is installed.
# The options keep configuration files that somebody changed, instead of asking.
_APT_INSTALL = (
    *_APT,
    "-y",
    "--no-install-recommends",
    "--no-remove",
    "-o",
    "Dpkg::Options::=--force-confdef",
    "-o",
    "Dpkg::Options::=--force-confold",
    "install",
)
# needrestart (a default of Ubuntu) would restart services of others, or ask.
_APT_ENV = (("DEBIAN_FRONTEND", "noninteractive"), ("NEEDRESTART_SUSPEND", "1"))

MANAGERS: tuple[Manager, ...] = (
    Manager("apt", "apt-get", ("apt-cache", "policy"), _APT_INSTALL, (*_APT, "update"), _APT_ENV),
    Manager("dnf", "dnf", ("dnf", "-q", "list"), ("dnf", "-y", "install"), ("dnf", "makecache")),
    Manager(
        "zypper",
        "zypper",
        ("zypper", "-n", "--no-refresh", "search", "--match-exact", "--type", "package"),
        ("zypper", "-n", "install", "--no-recommends"),
        ("zypper", "-n", "refresh"),
    ),
    # --needed: what is there already is not installed once more
    Manager(
        "pacman",
        "pacman",
        ("pacman", "-Si"),
        ("pacman", "-S", "--noconfirm", "--needed"),
        ("pacman", "-Sy", "--noconfirm"),
    ),
    Manager("apk", "apk", ("apk", "search", "--exact"), ("apk", "add"), ("apk", "update")),
)


def manager(machine: Machine) -> Manager | None:
    """The package manager of this machine, or None."""
    return next((each for each in MANAGERS if machine.which(each.program)), None)


def available(machine: Machine, manager: Manager, name: str) -> bool:
    """Whether the package is installed or can be, as far as the local lists know.

    Raises DshpcError (INCOMPLETE) where the package manager does not answer.
    """
    asked = machine.run([*manager.query, name], deadline_s=_QUERY_S, env={"LC_ALL": "C"})
    done = answered(asked, f"whether {name} can be installed")
    if not done.ok:
        return False
    match manager.name:
        case "apt":  # an unknown name prints nothing; a virtual one has no candidate
            found = re.search(r"^\s*Candidate: (\S+)", done.stdout, re.MULTILINE)
            return found is not None and found.group(1) != "(none)"
        case "apk":  # says 0 for nothing found as well
            return bool(re.search(rf"^{re.escape(name)}-\d", done.stdout, re.MULTILINE))
        case _:  # dnf, pacman: 1 for no match; zypper: 104
            return True


def refresh(machine: Machine, manager: Manager, reporter: Reporter, *, interactive: bool) -> str:
    """Fetch the package lists; "" or what the tool said against it.

    A failure is no error here: one foreign repository that does not answer must not stop an
    installation from the others. It is told when the installation fails.
    """
    if manager.name == "pacman" and "core.db" in machine.listdir("/var/lib/pacman/sync"):
        # Newer lists without a whole upgrade leave an Arch machine half upgraded.
        return ""
    reporter.progress(f"Fetching the package lists ({manager.program})")
    done = run_as_root(
        machine,
        manager.refresh,
        interactive=interactive,
        deadline_s=_REFRESH_S,
        env=_environment(machine, manager),
    )
    return "" if done.ok else last_lines(done)


def install(
    machine: Machine,
    platform: Platform,
    packages: Sequence[str],
    reporter: Reporter,
    *,
    interactive: bool = False,
) -> None:
    """Install the packages with everything they depend on; raises `DshpcError`, removes nothing.

    Waits for another package manager that is at work. Lists are fetched where they do not know a
    package, or where they turn out to be stale.
    """
    if not packages:
        return
    tool = _manager_or_raise(machine, platform, packages)
    by_hand = ([*manager_by_hand(tool), *packages],)
    refreshed: str | None = None
    if missing := [name for name in packages if not available(machine, tool, name)]:
        refreshed = refresh(machine, tool, reporter, interactive=interactive)
        if missing := [name for name in missing if not available(machine, tool, name)]:
            raise _unknown(tool, missing, refreshed)
    done = _install(machine, tool, packages, reporter, interactive)
    if not done.ok and refreshed is None and _stale(done):
        refreshed = refresh(machine, tool, reporter, interactive=interactive)
        done = _install(machine, tool, packages, reporter, interactive)
    if not done.ok:
        raise _failed(tool, packages, done, steps(by_hand))


def manager_by_hand(tool: Manager) -> tuple[str, ...]:
    """The installation as a person would type it."""
    return {
        "apt": ("apt-get", "install"),
        "dnf": ("dnf", "install"),
        "zypper": ("zypper", "install"),
        "pacman": ("pacman", "-S"),
        "apk": ("apk", "add"),
    }[tool.name]


def _install(
    machine: Machine,
    tool: Manager,
    packages: Sequence[str],
    reporter: Reporter,
    interactive: bool,
) -> CommandResult:
    names = " ".join(packages)
    reporter.progress(f"Installing {names}")

    def show(line: str) -> None:
        if line.strip():
            reporter.progress(f"Installing {names}: {line.strip()[:100]}")

    return run_as_root(
        machine,
        [*tool.install, *packages],
        interactive=interactive,
        deadline_s=_INSTALL_S,
        env=_environment(machine, tool),
        by_hand=([*manager_by_hand(tool), *packages],),
        on_line=show,
    )


def _environment(machine: Machine, tool: Manager) -> dict[str, str]:
    proxies = {key: machine.env[key] for key in _PROXIES if machine.env.get(key)}
    return {"LC_ALL": "C", **dict(tool.env), **(proxies if machine.uid != 0 else {})}


def _manager_or_raise(machine: Machine, platform: Platform, packages: Sequence[str]) -> Manager:
    tool = manager(machine)
    if tool is not None and platform.kind != "macos":
        return tool
    names = " ".join(packages)
    raise DshpcError(
        f"No way to install {names} by itself",
        f"This machine ({platform.os_id or platform.kind}) has none of "
        f"{', '.join(each.program for each in MANAGERS)}.",
        (f"Install {names} in the way that this system has for it, then run this again.",),
    )


def _stale(done: CommandResult) -> bool:
    """Whether the lists speak of files that the mirror no longer has."""
    return bool(
        re.search(
            r"\b404\b|Unable to fetch|Failed to fetch|failed retrieving file|Unable to locate",
            done.text,
        )
    )


def _unknown(tool: Manager, missing: Sequence[str], refresh_failure: str) -> DshpcError:
    names = " ".join(missing)
    if refresh_failure:
        return DshpcError(
            f"The package lists could not be fetched, and {names} is not in the old ones",
            refresh_failure,
            (
                f"Check the network and the proxy, then: {steps([tool.refresh])[0]}",
                "Run this again.",
            ),
        )
    hint = {
        "apt": "On Ubuntu the component universe may be off: sudo add-apt-repository universe",
        "apk": "The community repository may be off: see /etc/apk/repositories",
        "pacman": "The lists may be old: sudo pacman -Syu",
    }.get(tool.name, "A repository that has it may be off: see the repositories of this machine.")
    return DshpcError(
        f"This machine's package repositories have no {names}",
        f"{tool.program} was asked after its lists were fetched.",
        (hint, f"Install {names} in another way, then run this again."),
    )


def _failed(
    tool: Manager, packages: Sequence[str], done: CommandResult, by_hand: tuple[str, ...]
) -> DshpcError:
    text = done.text
    todo: tuple[str, ...]
    if done.state == "timeout":
        brief, todo = f"{tool.program} was not done after {_INSTALL_S / 60:.0f} minutes", by_hand
    elif re.search(
        r"[Cc]ould not get lock|[Uu]nable to acquire.*lock|is locked|[Uu]nable to lock", text
    ):
        brief = "Another package manager is at work and did not end in time"
        todo = (
            "Wait until it is done (an automatic upgrade, a software centre), then run this again.",
        )
    elif re.search(
        r"No space left|not enough free (?:disk )?space|don't have enough free space", text
    ):
        brief = "The disk is too full to install packages"
        todo = ("Make room (df -h shows which disk), then run this again.",)
    elif "dpkg was interrupted" in text:
        brief = "An earlier installation was interrupted and has to be ended first"
        todo = (steps([["dpkg", "--configure", "-a"]])[0], "Run this again.")
    elif re.search(
        r"unmet dependencies|held broken packages|nothing provides|Packages need to be "
        r"removed|conflicts? with",
        text,
    ):
        brief = f"{tool.program} cannot install {' '.join(packages)} beside what is installed"
        todo = (
            "Nothing was removed. See the lines above for the package in the way; "
            "where Docker's own packages (docker-ce) are installed, those will do.",
            *by_hand,
        )
    else:
        brief = f"{tool.program} could not install {' '.join(packages)}"
        todo = by_hand
    return DshpcError(brief, last_lines(done), todo)


def last_lines(done: CommandResult, count: int = 15) -> str:
    """The end of what a command said, with how it ended where it said nothing."""
    lines = [line.rstrip() for line in done.text.splitlines() if line.strip()]
    ending = f"{done.argv[0]}: " + (
        f"exit code {done.code}" if done.state == "present" else f"{done.state}"
    )
    return "\n".join(lines[-count:]) or ending
