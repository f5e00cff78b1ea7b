"""What a run agrees to before it writes anything, and what it does afterwards."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dshpc_setup.apply import Change, Wanted
from dshpc_setup.cluster import compose_file, start
from dshpc_setup.cluster.compose_file import USED
from dshpc_setup.cluster.start import Agreed
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import Compose
from dshpc_setup.project import Project
from dshpc_setup.settings import load
from tests.unit.cluster.conftest import GONE, INSPECT, TEXTS, cluster, container
from tests.unit.engine.fake import Answer, FakeMachine, Listener

SETTINGS = load(flags={"prefix": "p"})
COMPOSE = Compose("2.26.1", ("docker", "compose"))
NAME = "docker-compose.yml"
SAME = (Change(NAME, "unchanged", TEXTS[NAME], Wanted(TEXTS[NAME]), None),)
NEW = (Change(NAME, "updated", TEXTS[NAME], Wanted(TEXTS[NAME].replace("abc1", "abc2")), NAME),)


def machine(project: Project, jobs: str = "", **more: Any) -> FakeMachine:
    fake = cluster(project, config_sha256={})
    fake.commands |= {
        "docker exec p-slurm squeue": Answer(jobs),
        "docker exec p-slurm scontrol ping": Answer(),
        "docker compose": Answer(),
        "docker restart": Answer(),
        "docker rm": Answer(),
        "docker stop": Answer(),
        **more,
    }
    return fake


def changing(fake: FakeMachine) -> list[str]:
    return [line for line in fake.lines() if " up " in line or "restart" in line or " rm " in line]


def agree(
    fake: FakeMachine, project: Project, changes: tuple[Change, ...], *, answer: bool = True
) -> Agreed:
    return start.agreed(fake, project, SETTINGS, "sha256:1", changes, Listener(answer=answer))


def go(fake: FakeMachine, project: Project, agreed: Agreed) -> bool:
    return start.bring_up(fake, project, SETTINGS, COMPOSE, agreed, Listener())


def test_what_runs_as_it_should_is_left(project: Project) -> None:
    fake = machine(project, jobs="7\n")
    agreed = agree(fake, project, SAME, answer=False)
    assert agreed.why is None
    assert go(fake, project, agreed) is False
    assert changing(fake) == []


def test_a_refusal_comes_before_anything_is_done(project: Project) -> None:
    before = {path: path.read_bytes() for path in project.folder.rglob("*") if path.is_file()}
    fake = machine(project, jobs="7\n8\n")
    with pytest.raises(DshpcError, match=r"2 job\(s\) run"):
        agree(fake, project, NEW, answer=False)
    assert changing(fake) == []
    assert before == {path: path.read_bytes() for path in before}


def test_what_was_agreed_is_done(project: Project) -> None:
    fake = machine(project, jobs="7\n")
    agreed = agree(fake, project, NEW)
    assert agreed.why == "docker-compose.yml has changed"
    assert changing(fake) == [], "not yet: the files are to be written first"
    assert go(fake, project, agreed) is True
    assert len(changing(fake)) == 2, "the same container still: it is started anew"
    assert NAME in json.loads((project.folder / USED).read_text())


EDITED = f"{TEXTS[NAME]}    mem_limit: 1g\n"


def used(project: Project, text: str) -> None:
    (project.folder / NAME).write_text(text)
    compose_file.remember_used(project, None)


@pytest.mark.parametrize("action", ["created", "unchanged"])
def test_a_hand_edit_that_was_taken_back(project: Project, action: Any) -> None:
    """The container still has it, though its label is that of the text that was rendered."""
    used(project, EDITED)
    back = (Change(NAME, action, None, Wanted(TEXTS[NAME]), None),)
    fake = machine(project, jobs="7\n")
    assert agree(fake, project, back).why == "docker-compose.yml has changed"
    with pytest.raises(DshpcError, match="not started anew"):
        agree(fake, project, back, answer=False)


@pytest.mark.parametrize(("known", "asks"), [(True, False), (False, True)])
def test_a_file_of_ones_own(project: Project, known: bool, asks: bool) -> None:
    """Compose decides; who has running jobs is asked only where the text is another."""
    own = (Change(NAME, "kept-edited", EDITED, Wanted(TEXTS[NAME]), None),)
    if known:
        used(project, EDITED)
    fake = machine(project, jobs="7\n")
    if asks:
        with pytest.raises(DshpcError, match=r"1 job\(s\) run"):
            agree(fake, project, own, answer=False)
    agreed = agree(fake, project, own, answer=asks)
    assert (agreed.why is not None, agreed.sure) == (True, False)
    assert go(fake, project, agreed) is False, "the same container: compose changed nothing"
    assert [line for line in changing(fake) if "restart" in line] == []


def test_a_container_that_somebody_made_with_compose_himself(project: Project) -> None:
    fake = machine(project)
    fake.commands[INSPECT] = container(project, config_hash="other")
    agreed = agree(fake, project, SAME)
    assert "may be" in (agreed.why or "")
    assert go(fake, project, agreed) is False
    assert agree(fake, project, SAME).why is None, "what compose made of it is known now"


def test_one_that_is_down_is_started(project: Project) -> None:
    fake = machine(project)
    fake.commands[INSPECT] = [GONE, container(project)]
    agreed = agree(fake, project, SAME, answer=False)
    assert (agreed.found, agreed.why) == (None, "it is down")
    assert go(fake, project, agreed) is True
    assert len(changing(fake)) == 1


def test_one_of_another_folder_is_replaced_only_after_a_yes(project: Project) -> None:
    other = Project(project.folder / "other")
    fake = machine(project, jobs="7\n", **{INSPECT: container(other)})
    with pytest.raises(DshpcError, match="not started anew"):
        agree(fake, project, SAME, answer=False)
    agreed = agree(fake, project, SAME)
    assert changing(fake) == []
    assert go(fake, project, agreed) is True
    assert " rm " in changing(fake)[0]
