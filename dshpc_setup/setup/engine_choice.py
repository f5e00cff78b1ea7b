"""Which engine starts the cluster of a folder: decided here, for configure-environment and for detect.

Imports little: `dshpc detect` takes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dshpc_setup.engine_client import BUILTIN

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from dshpc_setup.builtin.rights import Reason
    from dshpc_setup.facts import State
    from dshpc_setup.machine import Machine

Kind = Literal["docker", "builtin"]
Why = Literal[
    "setting",  # a flag, a variable, what a run remembered, or dshpc.yaml names it
    "cluster",  # the cluster of this folder is on it already
    "answers",  # Docker does
    "no-answer",  # there is a Docker engine, and what it would say is not known
    "root",  # Docker is missing, and root can install it
    "sudo",  # the same, by sudo
    "no-root",  # no Docker engine lets this user in, and he cannot become root to install one
    "no-containers",  # the same, and the kernel does not let him have containers, either
    "not-linux",  # containers of our own are Linux's
]
_ASK_S = 5.0
_WORDS: dict[Why, str] = {
    "setting": "the setting engine names it",
    "cluster": "this folder's cluster is on it",
    "answers": "it answers",
    "no-answer": "there is one, but it did not answer",
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

    `refusal`: of `no-containers`, what the kernel had against it.
    """

    kind: Kind
    code: Why
    refusal: Reason | None = None

    @property
    def words(self) -> str:
        return _WORDS[self.code]

    @property
    def note(self) -> str | None:
        """What a run says before it begins, where it may surprise."""
        if self.code == "no-root":
            return f"The built-in engine runs the container: {self.words}."
        if self.refusal is not None:
            from dshpc_setup.builtin import rights

            why = rights.in_words(self.refusal)
            return f"The built-in engine needs no Docker, but cannot run here either. {why}"
        return None

    def to_json(self) -> dict[str, str]:
        return {"kind": self.kind, "why": self.code}


def choose(
    machine: Machine,
    setting: str,
    runtime: Mapping[str, Any],
    *,
    interactive: bool,
    docker: State | None = None,
) -> Choice:
    """The engine of a run of configure-environment; DshpcError where sudo does not answer.

    `setting` is `engine`, `runtime` what a cluster of the folder has written. `docker` is the state of its
    answer where that is known; else it is asked, though not for root, for whom it decides nothing.
    """
    if setting != "auto":
        return Choice(BUILTIN if setting == BUILTIN else "docker", "setting")
    if runtime:
        return Choice(BUILTIN if runtime.get("engine") == BUILTIN else "docker", "cluster")
    if docker is None and machine.uid != 0:
        docker = machine.docker(_ASK_S).state
    if docker == "present":
        return Choice("docker", "answers")
    if machine.uid == 0:
        return Choice("docker", "root")
    if docker not in ("absent", "denied"):
        return Choice("docker", "no-answer")
    return _without_docker(machine, interactive=interactive)


def _without_docker(machine: Machine, *, interactive: bool) -> Choice:
    from dshpc_setup.builtin import rights
    from dshpc_setup.engine.privilege import can_be_root

    if can_be_root(machine, interactive) != "no":
        return Choice("docker", "sudo")
    if machine.system[0] != "Linux":
        return Choice("docker", "not-linux")
    found = rights.find(machine)
    if found.ids is None:
        return Choice("docker", "no-containers", found.code)
    return Choice(BUILTIN, "no-root")
