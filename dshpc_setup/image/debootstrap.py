"""Making the base image from Debian's package mirror, for sites that reach no image registry.

One shell script runs as root (one question of sudo), a second one cleans up after it in every case.
Everything happens below one folder of our own; what is changed in the new root is changed by a
process chrooted into it, so that no link in it can lead outside.
"""

from __future__ import annotations

import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dshpc_setup.engine.build_failures import redacted, tail
from dshpc_setup.engine.images import debian_arch
from dshpc_setup.engine.packages import install
from dshpc_setup.engine.privilege import run_as_root
from dshpc_setup.engine.site import SiteFiles, apt_settings
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import HostFacts
from dshpc_setup.image.mirror import RELEASE, Mirror
from dshpc_setup.image.root_scripts import CLEAN, MAKE
from dshpc_setup.machine import CommandResult, Machine
from dshpc_setup.machine.no_answer import in_words
from dshpc_setup.terminal.reporter import Reporter

NEEDED_MIB = 1500  # seen: 0.5 GiB of root and packages and 0.2 GiB of archive; the rest is reserve
_MAKE_S = 1800.0
_CLEAN_S = 120.0
_ASK_S = 20.0

_PROGRAMS = ("/usr/sbin/debootstrap", "/usr/bin/debootstrap", "/sbin/debootstrap")
_SCRIPT = f"/usr/share/debootstrap/scripts/{RELEASE}"
_KEYRINGS = (
    "/usr/share/keyrings/debian-archive-keyring.gpg",
    "/usr/share/keyrings/debian-archive-keyring.pgp",
)


@dataclass(frozen=True)
class Recipe:
    """What to make: Debian's name of the processor, the keyring, the mirror and how to reach it."""

    arch: str
    keyring: str
    mirror: Mirror | None
    site: SiteFiles
    script: str = ""  # debootstrap's script where it knows no script of that release

    def arguments(self, root: str) -> list[str]:
        """debootstrap's own arguments."""
        main = self.mirror.main if self.mirror else ""
        return [
            f"--arch={self.arch}",
            "--variant=minbase",
            "--components=main",
            f"--keyring={self.keyring}",
            "--force-check-gpg",  # never without a verified signature
            RELEASE,
            root,
            *([main, self.script] if self.script else [main] if main else []),
        ]


def recipe(
    machine: Machine,
    facts: HostFacts,
    mirror: Mirror | None,
    site: SiteFiles,
    reporter: Reporter,
    *,
    interactive: bool,
) -> Recipe:
    """What debootstrap is to do here; offers to install it. Raises where it cannot be used."""
    arch = debian_arch(facts.engine.arch or facts.platform.arch or "")
    if machine.system[0] != "Linux" or debian_arch(facts.platform.arch or "") != arch:
        raise cannot_make(
            f"debootstrap needs Linux on {arch}; this is {machine.system[0]} on "
            f"{facts.platform.arch}."
        )
    _have_tools(machine, facts, reporter, interactive)
    script = "" if machine.exists(_SCRIPT) else str(Path(_SCRIPT).with_name("sid"))
    return Recipe(arch, _keyring(machine) or _KEYRINGS[0], mirror, site, script)


def cannot_make(details: str) -> DshpcError:
    """The base image is neither there nor to be had; says which ways are left."""
    return DshpcError(
        "There is no base image: no registry answers, and it cannot be made here.",
        details,
        (
            "Reach a registry (the engine's proxy and registry-mirror settings), then run again.",
            "Or name an image of Debian trixie that you can reach: "
            "--base-image registry.example.org/debian:trixie-slim.",
            "Or carry it in from a machine that has it: `docker save debian:trixie-slim` there, "
            "`docker load` here.",
        ),
    )


@contextmanager
def archive(
    machine: Machine, plan: Recipe, reporter: Reporter, *, interactive: bool
) -> Iterator[Path]:
    """The root as a tar file while the context lasts; nothing of it is left afterwards."""
    work = _workplace(machine)
    try:
        (work / ".dshpc-base").touch()
        _write_proxies(machine, work, plan.site)
        main, security = (plan.mirror.main, plan.mirror.security) if plan.mirror else ("", None)
        argv = ["sh", "-c", MAKE, "sh", str(work), main, security or ""]
        result = run_as_root(
            machine,
            [*argv, *plan.arguments(str(work / "root"))],
            interactive=interactive,
            deadline_s=_MAKE_S,
            by_hand=(["debootstrap", *plan.arguments("/var/tmp/base")],),
            on_line=_progress(reporter),
        )
        if not result.ok:
            raise _failed(machine, result, work, plan.site)
        yield work / "base.tar"
    finally:
        _clean(machine, work, interactive)


def _progress(reporter: Reporter) -> Callable[[str], None]:
    def show(line: str) -> None:
        found = re.match(r"I: (Retrieving|Validating|Extracting|Unpacking|Configuring) (\S+)", line)
        if found:
            reporter.progress(f"base image: {found[1].lower()} {found[2].rstrip('.')}")

    return show


def _workplace(machine: Machine) -> Path:
    """A new private folder where there is room and device files and programs are allowed."""
    refused = []
    for folder in dict.fromkeys((machine.env.get("TMPDIR") or "/var/tmp", "/var/tmp", "/tmp")):
        why = _unfit(machine, folder)
        if why is None:
            try:
                return Path(tempfile.mkdtemp(prefix="dshpc-base.", dir=folder))
            except OSError as error:
                why = str(error)
        refused.append(f"{folder}: {why}")
    raise DshpcError(
        f"No folder has the {NEEDED_MIB} MiB that making the base image takes.",
        "\n".join(refused),
        ("Free some space, or set TMPDIR to a folder on a bigger disk, and run again.",),
    )


def _unfit(machine: Machine, folder: str) -> str | None:
    """Why the folder cannot hold a root file system, None where it can."""
    free = machine.run(["df", "-Pk", folder], deadline_s=_ASK_S)
    if free.state == "timeout":
        return in_words(free)
    rows = free.stdout.strip().splitlines()
    if not free.ok or len(rows) < 2:
        return free.text or "its free space cannot be told"
    free_mib = int(rows[-1].split()[3]) // 1024
    if free_mib < NEEDED_MIB:
        return f"only {free_mib} MiB are free"
    mount = machine.run(["findmnt", "-no", "OPTIONS", "-T", folder], deadline_s=_ASK_S)
    if mount.state == "timeout":
        return in_words(mount)
    forbidden = {"nodev", "noexec"} & set(mount.stdout.strip().split(","))
    return f"mounted with {' and '.join(sorted(forbidden))}" if forbidden else None


def _write_proxies(machine: Machine, work: Path, site: SiteFiles) -> None:
    """How to reach the mirror, as a file that only we and root read: `ps` shows every argument."""
    env = site.proxy_env()
    for key, value in apt_settings(machine):
        scheme = re.fullmatch(r"Acquire::(https?)::Proxy", key, re.IGNORECASE)
        if scheme and value != "DIRECT":
            env[f"{scheme[1].lower()}_proxy"] = value
    if env:
        file = work / "proxies"
        file.touch(0o600)
        file.write_text("".join(f"{key}={shlex.quote(value)}\n" for key, value in env.items()))


def _clean(machine: Machine, work: Path, interactive: bool) -> None:
    if not (work / "root").exists():
        shutil.rmtree(work)  # nothing in it belongs to root
        return
    result = run_as_root(
        machine,
        ["sh", "-c", CLEAN, "sh", str(work)],
        interactive=interactive,
        deadline_s=_CLEAN_S,
    )
    if not result.ok:
        raise DshpcError(
            f"The temporary folder {work} could not be removed.",
            tail(result.text),
            (f"See what is mounted there (findmnt -R {work}), unmount it and remove the folder.",),
        )


def _have_tools(machine: Machine, facts: HostFacts, reporter: Reporter, interactive: bool) -> None:
    missing = [] if _program(machine) else ["debootstrap"]
    if _keyring(machine) is None:
        family = {facts.platform.os_id, *facts.platform.os_like}
        # Fedora and its relatives call the archive's keys by another name
        missing.append(
            "debian-keyring" if family & {"fedora", "rhel"} else "debian-archive-keyring"
        )
    if not missing:
        return
    names = " and ".join(missing)
    if not reporter.ask(
        f"No registry answers, so the base image is made from Debian packages. Install {names}?"
    ):
        raise cannot_make(f"It would be made with {names}, which is not installed.")
    install(machine, facts.platform, missing, reporter, interactive=interactive)
    if not _program(machine) or _keyring(machine) is None:
        raise cannot_make(f"{names} was installed, but is not where it is expected.")


def _program(machine: Machine) -> bool:
    # /usr/sbin is not on the PATH of Debian's ordinary users
    return bool(machine.which("debootstrap")) or any(map(machine.exists, _PROGRAMS))


def _keyring(machine: Machine) -> str | None:
    return next((path for path in _KEYRINGS if machine.exists(path)), None)


def _failed(machine: Machine, result: CommandResult, work: Path, site: SiteFiles) -> DshpcError:
    log = machine.read(str(work / "root/debootstrap/debootstrap.log")).text or ""
    text = redacted(tail(f"{log}\n{result.text}"), site.secrets)
    brief, advice = _classified(result, text)
    return DshpcError(
        f"Making the base image failed: {brief}.",
        text,
        (advice, "Or name an image of Debian trixie that you can reach: --base-image IMAGE."),
    )


def _classified(result: CommandResult, text: str) -> tuple[str, str]:
    """What happened and what to do, for debootstrap's and its tools' words."""
    if result.state == "timeout":
        return (
            f"it was not done within {_MAKE_S / 60:.0f} minutes",
            "See how fast the package mirror answers; --apt-mirror URL names another one.",
        )
    for pattern, brief, advice in _FAILURES:
        if re.search(pattern, text, re.IGNORECASE):
            return brief, advice
    return "debootstrap ended with an error", "See the lines above for what it met."


_FAILURES = (
    (
        r"unknown key|Invalid Release signature|KEYEXPIRED|gpgv?: .*error",
        "the package archive's signature could not be verified",
        "Bring the package debian-archive-keyring (Fedora: debian-keyring) up to date; an archive "
        "that nobody signed is not used.",
    ),
    (r"No space left", "the disk is full", "Free some space and run again."),
    (
        r"noexec or nodev|Operation not permitted|cannot mount|mknod",
        "this machine does not allow it",
        "In a container or on a restricted mount debootstrap cannot work; set TMPDIR to another "
        "folder, or bring the base image from elsewhere.",
    ),
    (
        r"Failed getting release file|Couldn't download|unable to resolve|Could not resolve",
        "the package mirror could not be reached",
        "Check the network, the proxy settings (http_proxy) and --apt-mirror.",
    ),
)
