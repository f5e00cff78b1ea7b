"""Which engine starts the cluster of a folder: decided here, for configure-environment and for detect.

Imports little: `dshpc detect` takes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dshpc_setup.engine_client import BUILTIN, PODMAN

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from dshpc_setup.builtin.rights import Reason
    from dshpc_setup.errors import DshpcError
    from dshpc_setup.facts import State
    from dshpc_setup.machine import Machine

Kind = Literal["docker", "podman", "builtin"]
Why = Literal[
    "setting",  # a flag, a variable, what a run remembered, or dshpc.yaml names it
    "cluster",  # the cluster of this folder is on it already
    "answers",  # Docker does
    "no-answer",  # there is a Docker engine, and what it would say is not known
    "podman",  # no Docker engine lets this user in, and Podman works
    "root",  # Docker is missing, and root can install it
    "sudo",  # the same, by sudo
    "no-root",  # no Docker engine lets this user in, and he cannot become root to install one
    "no-containers",  # the same, and the kernel does not let him have containers, either
    "not-linux",  # containers of our own are Linux's
]
_ASK_S = 5.0
_SYSTEMD, _LINGER = "/run/systemd/system", "/var/lib/systemd/linger"
_WORDS: dict[Why, str] = {
    "setting": "the setting engine names it",
    "cluster": "this folder's cluster is on it",
    "answers": "it answers",
    "no-answer": "there is one, but it did not answer",
    "podman": "no Docker engine lets you in, and Podman works here",
    "root": "you are root, who can install it",
    "sudo": "sudo can install it",
    "no-root": "no Docker engine lets you in, and you cannot become root to install one",
    "no-containers": "no Docker engine lets you in, you cannot become root to install one, and this machine "
    "does not let you start containers without it",
    "not-linux": "the built-in engine needs Linux",
}


@dataclass(frozen=True)
class Choice:
    """`code`: why, as `why` of `dshpc detect --json`; `words` are for people.

    `refusal`: of `no-containers`, what the kernel had against it. `podman`: why Podman, which is installed,
    was not taken.
    """

    kind: Kind
    code: Why
    refusal: Reason | None = None
    podman: DshpcError | None = None

    @property
    def words(self) -> str:
        return _WORDS[self.code]

    @property
    def note(self) -> str | None:
        """What a run says before it begins, where it may surprise."""
        return " ".join(filter(None, (self._chosen(), self._no_podman()))) or None

    def _chosen(self) -> str:
        if self.code in ("no-root", "podman"):
            engine = "Podman" if self.kind == PODMAN else "The built-in engine"
            return (
                f"{engine} runs the container: {self.words}. "
                "To choose: --engine docker|podman|builtin."
            )
        if self.refusal is None:
            return ""
        from dshpc_setup.builtin import rights

        why = rights.in_words(self.refusal)
        return f"The built-in engine needs no Docker, but cannot run here either. {why}"

    def _no_podman(self) -> str:
        if self.podman is None:
            return ""
        why = next(iter(self.podman.details.splitlines()), "")
        return f"Podman is no way: {self.podman.brief} {why}".rstrip()

    def to_json(self) -> dict[str, str]:
        return {"kind": self.kind, "why": self.code}


def choose(
    machine: Machine,
    setting: str,
    runtime: Mapping[str, Any],
    *,
    interactive: bool,
    docker: State | None = None,
    looks_only: bool = False,
) -> Choice:
    """The engine of a run of configure-environment; DshpcError where sudo does not answer.

    `setting` is `engine`, `runtime` what a cluster of the folder has written. With `auto`: the engine that
    the cluster is on already; Docker where it lets this user in, could not be asked, or somebody has named
    an engine of its kind; Podman where it works; Docker to install for who can; the built-in one where the
    kernel allows it; else Docker, whose absence is told then. `docker` is the state of its answer where that
    is known. Who `looks_only` starts no container to find out whether Podman works.
    """
    if setting != "auto":
        return Choice(_kind(setting), "setting")
    if runtime:
        return Choice(_kind(runtime.get("engine")), "cluster")
    podman = _may_be_podman(machine)
    if docker is None and (machine.uid != 0 or podman):  # else it decides nothing for root
        docker = machine.docker(_ASK_S).state
    if docker == "present":
        return Choice("docker", "answers")
    if docker not in ("absent", "denied", None):
        return Choice("docker", "root" if machine.uid == 0 else "no-answer")
    refused = why_no_podman(machine, looks_only=looks_only) if podman else None
    if podman and refused is None:
        return Choice("podman", "podman")
    if machine.uid == 0:
        return Choice("docker", "root", podman=refused)
    return _without_docker(machine, refused, interactive=interactive)


def need(machine: Machine, chosen: Choice, runtime: Mapping[str, Any], *, looks_only: bool) -> None:
    """DshpcError where it has to be Podman, which cannot run a cluster here; a folder's own is not tried."""
    if chosen.kind != PODMAN or chosen.code == "podman":
        return
    if runtime.get("engine") == PODMAN and machine.which(PODMAN) is not None:
        return
    refused = why_no_podman(machine, looks_only=looks_only)
    if refused is not None:
        raise refused


def why_no_podman(machine: Machine, *, looks_only: bool) -> DshpcError | None:
    """None where it works."""
    from dshpc_setup.podman_client import trial

    return trial.why_not(machine, start=not looks_only)


def ends_with_login(machine: Machine) -> str | None:
    """What a user has to know whose Podman is one of his own programs to systemd; None where it stays."""
    from dshpc_setup.engine.privilege import caller

    if machine.uid == 0 or not machine.exists(_SYSTEMD):
        return None
    if machine.exists(f"{_LINGER}/{caller(machine).name}"):
        return None
    return "The cluster ends when you log out of this machine. To keep it: loginctl enable-linger"


def _may_be_podman(machine: Machine) -> bool:
    from dshpc_setup.machine.docker_api import CHOICE

    return machine.which(PODMAN) is not None and not any(machine.env.get(each) for each in CHOICE)


def _kind(told: object) -> Kind:
    if told == PODMAN:
        return "podman"
    return "builtin" if told == BUILTIN else "docker"


def _without_docker(machine: Machine, podman: DshpcError | None, *, interactive: bool) -> Choice:
    from dshpc_setup.builtin import rights
    from dshpc_setup.engine.privilege import can_be_root

    if can_be_root(machine, interactive) != "no":
        return Choice("docker", "sudo", podman=podman)
    if machine.system[0] != "Linux":
        return Choice("docker", "not-linux", podman=podman)
    found = rights.find(machine)
    if found.ids is None:
        return Choice("docker", "no-containers", found.code, podman)
    return Choice("builtin", "no-root", podman=podman)
