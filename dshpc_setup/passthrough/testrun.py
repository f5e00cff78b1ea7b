"""`dshpc passthrough`: facts, plan and a local image brought together for a test-run of passthrough."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dshpc_setup import passthrough, probes
from dshpc_setup.engine import containers
from dshpc_setup.engine.images import inspect
from dshpc_setup.engine.privilege import caller
from dshpc_setup.engine_client import BUILTIN
from dshpc_setup.errors import DshpcError, Exit, usage_error
from dshpc_setup.facts import GpuDevice, HostFacts
from dshpc_setup.image.base import ensure_base, find_base
from dshpc_setup.machine import Machine
from dshpc_setup.machine.overlay import simulated_device_files, with_simulated_gpus
from dshpc_setup.passthrough import Bench, Passthrough
from dshpc_setup.plan import ClusterPlan, plan_cluster
from dshpc_setup.settings import Settings
from dshpc_setup.terminal.reporter import Reporter

SCHEMA = "dshpc.passthrough/1"

_REFERENCE = re.compile(r"[A-Za-z0-9][\w./:@-]*", re.ASCII)


@dataclass(frozen=True)
class RunOptions:
    """What to test: `image` a local one (None: the project's base), `get_base` also to fetch that one."""

    settings: Settings
    image: str | None = None
    get_base: bool = False
    every: bool = True
    deadline_s: float = passthrough.DEADLINE_S
    replayed: bool = False  # a recorded machine: nothing of it can be started
    interactive: bool = False
    facts: HostFacts | None = None  # of this machine, where somebody has looked already


@dataclass(frozen=True)
class TestRun:
    """How it went; `image` and `user` (uid, gid) are None where no container was to be started."""

    passthrough: Passthrough
    facts: HostFacts
    plan: ClusterPlan
    image: str | None = None

    @property
    def user(self) -> tuple[int, int] | None:
        return self.passthrough.user

    @property
    def cards(self) -> tuple[GpuDevice, ...]:
        """The plan's GPUs, each once: it lists a card for every instance of it that was selected."""
        return tuple({gpu.index: gpu for gpu in self.plan.gpus}.values())

    @property
    def exit_code(self) -> Exit:
        """0 proven (or simulated), 1 with a warning or without a GPU, 2 none works, 3 not known."""
        if self.passthrough.handover.mechanism == "simulated":
            return Exit.OK
        if not self.plan.gres:
            known = self.facts.gpus.state in ("present", "absent", "unsupported")
            return Exit.WARNING if known else Exit.INCOMPLETE
        if any(row.state == "works" for row in self.passthrough.attempts):
            return Exit.WARNING if self.passthrough.warnings else Exit.OK
        if all(row.state in ("untested", "impossible") for row in self.passthrough.attempts):
            possible = any(row.state == "untested" for row in self.passthrough.attempts)
            return Exit.INCOMPLETE if possible else Exit.ERROR
        return Exit.ERROR

    def to_json(self) -> dict[str, Any]:
        """The `dshpc.passthrough/1` object."""
        found = self.passthrough.to_json()
        del found["key"]
        del found["user"]
        return {
            "schema": SCHEMA,
            "exit_code": int(self.exit_code),
            "works": self.passthrough.works and self.exit_code in (Exit.OK, Exit.WARNING),
            "simulated": self.plan.simulated,
            "image": self.image,
            "user": None if self.user is None else {"uid": self.user[0], "gid": self.user[1]},
            "gpus": [
                {"index": gpu.index, "vendor": gpu.vendor, "name": gpu.name, "uuid": gpu.uuid,
                 "pci_bus_id": gpu.pci_bus_id}
                for gpu in self.cards
            ],
            "left_out": list(self.plan.left_out),
            **found,
        }  # fmt: skip


def test_run(machine: Machine, wish: RunOptions, reporter: Reporter) -> TestRun:
    """Test every mechanism that the engine may have, for the GPUs of the settings.

    Raises DshpcError where there is no engine, no local image, or no such GPU as the settings name.
    """
    _need_reference(wish.image)
    facts = wish.facts or probes.gather(with_simulated_gpus(machine, wish.settings.simulate))
    plan = plan_cluster(facts, wish.settings)
    whole = not wish.settings.devices
    nothing = passthrough.without_test(plan, simulated_device_files(wish.settings.simulate))
    if nothing is not None:
        return TestRun(nothing, facts, plan)
    _need_engine(facts)
    if wish.replayed:
        reason = "Not tested: of a recorded machine nothing can be started."
        files = passthrough.of_driver(machine, facts)
        return TestRun(passthrough.untested(facts, plan, whole, reason, files), facts, plan)
    name, environment = _image(machine, facts, wish, reporter)
    who = caller(machine)
    bench = Bench(name, (who.uid, who.gid), wish.deadline_s, environment)
    found = passthrough.prove(machine, facts, plan, bench, whole=whole, every=wish.every)
    return TestRun(found, facts, plan, name)


def _need_engine(facts: HostFacts) -> None:
    engine = facts.engine
    if engine.state == "present":
        return
    raise DshpcError(
        "There is no Docker engine to test with.",
        engine.detail or engine.state,
        ("See why: dshpc doctor", "Install and start it: configure-environment"),
        Exit.ERROR if engine.state in ("absent", "unsupported") else Exit.INCOMPLETE,
    )


def _need_reference(image: str | None) -> None:
    """A name that could be an option, or is none at all, never reaches a command line."""
    if image is not None and not _REFERENCE.fullmatch(image):
        raise usage_error(
            f"--image {image!r} is not the name of an image.",
            "",
            "See which images are here: docker image ls",
        )


def _image(
    machine: Machine, facts: HostFacts, wish: RunOptions, reporter: Reporter
) -> tuple[str, Mapping[str, str]]:
    """A local image and its environment; none is ever fetched that was not asked for."""
    if wish.image is not None:
        found = inspect(machine, wish.image)
        if found is None:
            raise _not_here(wish.image, f"docker pull {wish.image}")
        return wish.image, found.environment
    if facts.engine.kind == BUILTIN or facts.engine.by_command:
        return _clusters(machine, wish.settings)
    base = find_base(machine, facts, wish.settings)
    if base is None and wish.get_base:
        base = ensure_base(machine, facts, wish.settings, reporter, interactive=wish.interactive)
    if base is None:
        raise _not_here(wish.settings.base_image, "dshpc passthrough --get-base")
    return base.ref, base.environment


def _clusters(machine: Machine, settings: Settings) -> tuple[str, Mapping[str, str]]:
    """The cluster's image, where the engine (the built-in one, Podman) has no base image."""
    container = containers.inspect(machine, settings.container)
    found = None if container is None else inspect(machine, container.image)
    if container is None or found is None:
        raise DshpcError(
            f"There is no container {settings.container}, whose image the test-run would start.",
            "",
            ("Start it: dshpc up", "Or test with another image: dshpc passthrough --image NAME"),
        )
    return container.image, found.environment


def _not_here(name: str, todo: str) -> DshpcError:
    return DshpcError(
        f"The image {name} is not on this machine.",
        "The test-run needs one that is, and does not fetch one by itself.",
        (f"Get it: {todo}", "Or test with one that is here: dshpc passthrough --image NAME"),
    )
