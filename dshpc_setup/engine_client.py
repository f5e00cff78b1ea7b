"""A container engine's client as command lines: the one place that knows how it is called.

What asks, runs or hands over such a line does so by the door (`machine`), which gives it a deadline and
records it. Pure, and imports nothing: each `dshpc srun` takes this.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # importing typing would cost more than all of the rest
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any, Final, Literal

    Kind = Literal["containers", "images", "volumes", "networks"]

# Names alone, one a line; stopped containers, too
_LISTS = {
    "containers": ("ps", "-a", "--format", "{{.Names}}"),
    "images": ("images", "--format", "{{.Repository}}:{{.Tag}}"),
    "volumes": ("volume", "ls", "-q"),
    "networks": ("network", "ls", "--format", "{{.Name}}"),
}


BUILTIN: Final = "builtin"
CACHE: Final = "--cache"
"""The first word of the built-in engine's client where another one says which folder."""
"""The engine of our own, as a setting, runtime.json and the facts name it."""
PODMAN: Final = "podman"
"""Podman by its own command, in the same places. By Docker's client it is an engine like Docker."""
OWNER = "DSHPC_OWNER"
"""A variable of a container: whose jobs alone it takes, a number. In one with a single id, users keep theirs
in its files: they are those of a cluster elsewhere, whose words name them."""
IDS_LABEL = "org.dshpc.ids"
"""How the ids of a container lie among the machine's: root, mapped or single."""
SAYS: Final = (
    "Error response from daemon: ",
    "Error: No such container",
    "Error: no container with name or ID",
    "Error: can only create exec sessions on running containers",
)
"""How a client's words begin that tell of a container it did not reach: Docker's, the built-in engine's,
Podman's."""
AS_USER: Final = "/usr/local/lib/dshpc/as-user"
"""In our containers: runs a program under a token, by which it can be sent signals from outside."""
QUIET: Final = "DSHPC_CLIENT_QUIET"
"""A variable of the built-in engine's client: who calls it tells by himself that the container is down."""
_SHARED = (
    "compose|cp|exec|export|image|images|info|inspect|load|logs|network|ps|pull|restart|rm|rmi|run|start|"
    "stop|system|top|unpause|update|version|volume"
)
_OF_BUILTIN = "exec|image|images|inspect|logs|ps|restart|rm|rmi|start|stop|top|version|volume"
_BUILTIN_CLIENT = os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "builtin_client", "__main__.py"
)


class Client:
    """Docker's client, whose words Podman's takes as well, and the built-in engine's. `program`: what its
    command line begins with: a name in PATH, or a path, and what follows it."""

    __slots__ = ("program",)

    def __init__(self, *program: str) -> None:
        self.program = program

    def run_in(
        self,
        container: str,
        *argv: str,
        stdin: bool = False,
        terminal: bool = False,
        user: str | None = None,
        env: Iterable[str] = (),
        folder: str | None = None,
    ) -> list[str]:
        """Run a program in a running container.

        `env`: NAME=VALUE, or NAME for the value that the client has; the container's own are there anyhow.
        `folder`: where it runs, in place of the image's working directory.
        """
        return [
            *(*self.program, "exec"),
            *(["-i"] if stdin else []),
            *(["-t"] if terminal else []),
            *(["--user", user] if user is not None else []),
            *(part for name in env for part in ("-e", name)),
            *(["-w", folder] if folder is not None else []),
            *(container, *argv),
        ]

    def within(self, argv: Sequence[str]) -> tuple[str, list[str]] | None:
        """The container and the program of a line that `run_in` made with none of its options; else None."""
        words = list(argv)
        start = [*self.program, "exec"]
        words, before = words[len(start) :], words[: len(start)]
        if before != start or len(words) < 2 or words[0].startswith("-"):
            return None
        return words[0], words[1:]

    def inspect(self, kind: str, name: str, *, template: str | None = None) -> list[str]:
        """Ask for a container, image, volume or network, by its name or id; as JSON without a template."""
        shown = ["--format", template] if template is not None else []
        return [*self.program, "inspect", "--type", kind, *shown, "--", name]

    def is_inspect(self, argv: Sequence[str]) -> bool:
        start = [*self.program, "inspect"]
        return list(argv[: len(start)]) == start

    def logs(
        self,
        container: str,
        *,
        tail: int | None = None,
        since: str | None = None,
        follow: bool = False,
    ) -> list[str]:
        """Print what a container has written: the last `tail` lines, those after `since` (RFC 3339)."""
        return [
            *(*self.program, "logs"),
            *(["--follow"] if follow else []),
            *(["--since", since] if since else []),
            *(["--tail", str(tail)] if tail is not None else []),
            *("--", container),
        ]

    def processes(self, container: str, columns: str) -> list[str]:
        """List the processes of a container, with these columns of ps."""
        return [*self.program, "top", container, "-eo", columns]

    def pause(self, container: str) -> list[str]:
        return [*self.program, "pause", container]

    def unpause(self, container: str) -> list[str]:
        return [*self.program, "unpause", container]

    def stop(self, container: str) -> list[str]:
        return [*self.program, "stop", "--", container]

    def restart(self, container: str) -> list[str]:
        return [*self.program, "restart", "--", container]

    def remove(self, container: str) -> list[str]:
        """Kill it if it runs, and remove it with its unnamed volumes."""
        return [*self.program, "rm", "-f", "-v", "--", container]

    def create(self, image: str) -> list[str]:
        """Make a container that is never started; its id is printed."""
        return [*self.program, "create", image]

    def put(self, container: str, file: str, path: str) -> list[str]:
        """Copy a file into a container, which need not run."""
        return [*self.program, "cp", file, f"{container}:{path}"]

    def export(self, container: str, file: str) -> list[str]:
        """Write the file system of a container as a tar."""
        return [*self.program, "export", "--output", file, container]

    def save(self, image: str, file: str) -> list[str]:
        """Write an image with its layers as a tar."""
        return [*self.program, "image", "save", "--output", file, image]

    def running(self) -> list[str]:
        """List the names of the running containers, one a line."""
        return [*self.program, "ps", "--format", "{{.Names}}"]

    def labelled(self, kind: Kind, label: str) -> list[str]:
        """List the names of what has that label (`key` or `key=value`), one a line."""
        return [*self.program, *_LISTS[kind], "--filter", f"label={label}"]

    def remove_volume(self, name: str) -> list[str]:
        return [*self.program, "volume", "rm", "--", name]

    def remove_network(self, name: str) -> list[str]:
        return [*self.program, "network", "rm", name]

    def remove_image(self, ref: str) -> list[str]:
        """Take that name from the image, and remove it where it was the last."""
        return [*self.program, "rmi", "--", ref]

    def make_volume(self, name: str, labels: Iterable[str]) -> list[str]:
        flags = [part for label in labels for part in ("--label", label)]
        return [*self.program, "volume", "create", *flags, name]


DOCKER = Client("docker")
"""The client that is found in PATH: no file of a project names a program."""


def builtin(cache: str | None = None) -> Client:
    """The built-in engine's, by the interpreter that we are. `cache`: the folder in which it keeps what it
    knows, where that is not to be asked of the environment."""
    return Client(sys.executable, _BUILTIN_CLIENT, *([CACHE, cache] if cache else []))


def of(runtime: Mapping[str, Any]) -> Client:
    """The client of a project's engine, by what its runtime.json says."""
    engine = runtime.get("engine")
    if engine == PODMAN:
        return Client(PODMAN)
    return builtin(runtime.get("cache")) if engine == BUILTIN else DOCKER


def in_podmans_words(text: str) -> str:
    """Advice with commands of Docker's as commands of Podman's, which are the same but for the program."""
    import re  # not at the top: see above

    return re.sub(rf"(?<![\w./-])docker(?= (?:{_SHARED})\b)", PODMAN, text)


def in_builtins_words(text: str) -> str:
    """The same for the built-in engine, of what its client knows: there is no docker to type."""
    import re  # not at the top: see above
    import shlex

    client = shlex.join(builtin().program)
    return re.sub(rf"(?<![\w./-])(?:sudo )?docker(?= (?:{_OF_BUILTIN})\b)", lambda _: client, text)


def program_at(argv: Sequence[str]) -> int:
    """Where the program stands in `env -u NAME docker ...`."""
    if list(argv[:1]) != ["env"]:
        return 0
    at = 1
    while at < len(argv) and (argv[at] == "-u" or "=" in argv[at]):
        at += 2 if argv[at] == "-u" else 1
    return at
