"""What `compose up`, `down` and `run` make of a Podman, told by a Podman that is made up."""

from __future__ import annotations

import itertools
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.machine import CommandResult
from dshpc_setup.podman_client import compose
from dshpc_setup.podman_client.service import Here

TEXT = """
services:
  slurm: {image: "lab-slurm:none", container_name: lab-slurm, restart: always, volumes: ["state:/s"]}
volumes:
  state: {name: lab-state, labels: {mine: "yes"}}
"""


@dataclass
class Podman:
    """Its containers and volumes by name, and the words it was given; `fails`: verbs that go wrong."""

    containers: dict[str, dict[str, Any]] = field(default_factory=dict)
    volumes: set[str] = field(default_factory=set)
    image: str = "sha256:1"
    fails: tuple[str, ...] = ()
    words: list[list[str]] = field(default_factory=list)

    def run(self, words: list[str], *, deadline_s: float) -> CommandResult:
        assert deadline_s > 0
        self.words.append(words)
        verb, name = words[0], words[-1]
        if verb in self.fails:
            return self.ended(125, "", f"Error: {verb} went wrong")
        match verb:
            case "inspect":
                return self.inspect(words[2], name)
            case "volume":
                self.volumes.add(name)
            case "create":
                name = words[words.index("--name") + 1]
                labels = dict(
                    after.split("=", 1)
                    for word, after in itertools.pairwise(words)
                    if word == "--label"
                )
                self.containers[name] = {
                    "Id": "i", "Image": self.image, "State": {"Running": False},
                    "Config": {"Labels": labels},
                }  # fmt: skip
            case "start":
                self.containers[name]["State"]["Running"] = True
            case "rm":
                del self.containers[name]
            case "ps":
                return self.ended(0, "".join(f"{each}\n" for each in self.containers))
            case "run":
                return self.ended(3, "said\n")
        return self.ended(0)

    def inspect(self, kind: str, name: str) -> CommandResult:
        there: Any = {
            "container": self.containers.get(name),
            "volume": {} if name in self.volumes else None,
            "image": {"Id": self.image},
        }[kind]
        if there is None:
            return self.ended(125, "[]\n", f"Error: No such {kind}: {name}")
        return self.ended(0, json.dumps([there]))

    @staticmethod
    def ended(code: int, stdout: str = "", stderr: str = "") -> CommandResult:
        return CommandResult((), "present", code, stdout, stderr, 1.0)

    @property
    def verbs(self) -> list[str]:
        return [words[0] for words in self.words if words[0] not in ("inspect", "ps")]


def call(podman: Podman, *argv: str, text: str = TEXT) -> CommandResult:
    said: list[str] = []
    work = compose.Work(
        podman.run, lambda: Here(rootless=False), time.monotonic() + 60, said.append
    )
    words = ["compose", "--ansi", "never", "-f", "-", "-p", "lab", *argv]
    done = compose.run(words, work, stdin=text, cwd=None)
    assert said == work.lines
    podman.words = [words for words in podman.words if words[0] != "inspect"]
    return done


def test_up_makes_what_is_missing_and_then_nothing() -> None:
    podman = Podman()
    done = call(podman, "up", "-d", "--no-build")
    assert (done.code, done.stdout) == (0, "Creating lab-slurm\nStarting lab-slurm\n")
    assert podman.words[0] == ["volume", "create", "--label", "mine=yes", "lab-state"]
    assert podman.verbs == ["volume", "create", "start"]
    assert call(podman, "up").stdout == "lab-slurm is up-to-date\n"
    assert podman.verbs == ["volume", "create", "start"]


def test_another_file_or_image_is_another_container_and_its_volumes_stay() -> None:
    podman = Podman()
    call(podman, "up")
    podman.words.clear()
    call(podman, "up", "--no-recreate", text=TEXT.replace("always", "no"))
    assert podman.verbs == []
    call(podman, "up", text=TEXT.replace("always", "no"))
    assert podman.verbs == ["stop", "rm", "create", "start"]
    podman.words.clear()
    podman.image = "sha256:2"
    call(podman, "up", text=TEXT.replace("always", "no"))
    assert podman.verbs == ["stop", "rm", "create", "start"]


def test_one_that_was_stopped_is_started() -> None:
    podman = Podman()
    call(podman, "up")
    podman.containers["lab-slurm"]["State"]["Running"] = False
    podman.words.clear()
    call(podman, "up")
    assert podman.verbs == ["start"]


def test_what_does_not_start_is_not_left_behind() -> None:
    podman = Podman(fails=("start",))
    done = call(podman, "up")
    assert (done.code, done.stderr) == (125, "Error: start went wrong")
    assert podman.containers == {}
    podman.fails = ()
    assert call(podman, "up").code == 0


def test_anothers_container_of_that_name_is_left_alone() -> None:
    other = {"Id": "x", "State": {"Running": True}, "Config": {"Labels": {}}}
    podman = Podman(containers={"lab-slurm": other})
    done = call(podman, "up")
    assert done.code == 1
    assert 'Conflict. The container name "/lab-slurm" is already in use' in done.stderr
    assert podman.verbs == []


def test_down_and_run() -> None:
    podman = Podman()
    call(podman, "up")
    podman.words.clear()
    done = call(podman, "run", "--rm", "--no-deps", "-T", "--name", "t", "slurm", "check")
    assert (done.code, done.stdout) == (3, "said\n")
    assert podman.words[-1][:4] == ["run", "--rm", "--name", "t"]
    assert call(podman, "down").code == 0
    assert podman.containers == {}
    assert podman.volumes == {"lab-state"}


@pytest.mark.parametrize("verb", ["config", "up", "run"])
def test_a_file_that_is_not_understood(verb: str) -> None:
    podman = Podman()
    done = call(podman, verb, text=TEXT.replace("restart", "cpus"))
    assert done.code == 15
    assert "services.slurm.cpus" in done.stderr
    assert podman.verbs == []


def test_other_words_and_a_file_that_is_not_there(tmp_path: Path) -> None:
    podman = Podman()
    assert call(podman, "version").stdout == f"{compose.VERSION}\n"
    assert 'unknown docker command: "compose pull"' in call(podman, "pull").stderr
    work = compose.Work(
        podman.run, lambda: Here(rootless=False), time.monotonic() + 60, lambda _: None
    )
    done = compose.run(["compose", "up"], work, stdin="", cwd=str(tmp_path))
    assert done.code == 1
    assert "docker-compose.yml" in done.stderr
