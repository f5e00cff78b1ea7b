"""The container engines that clusters of the tests run on.

A file says in one line on which of them its clusters run, its default first; where one cannot, the line
says why, and a single test may say it for itself:

    pytestmark = pytest.mark.engines("docker", "builtin")
    @pytest.mark.engines("docker", why="a control group limits its memory")

`--engine NAME` runs all that could run on that engine on it, and the rest where it runs anyhow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pytest

from dshpc_setup import engine_client
from tests.integration.commands import Outcome, run

# Names alone, one a line; stopped containers, too. All clients take these words
_LISTS = {
    "container": ("ps", "-a", "--format", "{{.Names}}"),
    "volume": ("volume", "ls", "-q"),
    "network": ("network", "ls", "--format", "{{.Name}}"),
    "image": ("images", "--format", "{{.Repository}}:{{.Tag}}"),
}


@dataclass(frozen=True)
class Engine:
    """`chosen`: what says to `configure-environment` that it is this one."""

    name: str
    chosen: tuple[str, ...] = ()

    @property
    def client(self) -> engine_client.Client:
        return engine_client.of({"engine": self.name})

    def run(self, *words: str, timeout_s: float = 120, given: str | None = None) -> Outcome:
        """A command of its client, in the words of Docker's; `given`: what it reads."""
        return run([*self.client.program, *words], timeout_s=timeout_s, given=given)

    def said(self, *words: str) -> str:
        """What one that has to succeed prints."""
        return self.run(*words, timeout_s=400).good().stdout

    def names(self, kind: str) -> list[str]:
        """Of all that it has of `container`, `volume`, `network` or `image`."""
        return self.said(*_LISTS[kind]).split()


DOCKER: Final = Engine("docker")
BUILTIN: Final = Engine(engine_client.BUILTIN, ("--engine", engine_client.BUILTIN))
ENGINES: Final = {engine.name: engine for engine in (BUILTIN, DOCKER)}


def parametrize(metafunc: pytest.Metafunc) -> None:
    """The fixture `engine` of a test, as its line and the command line say."""
    if "engine" not in metafunc.fixturenames:
        return
    name = chosen(
        metafunc.definition.get_closest_marker("engines"), metafunc.config.getoption("--engine")
    )
    metafunc.parametrize("engine", [ENGINES[name]], indirect=True, scope="module", ids=[name])


def chosen(line: pytest.Mark | None, told: str | None) -> str:
    """The engine's name, of what a file or a test says, and of `--engine`; UsageError."""
    if line is None:
        raise pytest.UsageError(
            'It has a cluster, and does not say on which engine: pytest.mark.engines("docker", "builtin")'
        )
    if not line.args or not set(line.args) <= set(ENGINES):
        raise pytest.UsageError(f"engines are {', '.join(ENGINES)}, not {line.args}")
    if (len(line.args) < len(ENGINES)) != bool(line.kwargs.get("why")):
        raise pytest.UsageError("a line of engines says why one is missing, and only then")
    return str(told if told in line.args else line.args[0])
