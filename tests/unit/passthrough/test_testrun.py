"""The test-run as a whole: which image, which user, which machine, and what its exit code says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup import probes
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.facts import Gpus, HostFacts
from dshpc_setup.image.base import BaseImage
from dshpc_setup.machine.recorded import RecordedMachine
from dshpc_setup.passthrough import Attempt, Cause, Passthrough, findings, testrun
from dshpc_setup.passthrough.handover import MECHANISMS, Handover
from dshpc_setup.passthrough.testrun import RunOptions
from dshpc_setup.settings import Settings, load
from dshpc_setup.terminal.reporter import Silent
from tests.unit.engine.fake import Answer, FakeMachine
from tests.unit.passthrough.made import card, facts, inside, intel, on, planned, seen

MACHINES = Path(__file__).parents[2] / "machines"
PASSWD = "anna:x:1000:993:Anna:/home/anna:/bin/sh\n"
TWO = facts(card(0), card(1))


def image(environment: tuple[str, ...] = ()) -> Answer:
    value = {
        "Id": "sha256:1",
        "Architecture": "amd64",
        "Size": 1,
        "Config": {"Env": list(environment)},
    }
    return Answer(json.dumps(value))


def machine(**commands: Any) -> FakeMachine:
    """A user's machine with an image in which both cards are seen."""
    answers: dict[str, Any] = {
        "getent passwd 1000": Answer(PASSWD),
        "/usr/bin/docker image inspect": image(),
        "docker run": Answer(seen(0, 1)),
        "docker rm": Answer(),
    }
    answers |= {name.replace("_", " "): answer for name, answer in commands.items()}
    return FakeMachine(uid=1000, programs={"docker"}, commands=answers)


def run(
    monkeypatch: pytest.MonkeyPatch, found: HostFacts = TWO, at: Any = None, **wish: Any
) -> testrun.TestRun:
    monkeypatch.setattr(probes, "gather", lambda _: found)
    wanted = RunOptions(**{"settings": Settings(), "image": "local:1", **wish})
    return testrun.test_run(machine() if at is None else at, wanted, Silent())


def test_it_is_run_as_the_user_of_jobs_in_the_image_that_was_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at = machine()
    done = run(monkeypatch, at=at)
    assert (done.image, done.user, done.exit_code) == ("local:1", (1000, 993), Exit.OK)
    started = next(call for call in at.ran if call[:2] == ("docker", "run"))
    assert started[started.index("--user") + 1] == "1000:993"
    assert "local:1" in started


def test_the_image_s_own_environment_is_asked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    at = machine()
    at.commands["/usr/bin/docker image inspect"] = image(("NVIDIA_REQUIRE_CUDA=cuda>=13.0",))
    done = run(monkeypatch, at=at)
    assert done.exit_code == Exit.ERROR
    assert done.passthrough.attempts[1].finding == findings.IMAGE_TOO_NEW
    assert not any(call[:2] == ("docker", "run") for call in at.ran)


def test_only_the_devices_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    at = machine(docker_run=Answer(seen(1)))
    done = run(monkeypatch, at=at, settings=load(flags={"devices": "1"}))
    assert done.exit_code == Exit.OK
    assert [gpu.index for gpu in done.plan.gpus] == [1]


def test_every_mechanism_is_tried_unless_the_first_is_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both = on(TWO, runtimes=("nvidia",))
    done = run(monkeypatch, both)
    assert [row.state for row in done.passthrough.attempts] == [
        "impossible",
        "works",
        "works",
        "impossible",
    ]
    first = run(monkeypatch, both, every=False)
    assert [row.state for row in first.passthrough.attempts][2] == "untested"


# -- the image ---------------------------------------------------------------------------------------

NO_IMAGE = Answer("", 1, "Error: No such image: x")


def test_an_image_that_is_not_here_is_never_pulled(monkeypatch: pytest.MonkeyPatch) -> None:
    at = machine()
    at.commands["/usr/bin/docker image inspect"] = NO_IMAGE
    with pytest.raises(DshpcError) as error:
        run(monkeypatch, at=at, image="pytorch/pytorch:2")
    assert "pytorch/pytorch:2 is not on this machine" in error.value.brief
    assert "docker pull pytorch/pytorch:2" in error.value.resolution[0]
    assert not any("pull" in call for call in at.ran)


def test_a_base_image_that_is_not_here_is_made_only_if_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at = machine()
    at.commands["/usr/bin/docker image inspect"] = NO_IMAGE
    at.commands["/usr/bin/docker images"] = Answer("")
    with pytest.raises(DshpcError) as error:
        run(monkeypatch, at=at, image=None)
    assert "dshpc passthrough --get-base" in error.value.resolution[0]


def test_a_base_image_that_is_asked_for_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    base = BaseImage("dshpc-base:x", "sha256:1", "local")
    asked: list[bool] = []

    def ensure(*_: Any, interactive: bool) -> BaseImage:
        asked.append(interactive)
        return base

    monkeypatch.setattr(testrun, "find_base", lambda *_: None)
    monkeypatch.setattr(testrun, "ensure_base", ensure)
    done = run(monkeypatch, image=None, get_base=True)
    assert (asked, done.image, done.exit_code) == ([False], "dshpc-base:x", Exit.OK)
    monkeypatch.setattr(testrun, "find_base", lambda *_: base)
    assert run(monkeypatch, image=None, get_base=True).image == "dshpc-base:x"
    assert asked == [False]  # one that is here is not made again


@pytest.mark.parametrize("name", ["--privileged", "-v", "", " ", "a b", "a;b", "a\n--x", ":1"])
def test_what_is_no_name_of_an_image_is_wrong_usage(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = machine()
    with pytest.raises(DshpcError) as error:
        run(monkeypatch, at=at, image=name)
    assert error.value.exit_code == Exit.USAGE
    assert at.ran == []


@pytest.mark.parametrize(
    "name",
    [
        "debian:13",
        "localhost:5000/x/y:1",
        "a@sha256:0123456789abcdef",
        "ghcr.io/a/b-c_d",
        "3f2504e04f89",
    ],
)
def test_names_that_images_have(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, image=name).image == name


# -- where nothing is tested ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "code"),
    [("absent", Exit.ERROR), ("timeout", Exit.INCOMPLETE), ("denied", Exit.INCOMPLETE)],
)
def test_without_an_engine_nothing_can_be_tested(
    state: Any, code: Exit, monkeypatch: pytest.MonkeyPatch
) -> None:
    for replayed in (False, True):
        with pytest.raises(DshpcError) as error:
            run(monkeypatch, on(TWO, state=state, detail="why"), replayed=replayed)
        assert (error.value.exit_code, error.value.details) == (code, "why")


@pytest.mark.parametrize(
    ("state", "code"),
    [("absent", Exit.WARNING), ("unsupported", Exit.WARNING), ("denied", Exit.INCOMPLETE),
     ("timeout", Exit.INCOMPLETE), ("error", Exit.INCOMPLETE)],
)  # fmt: skip
def test_without_a_gpu_there_is_nothing_to_test(
    state: Any, code: Exit, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = machine()
    done = run(monkeypatch, replace(TWO, gpus=Gpus(state, detail="why")), at)
    assert (done.exit_code, done.image, done.passthrough.reason) == (code, None, "why")
    assert at.ran == []


def test_simulated_gpus_are_not_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    made_up = replace(TWO, gpus=replace(TWO.gpus, simulated=True))
    at = machine()
    done = run(monkeypatch, made_up, at, settings=load(flags={"simulate": "h100:2"}))
    assert (done.exit_code, done.passthrough.handover.mechanism) == (Exit.OK, "simulated")
    assert done.to_json()["works"] is True
    assert at.ran == []


def test_of_a_recorded_machine_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    at = machine()
    done = run(monkeypatch, at=at, replayed=True)
    assert done.exit_code == Exit.INCOMPLETE
    assert done.to_json()["works"] is False
    assert at.ran == []


@pytest.mark.parametrize("name", ["h100x8", "mi210x4-toolkit-cdi", "max1550-cdi", "wsl2-rtx3080"])
def test_recorded_machines_as_they_are(name: str) -> None:
    wish = RunOptions(Settings(), replayed=True)
    done = testrun.test_run(RecordedMachine(str(MACHINES / name)), wish, Silent())
    assert [row.mechanism for row in done.passthrough.attempts] == list(MECHANISMS)
    json.dumps(done.to_json())


# -- exit codes and JSON ----------------------------------------------------------------------------

NOTHING = Handover("none")
CDI = Handover("cdi", ids=("nvidia.com/gpu=all",))


def row(state: Any) -> Attempt:
    return Attempt("cdi", state, "why")


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (Passthrough(CDI, "", (row("works"), row("fails"))), Exit.OK),
        (Passthrough(CDI, "", (row("works"),), warnings=(Cause(None, "old"),)), Exit.WARNING),
        (Passthrough(NOTHING, "", (row("fails"), row("impossible"))), Exit.ERROR),
        (Passthrough(NOTHING, "", (row("fails"), row("untested"))), Exit.ERROR),
        (Passthrough(NOTHING, "", (row("impossible"), row("impossible"))), Exit.ERROR),
        (Passthrough(CDI, "", (row("impossible"), row("untested"))), Exit.INCOMPLETE),
    ],
)
def test_exit_codes(found: Passthrough, code: Exit) -> None:
    assert testrun.TestRun(found, TWO, planned(TWO)).exit_code == code


def test_the_object_of_json(monkeypatch: pytest.MonkeyPatch) -> None:
    value = run(monkeypatch).to_json()
    json.dumps(value)
    assert (value["schema"], value["exit_code"], value["works"]) == ("dshpc.passthrough/1", 0, True)
    assert list(value) == [
        "schema", "exit_code", "works", "simulated", "image", "user", "gpus", "left_out", "handover",
        "reason", "attempts", "warnings",
    ]  # fmt: skip
    assert value["user"] == {"uid": 1000, "gid": 993}
    assert value["gpus"][1] == {
        "index": 1, "vendor": "nvidia", "name": "NVIDIA H100", "uuid": card(1).uuid, "pci_bus_id": None,
    }  # fmt: skip
    assert [item["state"] for item in value["attempts"]] == [
        "impossible", "works", "impossible", "impossible",
    ]  # fmt: skip


def test_raw_nodes_of_intel(monkeypatch: pytest.MonkeyPatch) -> None:
    at = machine(docker_run=Answer(inside("/dev/dri/renderD128")))
    done = run(monkeypatch, facts(intel(0)), at)
    assert done.passthrough.reason == "Proven by a test container: 1 GPU by device nodes."
