"""What a run agrees to before it writes anything, and what it does afterwards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.apply.apply import Change, Wanted
from dshpc_setup.cluster import compose_file, operations, start
from dshpc_setup.cluster.compose_file import USED
from dshpc_setup.cluster.owner import refuse_others
from dshpc_setup.cluster.start import Agreed
from dshpc_setup.cluster.stopping import MayStop
from dshpc_setup.engine import containers
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import Compose
from dshpc_setup.project.folder import LIVE, Project
from dshpc_setup.settings import load
from dshpc_setup.slurm.paths import HOMES
from tests.unit.cluster.conftest import GONE, INSPECT, TEXTS, cluster, container
from tests.unit.engine.fake import Answer, FakeMachine, Listener

SETTINGS = load(flags={"prefix": "p"})
COMPOSE = Compose("2.26.1", ("docker", "compose"))
NAME = "docker-compose.yml"
SAME = (Change(NAME, "unchanged", TEXTS[NAME], Wanted(TEXTS[NAME]), None),)
NEW = (Change(NAME, "updated", TEXTS[NAME], Wanted(TEXTS[NAME].replace("abc1", "abc2")), NAME),)


RUN = "docker compose --ansi never --project-directory {} -f - -p p run --rm"
REFUSED = Answer(json.dumps({"refused": {"brief": "slurm.conf, line 3", "details": "Bogus=1",
                                         "resolution": ["Correct it"]}}), 2)  # fmt: skip


def job(number: int, user: str = "bob", batch: int = 1) -> str:
    """A line of `squeue -O`."""
    return "\x1f".join([str(number), user, "2:14", str(batch), "1", "train me", "\n"])


def machine(project: Project, jobs: str = "", **more: Any) -> FakeMachine:
    fake = cluster(project, config_sha256={})
    fake.commands |= {
        "docker inspect --type container -- p-trial": GONE,
        RUN.format(project.folder): Answer('Creating p-trial\n{"refused": null}\n'),
        "docker compose": Answer(),
        "docker exec p-slurm squeue": Answer(jobs),
        "docker exec p-slurm scontrol ping": Answer(),
        "docker restart": Answer(),
        "docker rm": Answer(),
        "docker stop": Answer(),
        **more,
    }
    return fake


def with_compose(project: Project) -> FakeMachine:
    fake = machine(project)
    fake.commands = {"docker compose version": Answer("2.26.1\n"), **fake.commands}
    return fake


def changing(fake: FakeMachine) -> list[str]:
    return [line for line in fake.lines() if " up " in line or "restart" in line or " rm " in line]


def agree(
    fake: FakeMachine,
    project: Project,
    changes: tuple[Change, ...],
    *,
    answer: bool = True,
    may: MayStop = MayStop(),
    listener: Listener | None = None,
) -> Agreed:
    listener = listener or Listener(answer=answer)
    return start.agreed(
        fake, project, SETTINGS, COMPOSE, "sha256:1", changes, may or MayStop(), listener
    )


def go(fake: FakeMachine, project: Project, agreed: Agreed) -> bool:
    return start.bring_up(fake, project, SETTINGS, COMPOSE, agreed, MayStop(), Listener())


def test_what_runs_as_it_should_is_left(project: Project) -> None:
    fake = machine(project, jobs=job(7))
    agreed = agree(fake, project, SAME, answer=False)
    assert agreed.why is None
    assert agreed.report["ready"] is True, "nobody has to ask once more"
    assert go(fake, project, agreed) is False
    assert changing(fake) == []


def paused(project: Project, jobs: str = "") -> FakeMachine:
    fake = machine(project, jobs, **{"docker unpause": Answer(), "docker pause": Answer()})
    fake.commands[INSPECT] = [container(project, "paused"), container(project)]
    return fake


def test_a_paused_container_goes_on_and_that_is_told(project: Project) -> None:
    fake, listener = paused(project), Listener()
    agreed = agree(fake, project, SAME, listener=listener)
    assert (agreed.why, agreed.found.status if agreed.found else None) == (None, "running")
    assert fake.lines("docker unpause p-slurm")
    assert not fake.lines("docker pause")
    assert any("is paused (docker pause). It is resumed now" in note for note in listener.notes)


def test_a_paused_container_is_paused_again_where_nothing_is_agreed(project: Project) -> None:
    fake = paused(project, job(7))
    with pytest.raises(DshpcError, match="1 job is running"):
        agree(fake, project, NEW, answer=False)
    assert fake.lines("pause p-slurm") == ["docker unpause p-slurm", "docker pause p-slurm"]


def test_a_refusal_comes_before_anything_is_done(project: Project) -> None:
    before = {path: path.read_bytes() for path in project.folder.rglob("*") if path.is_file()}
    fake = machine(project, jobs=job(7) + job(8))
    with pytest.raises(DshpcError, match="2 jobs are running"):
        agree(fake, project, NEW, answer=False)
    assert changing(fake) == []
    assert before == {path: path.read_bytes() for path in before}


def test_what_was_agreed_is_done(project: Project) -> None:
    fake = machine(project, jobs=job(7))
    agreed = agree(fake, project, NEW)
    assert (agreed.why, agreed.report) == ("docker-compose.yml has changed", {})
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
    fake = machine(project, jobs=job(7))
    assert agree(fake, project, back).why == "docker-compose.yml has changed"
    with pytest.raises(DshpcError, match="not restarted"):
        agree(fake, project, back, answer=False)


@pytest.mark.parametrize(("known", "asks"), [(True, False), (False, True)])
def test_a_file_of_ones_own(project: Project, known: bool, asks: bool) -> None:
    """It stays where the text is known; else compose decides, and who has running jobs is asked."""
    own = (Change(NAME, "kept-edited", EDITED, Wanted(TEXTS[NAME]), None),)
    if known:
        used(project, EDITED)
    fake = machine(project, jobs=job(7))
    if asks:
        with pytest.raises(DshpcError, match="1 job is running"):
            agree(fake, project, own, answer=False)
    agreed = agree(fake, project, own, answer=asks)
    assert (agreed.why is None, agreed.sure) == (known, known)
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
    fake = machine(project, jobs=job(7), **{INSPECT: container(other)})
    with pytest.raises(DshpcError, match="not restarted"):
        agree(fake, project, SAME, answer=False)
    agreed = agree(fake, project, SAME)
    assert changing(fake) == []
    assert go(fake, project, agreed) is True
    assert " rm " in changing(fake)[0]


def test_yes_stops_nobodys_jobs(project: Project) -> None:
    """They have a flag of their own; the error names them, whose they are, and the line to type."""
    fake = machine(project, jobs=job(7) + job(8, "ada", batch=0))
    yes = Listener(answer=True, by_yes=True)
    line = MayStop(command="configure-environment --yes --shm-size 2g")
    with pytest.raises(DshpcError) as caught:
        agree(fake, project, NEW, listener=yes, may=line)
    told = caught.value
    assert "job 7 of bob (train me), for 2:14: starts again" in told.details
    assert "job 8 of ada (train me), for 2:14: ends for good" in told.details
    assert told.resolution[-1].endswith(": configure-environment --yes --shm-size 2g --stop-jobs")
    assert agree(fake, project, NEW, listener=yes, may=MayStop(agreed=True)).why
    assert "job 7 of bob" in yes.notes[-1]


@pytest.mark.parametrize("jobs", ["", job(7)])
def test_what_would_not_start_is_refused_before_anybody_is_asked(
    project: Project, jobs: str
) -> None:
    fake = machine(project, jobs=jobs)
    fake.commands[RUN.format(project.folder)] = REFUSED
    asked = Listener()
    with pytest.raises(DshpcError, match=r"slurm\.conf, line 3") as caught:
        agree(fake, project, NEW, listener=asked)
    assert "the cluster runs as before" in caught.value.details
    assert caught.value.resolution == ("Correct it",)
    assert (asked.questions, changing(fake)) == ([], [])


def test_a_container_that_cannot_be_made_is_refused_before_too(project: Project) -> None:
    fake = machine(project)
    said = "could not select device driver"
    fake.commands[RUN.format(project.folder)] = Answer("", 1, said)
    with pytest.raises(DshpcError, match="Docker cannot pass the GPU through"):
        agree(fake, project, NEW)
    assert changing(fake) == []


def test_an_image_that_knows_no_trial_is_told(project: Project) -> None:
    fake = machine(project)
    fake.commands[RUN.format(project.folder)] = Answer("", 64, "There is no command 'check'.")
    asked = Listener()
    assert agree(fake, project, NEW, listener=asked).why
    assert "was not tried" in asked.notes[0]


OWN = (*SAME, Change("config/slurm.conf", "kept-edited", "mine\n", Wanted("ours\n"), None))


def test_what_a_reconfigure_can_do_needs_no_start(project: Project) -> None:
    fake = machine(project, jobs=job(7))
    fake.commands |= {
        "docker exec p-slurm dshpc-node check": Answer('{"refused": null}'),
        "docker exec -e DSHPC_FROM_HOST=1 p-slurm /usr/local/lib/dshpc/as-user": Answer(),
    }
    agreed = agree(fake, project, OWN, answer=False)
    assert agreed.live
    assert go(fake, project, agreed) is False
    assert changing(fake) == []


def with_settings(fake: FakeMachine, project: Project, **flags: str) -> Agreed:
    settings = load(flags={"prefix": "p", **flags})
    return start.agreed(
        fake, project, settings, COMPOSE, "sha256:1", SAME, MayStop(), Listener(answer=False)
    )


def test_settings_that_are_read_anew_need_no_start(project: Project) -> None:
    """They are tried with their new texts; also where they were written, and nobody has read them."""
    wanted = load(flags={"prefix": "p", "partitions": "short"})
    tried = 'docker exec p-slurm env DSHPC_LIVE={"DSHPC_PARTITIONS": "short"} dshpc-node check'
    fake = machine(project, jobs=job(7))
    fake.commands |= {tried: Answer('{"refused": null}')}
    agreed = with_settings(fake, project, partitions="short")
    assert (agreed.live, agreed.why) == (True, "settings are not in force: partitions")

    project.write_json(LIVE, wanted.live_env())  # a run was ended here
    fake.commands |= {"docker exec p-slurm dshpc-node check": Answer('{"refused": null}')}
    assert with_settings(fake, project, partitions="short").live

    read = cluster(project, config_sha256=wanted.live_digests())
    fake.commands |= {key: read.commands[key] for key in read.commands if "status" in key}
    assert with_settings(fake, project, partitions="short").why is None
    refused = Answer(json.dumps({"refused": {"brief": "No.", "details": "", "resolution": []}}), 2)
    fake.commands["docker exec p-slurm env"] = refused
    with pytest.raises(DshpcError, match="No"):
        with_settings(fake, project, partitions="long")
    assert changing(fake) == []


def test_where_a_reconfigure_does_not_do_jobs_are_asked_for(project: Project) -> None:
    fake = machine(project, jobs=job(7))
    fake.commands |= {
        "docker exec p-slurm dshpc-node check": Answer('{"refused": null}'),
        "docker exec -e DSHPC_FROM_HOST=1 p-slurm /usr/local/lib/dshpc/as-user": Answer("", 2),
    }
    agreed = agree(fake, project, OWN)
    with pytest.raises(DshpcError, match="1 job is running"):
        start.bring_up(fake, project, SETTINGS, COMPOSE, agreed, MayStop(), Listener(answer=False))
    assert changing(fake) == []
    assert go(fake, project, agreed) is True


@pytest.mark.parametrize("works", [True, False])
def test_homes_in_the_containers_own_layer_are_copied_before_it_goes(
    project: Project, works: bool
) -> None:
    (project.folder / NAME).write_text(f'{TEXTS[NAME]}      - "home:{HOMES}"\n')
    fake = machine(project)
    no_volume = Answer("[]", 1, "Error: No such volume: p-home")
    fake.commands |= {
        "docker inspect --type volume -- p-home": no_volume,
        "docker volume create": Answer("p-home"),
        "sh -c docker exec": Answer() if works else Answer("", 2, "Unexpected EOF in archive"),
    }
    agreed = Agreed(containers.inspect(fake, "p-slurm"), "the image is a new one")
    if not works:
        with pytest.raises(DshpcError, match="could not be copied"):
            go(fake, project, agreed)
        assert changing(fake) == []
        return
    assert go(fake, project, agreed)
    words = [line.split(" -- ")[0] for line in fake.lines()]
    (copied,) = (at for at, line in enumerate(words) if line.startswith("sh -c docker exec"))
    (started,) = (at for at, line in enumerate(words) if " up -d" in line)
    assert copied < started
    assert "--label org.dshpc.project=" in fake.lines("volume create")[0]


@pytest.mark.parametrize(
    "answer",
    [
        Answer("", 1, "Error response from daemon: Container 1 is restarting"),
        Answer(state="timeout"),
    ],
)
def test_a_container_that_cannot_be_asked_is_replaced_all_the_same(
    project: Project, answer: Answer
) -> None:
    fake = machine(project)
    fake.commands["docker exec p-slurm dshpc-node status"] = answer
    agreed = agree(fake, project, NEW)
    assert agreed.why == "docker-compose.yml has changed"
    assert not [line for line in fake.lines() if " run --rm " in line]


@pytest.mark.parametrize("act", [operations.up, operations.restart])
def test_without_its_work_folder_no_cluster_starts_or_stops(project: Project, act: Any) -> None:
    """Docker would make one that is root's, and a restart would stop what runs for nothing."""
    fake = with_compose(project)
    (project.folder / "work").rmdir()
    with pytest.raises(DshpcError, match=r"The work folder .* is not there") as raised:
        act(fake, project, Listener())
    assert f"mkdir {project.folder}/work && dshpc up" in raised.value.resolution[0]
    assert changing(fake) == []


@pytest.mark.parametrize("there", [True, False])
def test_a_folder_that_was_moved_is_told_how_its_cluster_comes_along(
    project: Project, tmp_path: Path, there: bool
) -> None:
    before = tmp_path / "before"
    if there:
        before.mkdir()
    fake = with_compose(project)
    fake.commands[INSPECT] = container(Project(before))
    for act in (
        lambda: operations.up(fake, project, Listener()),
        lambda: refuse_others(fake, project, SETTINGS, take_over=False),
    ):
        with pytest.raises(DshpcError, match=f"{before}") as raised:
            act()
        first = raised.value.resolution[0]
        assert first.endswith(f"cd {before}" if there else "configure-environment --take-over")
