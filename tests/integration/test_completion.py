"""The Tab key in bash, zsh and fish, with our own scripts and a real cluster; and where no engine answers."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster, run

pytestmark = pytest.mark.engines("docker", why="the engine that never answers is Docker's socket")

BIN = Path(sys.executable).parent
# What each shell does when the Tab key is pressed behind "$@"
SHELLS = {
    "bash": """
eval "$(dshpc completion bash)"
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_dshpc
printf '%s\\n' "${COMPREPLY[@]}"
""",
    "zsh": """
autoload -U compinit
compinit -u -D
eval "$(dshpc completion zsh)"
_describe() { print -l -- ${(P)2} }
_files() { print -- FILES }
words=("$@") CURRENT=$#
_dshpc
""",
    "fish": """
dshpc completion fish | source
complete -C (string join ' ' -- $argv)
""",
}


def press_tab(shell: str, cluster: Cluster, *words: str) -> list[str]:
    """The words that are offered, without what is said of each."""
    argv = {
        "bash": ["bash", "--norc", "-c", SHELLS["bash"], "bash", *words],
        "zsh": ["zsh", "-f", "-c", SHELLS["zsh"], "zsh", *words],
        "fish": ["fish", "--no-config", "-c", SHELLS["fish"], *words],
    }[shell]
    env = {
        "PATH": f"{BIN}:/usr/bin:/bin",
        "HOME": str(cluster.folder),
        "DSHPC_COMPLETION_S": "30",  # the tests beside this one keep the machine busy
    }
    said = run(argv, cwd=cluster.folder, env=env).good().stdout
    return [line.replace("\t", ":").partition(":")[0] for line in said.splitlines()]


@pytest.mark.parametrize("shell", SHELLS)
def test_commands_options_and_names(standard: Cluster, shell: str) -> None:
    assert press_tab(shell, standard, "dshpc", "expl") == ["explain"]
    below = press_tab(shell, standard, "dshpc", "job", "")
    assert sorted(below) == ["cancel", "clean", "list", "logs", "show"]
    assert "--older-than" in press_tab(shell, standard, "dshpc", "job", "clean", "--")
    assert "DSH-NV-002" in press_tab(shell, standard, "dshpc", "explain", "DSH-NV-0")
    assert standard.prefix in press_tab(shell, standard, "dshpc", "srun", "-w", "")


@pytest.mark.parametrize("shell", SHELLS)
def test_jobs(standard: Cluster, shell: str) -> None:
    job = standard.submit("--hold", script="true")
    try:
        assert job in press_tab(shell, standard, "dshpc", "scancel", "")
    finally:
        standard.dshpc("scancel", job).good()


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[str]:
    """A socket on which somebody listens who never answers."""
    path = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        yield f"unix://{path}"


def test_an_engine_that_never_answers_offers_nothing_and_delays_nobody(
    standard: Cluster, silent: str
) -> None:
    began = time.monotonic()
    argv = [str(BIN / "dshpc"), "__complete", "--", "scancel", ""]
    done = run(argv, cwd=standard.folder, env={"DOCKER_HOST": silent}, timeout_s=60)
    assert (done.code, done.stdout, done.stderr) == (1, "", "")
    assert time.monotonic() - began < 10  # its own deadline is 0.2 s; the rest is a busy machine's
