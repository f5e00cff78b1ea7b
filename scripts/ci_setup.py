"""A cluster for a job of continuous integration: set up, and its commands in a folder for the PATH.

Started by scripts/ci-setup.sh with the Python of the checkout's environment. What is wanted stands in
variables, never in a command line that a shell puts together: DSHPC_CI_SIMULATE, DSHPC_CI_NODES and
DSHPC_CI_ENGINE are action.yml's inputs. The folder that jobs see is the job's checkout: GITHUB_WORKSPACE,
CI_PROJECT_DIR of GitLab, else the one that this was started in.

Prints the folder for the PATH, and writes it where GitHub's runner reads it.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dshpc_setup import cli
from dshpc_setup.errors import DshpcError, Exit, usage_error
from dshpc_setup.files.atomic import make_folder, write_atomic, write_error
from dshpc_setup.project import on_path, trust
from dshpc_setup.terminal.command_names import print_error

ROOT = Path(__file__).resolve().parents[1]
NAME = "dshpc-ci"


@dataclass(frozen=True)
class Wanted:
    """What the runner says: settings as flags, the folder that jobs see, files that the runner reads."""

    flags: tuple[str, ...]
    work: str
    path_file: str | None = None
    output_file: str | None = None


def wanted(env: Mapping[str, str], here: str) -> Wanted:
    """What a setting may be is for configure to say."""
    # each is said, also where it is the default: a runner that is kept would remember the last job's
    nodes = env.get("DSHPC_CI_NODES", "").strip() or "1"
    simulate = env.get("DSHPC_CI_SIMULATE", "").strip()
    # A list of nodes says what the first one simulates
    made_up = (f"--simulate={simulate or 'none'}",) if simulate or nodes.isdecimal() else ()
    engine = env.get("DSHPC_CI_ENGINE", "").strip() or "auto"
    work = env.get("GITHUB_WORKSPACE") or env.get("CI_PROJECT_DIR") or here
    files = (env.get("GITHUB_PATH") or None, env.get("GITHUB_OUTPUT") or None)
    return Wanted((*made_up, f"--nodes={nodes}", f"--engine={engine}"), work, *files)


def candidates(env: Mapping[str, str], home: str) -> list[str]:
    """Where the cluster's own files may lie, the best first. Outside of the checkout: they are none of it.

    RUNNER_TEMP is emptied with each job. In a container of GitHub's it belongs to somebody else, and so does
    HOME: the home that the machine knows for the user is the last.
    """
    above = [env.get("RUNNER_TEMP"), env.get("HOME"), home]
    return [os.path.join(each, NAME) for each in above if each and os.path.isabs(each)]


def choose(folders: Iterable[str]) -> Path:
    """The first that this user can have for himself; DshpcError says of each why not."""
    refused = []
    for name in folders:
        try:
            place = trust.judged(os.path.realpath(name))
            if place.fault is None:
                make_folder(Path(name), mode=0o700)
                return Path(name)
            refused.append(place.fault.why)
        except OSError as error:
            refused.append(f"{name}: {error.strerror or error}")
        except DshpcError as error:
            refused.append(error.brief)
    raise DshpcError(
        "There is no place for the cluster's own files.",
        "\n".join(dict.fromkeys(refused)),
        ("Name a folder that nobody but you can write to: export RUNNER_TEMP=DIR",),
    )


def put_wrappers(folder: Path) -> Path:
    """The folder for the PATH."""
    programs = folder / "bin"
    make_folder(programs)
    for command in ("dshpc", *on_path.SLURM):
        # whoever names another cluster means that one
        text = on_path.wrapper(str(ROOT / "dshpc"), command, "DSHPC_DIR", str(folder))
        write_atomic(programs / command, text, 0o755)
    return programs


def tell_runner(file: str | None, line: str) -> None:
    """One line more in a file of the runner's; raises DshpcError."""
    if file is None:
        return
    if "\n" in line or "\r" in line:  # would be two
        raise DshpcError(f"A path with a line break cannot be told to the runner: {line!r}")
    try:
        with open(file, "a", encoding="utf-8", errors="surrogateescape") as out:
            out.write(f"{line}\n")
    except OSError as error:
        raise write_error(error, file) from None


def set_up(asked: Wanted, folder: Path) -> int:
    """Run configure-environment, all of whose words go to stderr; its exit code."""
    words = ["configure", "--yes", f"--dir={folder}", f"--work={asked.work}", *asked.flags]
    with contextlib.redirect_stdout(sys.stderr):
        return cli.run(words, "configure-environment")


def run(env: Mapping[str, str], arguments: Sequence[str]) -> int:
    if arguments:
        raise usage_error(
            f"{arguments[0]!r}: no argument is taken.",
            "What is wanted stands in variables.",
            "For example: DSHPC_CI_SIMULATE=h100:2 ci-setup.sh",
        )
    asked = wanted(env, os.getcwd())
    folder = choose(candidates(env, pwd.getpwuid(os.geteuid()).pw_dir))
    programs = put_wrappers(folder)
    # before the cluster is up: a step that looks what went wrong has dshpc, too
    tell_runner(asked.path_file, str(programs))
    tell_runner(asked.output_file, f"folder={folder}")
    if (code := set_up(asked, folder)) != 0:
        return code
    print(f"srun, sbatch and Slurm's other commands are in {programs}", file=sys.stderr)
    print(programs, flush=True)
    return 0


def main() -> int:
    """The exit code: configure-environment's, or 2, or 64 for what is asked wrongly."""
    try:
        return run(os.environ, sys.argv[1:])
    except DshpcError as error:
        print_error(error, "ci-setup")
        return int(error.exit_code)
    except KeyboardInterrupt:
        return int(Exit.INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main())
