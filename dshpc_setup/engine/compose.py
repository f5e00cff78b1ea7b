"""Docker Compose, v2 or v1, always on our own file and under our own project name."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import PurePath

from dshpc_setup.engine.packages import last_lines
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.facts import Compose
from dshpc_setup.machine import CommandResult, Machine

FILE = "docker-compose.yml"
CHECK_S = 20.0
_UP_S = 180.0
_TRACE = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n)*", re.MULTILINE)

# Of the user's own COMPOSE_ variables these change how, not what: they stay.
_KEPT = ("COMPOSE_HTTP_TIMEOUT", "COMPOSE_PARALLEL_LIMIT", "COMPOSE_TLS_VERSION")

_REASONS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        r"could not select device driver|unknown or invalid runtime name|CDI device injection",
        "Docker cannot pass the GPU through",
        ("dshpc doctor says what is missing.",),
    ),
    (
        r"[Cc]onflict\. The container name",
        "The container's name is taken by another container",
        ("See whose it is: docker ps -a", "Or choose another name: --prefix NAME"),
    ),
    (
        r"port is already allocated|address already in use",
        "A network port is taken by another program",
        ("See who has it: ss -ltnp",),
    ),
    (
        r"[Nn]o such image|pull access denied|manifest unknown",
        "The image is not there",
        ("Build it: configure-environment (without --no-build)",),
    ),
    (
        r"[Nn]o space left on device",
        "The disk is full",
        ("Make room: df -h shows which disk is full, docker system df what Docker holds.",),
    ),
    (
        r"KeyError: 'ContainerConfig'",  # compose v1 reads a field that Docker 25 no longer sends
        "This docker-compose (1.x) cannot replace a container of this newer Docker",
        ("Install Compose v2, or remove the container first: dshpc down",),
    ),
    (
        r"[Cc]annot connect to the Docker daemon|Couldn't connect to Docker daemon",
        "The Docker engine does not answer",
        ("dshpc doctor says why.",),
    ),
    (
        r"permission denied.*docker\.sock|PermissionError\(13",
        "You may not use Docker",
        ("sudo usermod -aG docker USER, then log out and in",),
    ),
    (
        r"setting rlimit|setrlimit",  # runc, crun
        "This engine may not raise the limits of a container",
        (
            f"Take `ulimits` out of {FILE} and add the line # USER_CUSTOMIZED=true there, then run "
            "this again.",
        ),
    ),
    (
        r"seccomp profile",  # "Error reading seccomp profile", "opening seccomp profile (...) failed"
        f"The seccomp profile that {FILE} names cannot be read",
        ("Write it again: configure-environment",),
    ),
    (
        r"yaml:|ScannerError|Unsupported config option|validating .*: |is invalid because",
        f"{FILE} is broken, or this compose is too old for it",
        (f"Where you changed {FILE}: look at the line above.",),
    ),
)


def command(
    machine: Machine, compose: Compose, project_dir: str, project: str, args: Sequence[str]
) -> list[str]:
    """The argv of one compose call; what the user's shell has set does not reach it.

    A variable of the shell would win over the same one in `.env`, so those are taken away as well.
    """
    path = f"{project_dir.rstrip('/')}/{FILE}"
    return _command(machine, compose, project_dir, path, ["-p", project, *args])


def check(
    machine: Machine, compose: Compose, text: str, *, folder: str, deadline_s: float = CHECK_S
) -> str | None:
    """Whether this compose tool takes a text for the compose file of a folder: None, or its refusal.

    The tool alone is asked (`config -q`): nothing is written, no engine is needed. Version 1 wants a
    build context to be there. A version below 2.30 may take keys that it does not carry out:
    `gpu_stanza` keeps to those that it does. Raises DshpcError where there is no answer, which is no
    refusal: INCOMPLETE at the deadline, ERROR where the tool cannot be run any more.
    """
    args = ["config", "-q"]
    # A name of its own: one made from the folder's may be empty, and none may stand in .env
    done = with_text(
        machine, compose, text, args, folder=folder, project="dshpc-check", deadline_s=deadline_s
    )
    if done.state != "present":
        raise failure(done, compose, args, deadline_s)
    if done.code == 0:
        return None
    return _TRACE.sub("", f"{done.text}\n").strip() or f"exit code {done.code}"


def with_text(
    machine: Machine,
    compose: Compose,
    text: str,
    args: Sequence[str],
    *,
    folder: str,
    project: str,
    deadline_s: float,
) -> CommandResult:
    """Run `compose ARGS` with this text for the compose file of a folder, however that ends."""
    return machine.run(
        _command(machine, compose, folder, "-", ["-p", project, *args]),
        deadline_s=deadline_s,
        stdin=text,
        env={"PYTHONIOENCODING": "utf-8"},  # v1 reads stdin in the encoding of the locale
        cwd=folder if machine.exists(folder) else None,  # where v1 looks for .env with `-f -`
    )


def images(text: str) -> tuple[str, ...]:
    """The images that the services of a compose file name; () of what is no such file."""
    from dshpc_setup.documents import yaml_nodes  # PyYAML takes its time

    try:
        services = yaml_nodes.load(text)["services"].values()
        named = [each.get("image") for each in services if isinstance(each, dict)]
    except (ValueError, LookupError, TypeError, AttributeError):
        return ()
    return tuple(name for name in named if isinstance(name, str))


def run_compose(
    machine: Machine,
    compose: Compose,
    project_dir: str,
    args: Sequence[str],
    *,
    project: str,
    deadline_s: float,
    on_line: Callable[[str], None] | None = None,
) -> CommandResult:
    """Run `compose ARGS` in the project folder; raises `DshpcError` unless it ends with 0.

    With `on_line` both streams come line by line, and as `stdout` in the result.
    """
    argv = command(machine, compose, project_dir, project, args)
    done = machine.run(argv, deadline_s=deadline_s, cwd=project_dir, on_line=on_line)
    if not done.ok:
        raise failure(done, compose, args, deadline_s)
    return done


def up(
    machine: Machine,
    compose: Compose,
    project_dir: str | PurePath,
    project: str,
    *,
    on_line: Callable[[str], None] | None = None,
    recreate: bool = True,
) -> CommandResult:
    """Create and start the project's containers from the image that is there; never builds.

    Without `recreate` a container that is there stays what it is, whatever compose thinks of its
    configuration: another release of compose takes each for changed.
    """
    args = ["up", "-d", "--no-build", *([] if recreate else ["--no-recreate"])]
    return run_compose(
        machine, compose, str(project_dir), args, project=project, deadline_s=_UP_S, on_line=on_line
    )


def down(
    machine: Machine, compose: Compose, project_dir: str | PurePath, project: str
) -> CommandResult:
    """Stop and remove the project's containers and networks; its volumes stay."""
    args = ["down"]
    return run_compose(machine, compose, str(project_dir), args, project=project, deadline_s=_UP_S)


def failure(
    done: CommandResult, compose: Compose, args: Sequence[str], deadline_s: float
) -> DshpcError:
    """What a compose call that failed means."""
    what = f"{' '.join(compose.argv)} {args[0] if args else ''}".strip()
    if done.state == "timeout":
        brief = f"{what} was not done after {max(deadline_s, done.ms / 1000):.0f} seconds"
        return DshpcError(brief, last_lines(done), ("Run this again.",), Exit.INCOMPLETE)
    if done.state != "present":
        brief = f"{compose.argv[0]} cannot be run any more"
        return DshpcError(brief, last_lines(done), ("See: docker version",))
    for pattern, reason, todo in _REASONS:
        if re.search(pattern, done.text):
            return DshpcError(f"{reason} ({what} failed)", last_lines(done), todo)
    return DshpcError(f"{what} failed (exit code {done.code})", last_lines(done))


def _command(
    machine: Machine, compose: Compose, project_dir: str, file: str, args: Sequence[str]
) -> list[str]:
    plain = ["--no-ansi"] if _before_1_28(compose) else ["--ansi", "never"]
    hidden = _hidden(machine, project_dir)
    unset = ["env", *(part for name in hidden for part in ("-u", name))] if hidden else []
    return [*unset, *compose.argv, *plain, "--project-directory", project_dir, "-f", file, *args]


def _hidden(machine: Machine, project_dir: str) -> tuple[str, ...]:
    ours = _env_file_keys(machine.read(f"{project_dir.rstrip('/')}/.env").text or "")
    return tuple(
        sorted(
            name
            for name in machine.env
            if name in ours or (name.startswith("COMPOSE_") and name not in _KEPT)
        )
    )


def _env_file_keys(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"^\s*(?:export\s+)?([A-Za-z_]\w*)\s*=", text, re.MULTILINE))


def _before_1_28(compose: Compose) -> bool:
    parts = re.match(r"v?(\d+)\.(\d+)", compose.version)
    return parts is not None and (int(parts[1]), int(parts[2])) < (1, 28)
