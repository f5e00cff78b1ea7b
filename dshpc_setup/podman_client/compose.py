"""`docker compose` for the file that we render, carried out by Podman, which has none of its own in 4.3.

Each step is one of Podman's commands with what is left of the deadline; all of it is done in this process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dshpc_setup.builtin_client.compose_text import HASH, PROJECT, variables
from dshpc_setup.builtin_client.failing import ClientError
from dshpc_setup.builtin_client.words import Options
from dshpc_setup.documents import foreign
from dshpc_setup.machine import CommandResult
from dshpc_setup.podman_client.service import Here, Wanted, wanted

VERSION = "2.30.0"
"""The release of compose whose file is understood: that of the last key read here."""
Run = Callable[..., CommandResult]
_LEAST_S = 1.0


class PodmanError(Exception):
    """A command of Podman's that failed: how it ended."""

    def __init__(self, done: CommandResult) -> None:
        super().__init__(done.text)
        self.done = done


@dataclass
class Work:
    """What one call has at hand. `podman` runs Podman's own words, and answers as Docker's client does."""

    podman: Run
    here: Callable[[], Here]
    until: float
    say: Callable[[str], None]
    lines: list[str] = field(default_factory=list)

    def told(self, text: str) -> None:
        self.lines.append(text)
        self.say(text)

    def ask(self, *words: str, **more: Any) -> CommandResult:
        left_s = max(_LEAST_S, self.until - time.monotonic())
        return self.podman(list(words), deadline_s=left_s, **more)

    def do(self, *words: str) -> CommandResult:
        done = self.ask(*words)
        if not done.ok:
            raise PodmanError(done)
        return done

    def inspect(self, kind: str, name: str) -> dict[str, Any] | None:
        """None where there is none."""
        done = self.ask("inspect", "--type", kind, "--", name)
        if done.state == "present" and "no such" in done.stderr.lower():
            return None
        if not done.ok:
            raise PodmanError(done)
        (value,) = foreign.value(done.stdout)
        return dict(value)


def run(argv: Sequence[str], work: Work, *, stdin: str, cwd: str | None) -> CommandResult:
    """`compose [OPTIONS] version|config|up|down|run ...`, and how it ended. `argv`: what follows `docker`."""
    began = time.monotonic()

    def ended(code: int, stderr: str = "") -> CommandResult:
        ms = (time.monotonic() - began) * 1000
        text = "".join(f"{line}\n" for line in work.lines)
        return CommandResult(("docker", *argv), "present", code, text, stderr, ms)

    try:
        done = _carried_out(list(argv[1:]), work, stdin, Path(cwd or "."))
        return ended(0) if done is None else done
    except ClientError as error:
        return ended(error.code, str(error))
    except PodmanError as error:
        done = error.done
        text = "".join(f"{line}\n" for line in work.lines)
        return CommandResult(
            ("docker", *argv), done.state, done.code, text + done.stdout, done.stderr, done.ms
        )
    except (OSError, ValueError) as error:
        return ended(1, str(error))


def _carried_out(argv: list[str], work: Work, stdin: str, cwd: Path) -> CommandResult | None:
    """How the program of `run` ended; None where all was done."""
    options = Options(
        argv,
        {"--ansi": "value", "--project-directory": "value", "-f": "value", "-p": "value"},
    )
    verb, *rest = options.words or ["version"]
    if verb == "version":
        work.told(VERSION)
        return None
    folder = (cwd / (options.value("--project-directory") or ".")).resolve()
    project = options.value("-p") or folder.name
    if verb == "down":
        _down(work, project)
        return None
    file = options.value("-f") or str(folder / "docker-compose.yml")
    text = stdin if file == "-" else (cwd / file).read_text(encoding="utf-8")
    found = wanted(text, folder, project, variables(folder), work.here())
    match verb:
        case "config":
            return None
        case "up":
            known = Options(
                rest, {"-d": "nothing", "--no-build": "nothing", "--no-recreate": "nothing"}
            )
            for each in found:
                _up(work, each, recreate=not known.has("--no-recreate"))
            return None
        case "run":
            return _run(work, found, rest)
    raise ClientError(f'unknown docker command: "compose {verb}"', 16)


def _up(work: Work, found: Wanted, *, recreate: bool) -> None:
    there = work.inspect("container", found.name)
    if there is not None and _label(there, PROJECT) != found.labels[PROJECT]:
        raise ClientError(
            f'Error response from daemon: Conflict. The container name "/{found.name}" is already in use by '
            f'container "{there["Id"]}".'
        )
    if there is not None and recreate and _is_another(work, there, found):
        work.told(f"Recreating {found.name}")
        _remove(work, found.name)
        there = None
    if there is None:
        work.told(f"Creating {found.name}")
        _volumes(work, found)
        work.do(*found.create())
    elif there["State"]["Running"]:
        work.told(f"{found.name} is up-to-date")
        return
    work.told(f"Starting {found.name}")
    started = work.ask("start", found.name)
    if not started.ok:
        if there is None:  # what never ran is made anew the next time
            work.ask("rm", "-f", "-v", "--", found.name)
        raise PodmanError(started)


def _volumes(work: Work, found: Wanted) -> None:
    for name, labels in found.volumes.items():
        if work.inspect("volume", name) is None:
            work.do(
                "volume",
                "create",
                *(word for each in labels.items() for word in ("--label", "=".join(each))),
                name,
            )


def _is_another(work: Work, there: dict[str, Any], found: Wanted) -> bool:
    """Whether the file, or the image behind its name, is another one than the container was made from."""
    image = work.inspect("image", found.image)
    other = image is not None and image.get("Id") != there.get("Image")
    return other or _label(there, HASH) != found.labels[HASH]


def _label(there: dict[str, Any], name: str) -> object:
    return (there["Config"].get("Labels") or {}).get(name)


def _remove(work: Work, name: str) -> None:
    work.ask("stop", "--", name)  # kindly; what does not end, `rm -f` ends
    work.do("rm", "-f", "-v", "--", name)


def _down(work: Work, project: str) -> None:
    names = work.do("ps", "-a", "--format", "{{.Names}}", "--filter", f"label={PROJECT}={project}")
    for name in names.stdout.split():
        work.told(f"Stopping {name}")
        _remove(work, name)


def _run(work: Work, services: Sequence[Wanted], rest: list[str]) -> CommandResult:
    options = Options(
        rest, {"--rm": "nothing", "--no-deps": "nothing", "-T": "nothing", "--name": "value"}
    )
    service, *argv = options.words or [""]
    found = next((each for each in services if each.service == service), None)
    if found is None:
        raise ClientError(f"no such service: {service}", 1)
    name = options.value("--name") or f"{found.name}-run"
    _volumes(work, found)
    return work.ask(*found.run(name, argv, remove=options.has("--rm")))
