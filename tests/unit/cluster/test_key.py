"""`dshpc key rotate` on the host: what the container says, in words and in exit codes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from dshpc_setup.cluster import key
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.project.folder import Project
from dshpc_setup.slurm.nodes import Node
from tests.unit.engine.fake import Answer, FakeMachine, Listener

SAID = {
    "schema": "dshpc.key/1",
    "exit_code": 0,
    "key": "20260101T000000Z-abcdef.2",
    "former_until": "2026-01-01T00:01:05Z",
    "waiting": ["7"],
    "ms": 324.5,
}
ROTATE = "docker exec p-slurm env DSHPC_FROM_HOST=1 dshpc-node rotate-key"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    folder = tmp_path / "project"
    (folder / ".dshpc").mkdir(parents=True)
    runtime = {"container": "p-slurm", "work": f"{folder}/work", "docker": "docker", "prefix": "p"}
    (folder / ".dshpc/runtime.json").write_text(json.dumps(runtime))
    return Project(folder)


def machine(project: Project, answer: Answer, status: str = "running") -> FakeMachine:
    value = {
        "Id": "1",
        "Name": "/p-slurm",
        "Image": "sha256:1",
        "Created": "2026-01-01T00:00:00Z",
        "State": {"Running": status == "running", "Status": status, "ExitCode": 0, "StartedAt": ""},
        "Config": {"Image": "i", "Labels": {"org.dshpc.project": str(project.folder)}},
    }
    return FakeMachine(
        programs={"docker"},
        commands={"docker inspect": Answer(json.dumps([value])), ROTATE: answer},
    )


def test_what_was_done_is_told(project: Project) -> None:
    fake = machine(project, Answer(json.dumps(SAID) + "\n"))
    done = key.rotate(fake, project, Listener())
    assert done.to_json() == {**SAID, "container": "p-slurm"}
    assert "Running jobs are not affected" in done.describe()
    assert "waited in the queue meanwhile (jobs 7)" in done.describe()
    assert fake.ran[-1] == tuple(ROTATE.split())


STEPS = "".join(
    json.dumps({"schema": "dshpc.key-step/1", "step": step}) + "\n"
    for step in ("known", "slurmd", "in-use", "retired", "of a later version")
)


def test_each_step_is_told_as_it_begins(project: Project) -> None:
    """Where a daemon has to be restarted it takes a minute."""
    heard = Listener()
    done = key.rotate(machine(project, Answer(STEPS + json.dumps(SAID) + "\n")), project, heard)
    assert done.key == SAID["key"]
    assert [note.strip()[:6] for note in heard.notes] == [
        "Changi",
        "1 of 3",
        "slurmd",
        "2 of 3",
        "3 of 3",
    ]


def test_steps_are_not_taken_for_the_reason(project: Project) -> None:
    with pytest.raises(DshpcError) as caught:
        key.rotate(machine(project, Answer(STEPS + REFUSED, code=3)), project, Listener())
    assert caught.value.brief == NOT_ENDED.brief


def test_where_nobody_waited_or_the_image_does_not_say_it_nothing_is_said(project: Project) -> None:
    for said in ({**SAID, "waiting": []}, {k: v for k, v in SAID.items() if k != "waiting"}):
        done = key.rotate(machine(project, Answer(json.dumps(said))), project, Listener())
        assert done.waiting == ()
        assert "waited" not in done.describe()


@pytest.mark.parametrize("status", ["exited", "paused", "restarting"])
def test_a_cluster_that_does_not_run_has_nothing_to_change(project: Project, status: str) -> None:
    fake = machine(project, Answer(json.dumps(SAID)), status)
    with pytest.raises(DshpcError, match="does not run") as caught:
        key.rotate(fake, project, Listener())
    assert status in caught.value.details
    assert "dshpc up" in caught.value.resolution[0]
    assert tuple(ROTATE.split()) not in fake.ran


def test_a_cluster_that_is_down_too(project: Project) -> None:
    fake = machine(project, Answer())
    fake.commands["docker inspect"] = Answer(code=1, stderr="Error: No such container: p-slurm")
    with pytest.raises(DshpcError, match="does not run") as caught:
        key.rotate(fake, project, Listener())
    assert "not there" in caught.value.details


NOT_ENDED = DshpcError(
    "The change of the key did not end: slurmd has not taken up the new key.",
    "The former key is still accepted. Running jobs are not affected.",
    ("See the cluster's state: dshpc status",),
)
REFUSED = json.dumps(NOT_ENDED.to_object()) + "\n"


@pytest.mark.parametrize(
    ("answer", "brief", "code"),
    [
        (Answer(REFUSED, code=3), "did not end: slurmd", Exit.INCOMPLETE),
        (
            Answer(json.dumps(DshpcError("The key x is not safe to use.").to_object()), code=2),
            "not safe",
            Exit.ERROR,
        ),
        (Answer(code=1), "ended with 1", Exit.ERROR),
        (Answer(code=64, stderr="There is no command 'rotate-key'.\n"), "too old", Exit.ERROR),
        (Answer(state="timeout"), "not changed within", Exit.INCOMPLETE),
        (Answer("ready\n"), "not known whether", Exit.INCOMPLETE),
        (Answer("[]"), "not known whether", Exit.INCOMPLETE),
        (Answer('{"key": "a"}'), "not known whether", Exit.INCOMPLETE),
        (Answer(json.dumps({**SAID, "former_until": "soon"})), "not known", Exit.INCOMPLETE),
    ],
)
def test_what_went_wrong_is_told(project: Project, answer: Answer, brief: str, code: Exit) -> None:
    with pytest.raises(DshpcError, match=brief) as caught:
        key.rotate(machine(project, answer), project, Listener())
    assert caught.value.exit_code == code
    assert caught.value.resolution


def test_the_containers_own_words_follow(project: Project) -> None:
    with pytest.raises(DshpcError) as caught:
        key.rotate(machine(project, Answer(REFUSED, code=3)), project, Listener())
    assert caught.value.brief == NOT_ENDED.brief
    assert caught.value.details == NOT_ENDED.details
    assert caught.value.resolution == (
        "See the cluster's state: dshpc status",
        "See what the cluster says: dshpc logs",
    )


def test_nodes_elsewhere_get_no_job_until_they_have_joined_anew() -> None:
    """Also one that was away, which has to do something, too; not one that somebody has taken out."""
    slurm = Slurms({"lab2": "idle", "lab3": "down*", "lab4": "drained"})
    with key._taken_out(slurm, ("lab2", "lab3", "lab4")):  # type: ignore[arg-type]
        assert slurm.done == [("drain", "lab2"), ("drain", "lab3")]
    assert slurm.done[2:] == []


def test_where_the_key_stays_they_are_as_they_were() -> None:
    slurm = Slurms({"lab2": "idle"})
    with pytest.raises(DshpcError), key._taken_out(slurm, ("lab2",)):  # type: ignore[arg-type]
        raise DshpcError("no")
    assert slurm.done == [("drain", "lab2"), ("undrain", "lab2")]


class Slurms:
    def __init__(self, states: dict[str, str]) -> None:
        self.states, self.done = states, list[tuple[str, str]]()

    def nodes(self, **_: object) -> Told:
        return Told(tuple(Node(name, state) for name, state in self.states.items()))

    def drain(self, node: str, *_: object, **__: object) -> None:
        self.done.append(("drain", node))

    def undrain(self, node: str, **_: object) -> None:
        self.done.append(("undrain", node))


@dataclass
class Told:
    value: tuple[Node, ...]
