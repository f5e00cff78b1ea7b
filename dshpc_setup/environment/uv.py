"""uv on the host, told to choose and install for the image. It builds nothing from source."""

from __future__ import annotations

import re
import sys
import sysconfig
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from dshpc_setup.builtin import cache
from dshpc_setup.engine.site import SiteFiles
from dshpc_setup.environment import pip_settings, target, uv_failures
from dshpc_setup.environment.model import Requirement
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import CommandResult, Machine

DEADLINE_S = 6 * 3600.0  # PyTorch's 3 GB on a slow line; where nothing comes, uv gives up by itself
_EXPORT_S = 120.0
# No uv.toml is read: it would be looked for in all folders above the one that uv is run in
_QUIET = ("--no-config", "--no-progress", "--color=never")


@dataclass(frozen=True)
class Uv:
    """The program, the Python that runs us, and what it needs to know of this site."""

    program: str
    python: str
    architecture: str
    env: Mapping[str, str]
    options: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()


def find(machine: Machine, architecture: str, site: SiteFiles) -> Uv:
    """uv of our own environment, or else that of the PATH."""
    own = str(Path(sysconfig.get_path("scripts")) / "uv")
    program = own if machine.exists(own) else machine.which("uv")
    if program is None:
        raise DshpcError(
            "Locking and fetching Python packages needs uv, which comes with dsHPC, and there is none.",
            f"Looked for {own}, and on the PATH.",
            ("Install dsHPC again, or install uv: https://docs.astral.sh/uv",),
        )
    told = pip_settings.read(machine.env, lambda path: machine.read(path).text, sys.prefix)
    env = {"UV_PYTHON_DOWNLOADS": "never", "LC_ALL": "C", **pip_settings.for_uv(told, machine.env)}
    options = ("--no-index",) if pip_settings.is_on(told.get("no-index")) else ()
    return Uv(program, sys.executable, architecture, env, options, site.secrets)


def of_jobs(machine: Machine, uv: Uv) -> Uv:
    """With a cache for what jobs may write in: their files are links to it. What the image and this machine's
    own programs are made of stays out of their reach."""
    told = machine.env.get("UV_CACHE_DIR")
    kept = f"{told.rstrip('/')}-of-jobs" if told else f"{cache.place(machine.env)}/uv"
    return replace(uv, env={**uv.env, "UV_CACHE_DIR": kept})


def resolve(machine: Machine, uv: Uv, wanted: Iterable[Requirement], cwd: Path) -> str:
    """What the packages and all that they need come down to, as the text of a pylock.toml (PEP 751)."""
    argv = [*_call(uv, "compile"), "--format=pylock.toml", "--no-header", "-"]
    done = machine.run(
        argv,
        deadline_s=DEADLINE_S,
        env=uv.env,
        cwd=str(cwd),
        # One a line, and none is an option: see requirement.parse
        stdin="".join(f"{each}\n" for each in wanted),
    )
    return _good(done, uv).stdout


def install(
    machine: Machine, uv: Uv, requirements: Path, into: Path, say: Callable[[str], None]
) -> None:
    """Install what a file with hashes names, and nothing else, into a folder of its own."""
    argv = [
        *_call(uv, "install"),
        *("--no-deps", "--require-hashes", "--link-mode=hardlink"),
        f"--target={into}",
        f"--requirements={requirements}",
    ]
    done = machine.run(
        argv,
        deadline_s=DEADLINE_S,
        env={**uv.env, "UV_CONSTRAINT": ""},  # what is locked is constrained enough
        cwd=str(requirements.parent),
        on_line=_shown(say),
    )
    _good(done, uv)


def install_prefix(
    machine: Machine, uv: Uv, file: Path, into: Path, say: Callable[[str], None]
) -> None:
    """Install what a requirements file, or a pylock.toml, comes down to, in the layout of an environment."""
    argv = [
        *_call(uv, "install"),
        *("--preview-features=pylock", f"--prefix={into}", f"--requirements={file}"),
    ]
    # What is locked is constrained enough, and uv takes no constraints beside a lock
    env = {**uv.env, "UV_CONSTRAINT": ""} if file.suffix == ".toml" else uv.env
    done = machine.run(
        argv, deadline_s=DEADLINE_S, env=env, cwd=str(file.parent), on_line=_shown(say)
    )
    _good(done, uv, of_cluster=False)


def install_beside(
    machine: Machine, uv: Uv, file: Path, site: Path, python: str, say: Callable[[str], None]
) -> None:
    """Install what a requirements file comes down to into the modules of another Python: what is there and
    fits stays."""
    argv = [
        *_call(uv, "install", python),
        *(f"--target={site}", f"--requirements={file}"),
    ]
    done = machine.run(
        argv, deadline_s=DEADLINE_S, env=uv.env, cwd=str(file.parent), on_line=_shown(say)
    )
    _good(done, uv, of_cluster=False)


def install_own(machine: Machine, uv: Uv, requirements: Path, into: Path) -> None:
    """Install what a file with hashes names for the Python that runs us, as files of its own: what is kept
    in uv's cache may be linked to by what jobs write in."""
    argv = [
        *(uv.program, "pip", "install", *_QUIET, f"--python={uv.python}", "--only-binary=:all:"),
        *uv.options,
        *("--no-deps", "--require-hashes", "--link-mode=copy"),
        *(f"--target={into}", f"--requirements={requirements}"),
    ]
    env = {**uv.env, "UV_CONSTRAINT": ""}
    done = machine.run(argv, deadline_s=DEADLINE_S, env=env, cwd=str(into.parent))
    _good(done, uv, of_cluster=False)


def export(machine: Machine, uv: Uv, folder: Path) -> str:
    """A project's uv.lock as the text of a pylock.toml, without what lies in folders of this machine."""
    argv = [
        *(uv.program, "export", *_QUIET, "--quiet", f"--python={uv.python}", "--frozen"),
        *("--format=pylock.toml", "--no-header", "--no-emit-workspace", "--no-emit-local"),
    ]
    return _good(
        machine.run(argv, deadline_s=_EXPORT_S, env=uv.env, cwd=str(folder)), uv, of_cluster=False
    ).stdout


def _shown(say: Callable[[str], None]) -> Callable[[str], None]:
    """Of what uv prints, which packages are being fetched."""

    def show(line: str) -> None:
        found = re.match(r"\s*Downloading (\S+)(?: \(([0-9.]+)([KMG]iB)\))?", line)
        if found:
            size = f" ({found[2]} {found[3]})" if found[2] else ""
            say(f"packages: downloading {found[1]}{size}")

    return show


def _call(uv: Uv, command: str, python: str = target.FULL) -> list[str]:
    return [
        *(uv.program, "pip", command, *_QUIET, f"--python={uv.python}"),
        *target.options(uv.architecture, python),
        *uv.options,
    ]


def _good(done: CommandResult, uv: Uv, *, of_cluster: bool = True) -> CommandResult:
    if not done.ok:
        raise uv_failures.error(done, uv.secrets, of_cluster=of_cluster)
    return done
