from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.cluster import neighbours, previous, refused
from dshpc_setup.cluster import operations as cluster
from dshpc_setup.cluster import status as cluster_status
from dshpc_setup.cluster.destroy import destroy
from dshpc_setup.cluster.status import isolation, lines
from dshpc_setup.cluster.stopping import STOPPED, MayStop
from dshpc_setup.container import daemons
from dshpc_setup.engine import start_report
from dshpc_setup.errors import DshpcError, Exit, Fix
from dshpc_setup.files.ownership import digest
from dshpc_setup.jobs import clock
from dshpc_setup.observed.cluster_status import TIERS, ClusterStatus
from dshpc_setup.observed.model import OtherCluster
from dshpc_setup.project.folder import Project
from dshpc_setup.render.volumes import VOLUMES
from dshpc_setup.slurm.client import parse_config
from dshpc_setup.slurm.nodes import Node, parse_gres, parse_line, parse_rows
from tests.unit.engine.fake import Answer, FakeMachine, Listener

READY = json.dumps(
    {"phase": "ready", "ready": True, "changes": ["GPU gone: t4"], "simulated": True}
)
QUEUE = "\x1e".join(
    "\x1f".join((*cells, "\n"))
    for cells in (
        ("5", "debug", "JobHeldUser", *["N/A"] * 11, "ada", "train"),
        ("p", "2", "1000", "gpu:h100:2", "mixed", "h100", "none"),
        ("debug*", "up"),
    )
)
NONE = Answer(code=1, stderr="Error: No such container: p-slurm")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    folder = tmp_path / "project"
    (folder / ".dshpc").mkdir(parents=True)
    (folder / "work").mkdir(exist_ok=True)
    runtime = {"container": "p-slurm", "work": f"{folder}/work", "docker": "docker", "prefix": "p"}
    (folder / ".dshpc/runtime.json").write_text(json.dumps(runtime))
    (folder / "docker-compose.yml").write_text('services:\n  slurm:\n    image: "p-slurm:none"\n')
    return Project(folder)


IMAGE = "/usr/bin/docker image inspect --format {{json .}} p-slurm:none"


def container(owner: str | None, status: str = "running", name: str = "p-slurm") -> Answer:
    value = {
        "Id": "1",
        "Name": f"/{name}",
        "Image": "sha256:1",
        "Created": "2999-01-01T00:00:00Z",
        "State": {
            "Running": status == "running",
            "Status": status,
            "ExitCode": 3,
            "StartedAt": "2026-01-01T00:00:00.123456789Z",
        },
        "Config": {
            "Image": "p-slurm:none",
            "Labels": {"org.dshpc.project": owner} if owner else {},
        },
    }
    return Answer(json.dumps([value]))


def volume(owner: str | None) -> Answer:
    labels = {"org.dshpc.project": owner} if owner else None
    return Answer(json.dumps([{"Name": "v", "Labels": labels}]))


def running(number: int) -> str:
    """A line of `squeue -O`: a job that root has started with srun."""
    return "\x1f".join([str(number), "root", "0:10", "0", "1", "bash", "\n"])


def machine(project: Project, **more: Any) -> FakeMachine:
    commands: dict[str, Any] = {
        "docker inspect --type container -- p-slurm": container(str(project.folder)),
        "docker compose version": Answer("2.26.1\n"),
        "docker exec p-slurm sinfo": Answer("p|gpu:h100:2|gpu:h100:1(IDX:0)|mixed|none\n"),
        "docker exec p-slurm scontrol": Answer("TaskPlugin = task/none\n"),
        "docker exec p-slurm sh -c squeue": Answer(QUEUE),
        "docker exec p-slurm squeue": Answer("".join(map(running, (7, 9)))),
        "docker inspect --type container -- p-trial": NONE,
        f"docker compose --ansi never --project-directory {project.folder} -f - -p p run": Answer(
            '{"refused": null}'
        ),
        "docker compose": Answer(),
        "docker exec p-slurm dshpc-node check": Answer('{"refused": null}'),
        "docker exec p-slurm dshpc-node": Answer(READY),
        IMAGE: Answer('{"Id": "sha256:1", "Architecture": "amd64", "Size": 1}'),
        "docker restart": Answer(),
        "docker unpause": Answer(),
        "docker ps": Answer(),
        "docker volume ls": Answer("p-key\np-state\n"),
        "docker inspect --type volume": volume(str(project.folder)),
        "docker volume rm": Answer(),
        "docker network ls --format {{.Name}} --filter label=com.docker.compose.project=p": Answer(
            "p_default\n"
        ),
        "docker network ls": Answer(),
        "docker network rm": Answer(),
        "docker stop": Answer(),
        "docker rm -f": Answer(),
        "docker images": Answer("p-slurm:none\npp-slurm:none\n"),
        "docker rmi": Answer(),
        "docker logs": Answer("last words\n"),
    }
    return FakeMachine(
        programs={"docker"}, commands={**more.pop("commands", {}), **commands} | more
    )


IDLE = {"docker exec p-slurm squeue": Answer()}
INSPECT = "docker inspect --type container -- p-slurm"


def test_up_starts_waits_and_says_how_it_is(project: Project) -> None:
    fake = machine(project, **IDLE)
    status = cluster.up(fake, project, Listener())
    assert (status.ready, status.exit_code) == (True, 0)
    (started,) = fake.lines(" up ")
    assert f"-f {project.folder}/docker-compose.yml -p p up -d --no-build" in started
    assert fake.lines("dshpc-node wait")


def test_a_paused_container_is_woken(project: Project) -> None:
    fake = machine(project, **{INSPECT: [container(str(project.folder), "paused"),
                                         container(str(project.folder))]})  # fmt: skip
    cluster.up(fake, project, Listener())
    assert fake.lines("docker unpause p-slurm")


def test_a_missing_image_is_not_looked_for_elsewhere(project: Project) -> None:
    gone = Answer(code=1, stderr="Error: No such image: p-slurm:none")
    fake = machine(project, **{IMAGE: gone})
    with pytest.raises(DshpcError, match="p-slurm:none is not there"):
        cluster.up(fake, project, Listener())
    assert not fake.lines(" up ")


def test_a_cluster_that_falls_over_speaks_its_last_words(project: Project) -> None:
    fake = machine(project)
    fake.commands[INSPECT] = [NONE, container(str(project.folder), "exited")]
    fake.commands["docker exec p-slurm dshpc-node"] = Answer(code=1, stderr="is not running")
    with pytest.raises(DshpcError) as caught:
        cluster.up(fake, project, Listener())
    assert "exited, exit code 3" in caught.value.brief
    assert "last words" in caught.value.details


def test_a_failed_start_is_told_as_the_container_tells_it(project: Project) -> None:
    failure = {"brief": "No key.", "details": "empty", "resolution": ["Remove it."]}
    report = json.dumps({"phase": "failed", "ready": False, "failure": failure})
    fake = machine(project, **{"docker exec p-slurm dshpc-node": Answer(report, 2)})
    with pytest.raises(DshpcError) as caught:
        cluster.restart(fake, project, Listener())
    again = "Then start it again: dshpc restart"
    assert caught.value.resolution == ("Remove it.", again)
    assert (caught.value.brief, caught.value.details) == ("No key.", "empty")


def test_up_tries_a_start_that_failed_again(project: Project) -> None:
    failed = Answer(json.dumps({"phase": "failed", "ready": False}), 2)
    change = {"docker exec p-slurm dshpc-node": [failed, failed, Answer(READY)], **IDLE}
    fake = machine(project, **change)
    assert cluster.up(fake, project, Listener()).ready
    assert fake.lines("docker restart")
    well = machine(project, **IDLE)
    cluster.up(well, project, Listener())
    assert not well.lines("docker restart")


@pytest.mark.parametrize(
    ("steps", "wanted"),
    [
        ((), ("Start it again: dshpc restart",)),
        ((Fix("Remove it."),), ("Remove it.", "Then start it again: dshpc restart")),
        ((Fix("Fix it, then", "dshpc restart", does="restart"),), ("Fix it, then: dshpc restart",)),
    ],
)
def test_what_follows_a_start_that_failed(steps: tuple[Fix, ...], wanted: tuple[str, ...]) -> None:
    assert tuple(map(str, cluster_status.after_failure(steps))) == wanted
    failure = {"brief": "No key.", "fixes": [step.to_json() for step in steps]}
    said = lines(ClusterStatus("/p", "p-slurm", "running", phase="failed", failure=failure))
    assert [line.strip() for line in said[-len(wanted) :]] == [f"- {text}" for text in wanted]


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("drained", "dshpc exec --root -- scontrol update NodeName=p State=RESUME"),
        ("draining", "dshpc exec --root -- scontrol update NodeName=p State=RESUME"),
        ("down", "dshpc exec --root -- scontrol update NodeName=p State=RESUME"),
        ("inval", "dshpc doctor"),
        ("idle*", "dshpc doctor"),
    ],
)
def test_the_command_that_takes_a_node_back_is_one_that_the_user_may_give(
    project: Project, state: str, said: str
) -> None:
    fake = machine(project, **{"docker exec p-slurm sinfo": Answer(f"p|x|x|{state}|fans\n")})
    assert lines(cluster.status(fake, project))[-1].endswith(said)
    assert "RESUME" not in "\n".join(lines(cluster.status(machine(project), project)))


@pytest.mark.parametrize("owner", ["/another/folder", None])
def test_what_is_not_ours_is_left_alone(project: Project, owner: str | None) -> None:
    fake = machine(project, **{INSPECT: container(owner)})
    for act in (cluster.up, cluster.down, cluster.restart, destroy):
        with pytest.raises(DshpcError) as caught:
            act(fake, project, Listener())
        assert (owner or "not one of dsHPC's") in caught.value.brief
    with pytest.raises(DshpcError):
        cluster.logs_argv(fake, project, follow=False, tail=None)
    assert all("inspect" in line or "version" in line for line in fake.lines())


def test_restart_of_a_cluster_that_is_down_is_up(project: Project) -> None:
    fake = machine(project, **{INSPECT: [NONE, NONE, container(str(project.folder))]})
    assert cluster.restart(fake, project, Listener()).ready
    assert fake.lines(" up ")
    assert not fake.lines("docker restart")


@pytest.mark.parametrize("act", [cluster.down, cluster.restart, cluster.up])
def test_what_stops_jobs_names_them_and_asks(project: Project, act: Any) -> None:
    """Whoever they are of; a question that --yes does not answer, and the line that does."""
    fake, asked = machine(project), Listener(answer=True, by_yes=True)
    with pytest.raises(DshpcError, match="2 jobs are running") as caught:
        act(fake, project, asked)
    assert "job 9 of root (bash), for 0:10: ends for good" in caught.value.details
    assert caught.value.resolution[-1].endswith(f": dshpc {act.__name__} --stop-jobs")
    assert not [line for word in (" down", "docker restart", " up ") for line in fake.lines(word)]
    assert act(fake, project, asked, may=MayStop(True))
    assert "job 7 of root" in asked.notes[0]
    assert project.read_note(STOPPED)["command"] == f"dshpc {act.__name__}"


def test_a_restart_that_would_fail_is_refused_first(project: Project) -> None:
    refused = {"refused": {"brief": "Line 3.", "details": "Bogus", "resolution": ["Fix it."]}}
    check = {"docker exec p-slurm dshpc-node check": Answer(json.dumps(refused), 2)}
    fake, asked = machine(project), Listener()
    fake.commands |= check
    with pytest.raises(DshpcError, match=r"Line 3\.") as caught:
        cluster.restart(fake, project, asked)
    assert caught.value.resolution == ("Fix it.",)
    assert "the cluster runs as before" in caught.value.details
    assert (asked.questions, fake.lines("docker restart")) == ([], [])


@pytest.mark.parametrize("act", [cluster.restart, cluster.up])
def test_a_queue_that_would_not_fit_is_asked_first(project: Project, act: Any) -> None:
    queue = Answer("N/A|RUNNING|\n40|PENDING|\n")
    asks = "docker exec p-slurm squeue -h -a -r -t all"
    fake = machine(project, commands={asks: queue}, **IDLE)
    conf = project.folder / "config" / "slurm.conf"
    conf.parent.mkdir(exist_ok=True)
    conf.write_text("MaxArraySize=10\n")
    with pytest.raises(DshpcError, match="has task 40"):
        act(fake, project, Listener(), may=MayStop(True))
    assert not [line for word in ("docker restart", " up ") for line in fake.lines(word)]
    conf.write_text("MaxArraySize=50\n")
    assert act(fake, project, Listener()).ready


def test_a_restart_while_something_else_changes_the_cluster(project: Project) -> None:
    refused = {"brief": "The cluster is being changed already.", "details": "By dshpc key rotate."}
    busy = Answer(json.dumps({"refused": refused}), code=3)
    fake = machine(project)
    fake.commands |= {"docker exec p-slurm dshpc-node check": busy}
    with pytest.raises(DshpcError, match="being changed already") as caught:
        cluster.restart(fake, project, Listener())
    assert caught.value.exit_code == Exit.INCOMPLETE
    assert fake.lines("docker restart") == []


def test_down_says_whether_there_was_one(project: Project) -> None:
    fake, quiet = machine(project, **IDLE), Listener(answer=False)
    assert cluster.down(fake, project, quiet)
    assert fake.lines("-p p down")
    assert not cluster.down(machine(project, **{INSPECT: NONE}), project, quiet)
    assert (quiet.notes, quiet.questions) == ([], [])


NO_VOLUME = Answer("[]", 1, "Error response from daemon: get p-key: no such volume")


def test_destroy_removes_this_cluster_by_its_names(project: Project) -> None:
    fake, listener = machine(project), Listener()
    gone = destroy(fake, project, listener, image=True)
    assert gone.removed == ["p-slurm", "p_default", "p-state", "p-key", "p-home", "p-slurm:none"]
    assert (gone.left, gone.notes) == ([], [])
    assert fake.lines("-p p down")
    assert fake.lines("volume rm") == [f"docker volume rm -- p-{part}" for part in VOLUMES]
    assert fake.lines("rmi") == ["docker rmi -- p-slurm:none"]
    assert str(project.folder / "work") in listener.questions[0]
    assert not fake.lines("rm -rf")


def with_another(project: Project) -> FakeMachine:
    """A folder in which there was a cluster `old`, and one that another folder has taken over."""
    fake = machine(project)
    fake.commands |= {
        "docker ps": Answer("old-slurm\np-slurm\n"),
        "docker volume ls": Answer("old-home\nold-key\nold-state\np-home\ntaken-state\n"),
        "docker network ls": Answer(),
        "docker inspect --type container -- old-slurm": container(
            str(project.folder), name="old-slurm"
        ),
        "docker inspect --type container -- taken-slurm": container("/another", name="taken-slurm"),
        "docker exec old-slurm squeue": Answer(running(3)),
    }
    return fake


def test_another_cluster_of_the_folder_is_named_and_left(project: Project) -> None:
    fake = with_another(project)
    gone = destroy(fake, project, Listener(), image=True)
    assert gone.left == []
    (note,) = gone.notes
    assert note.endswith(": dshpc destroy --prefix old")
    assert not [line for line in fake.lines("old") if " rm " in line]


def test_another_cluster_of_the_folder_is_removed_by_its_name(project: Project) -> None:
    fake, listener = with_another(project), Listener()
    gone = destroy(fake, project, listener, prefix="old")
    assert gone.removed == ["old-slurm", *(f"old-{part}" for part in VOLUMES)]
    assert gone.left == []
    assert "job 3 of root" in listener.questions[0]
    assert "homes" in listener.questions[0]
    assert not fake.lines("docker compose"), "docker-compose.yml is not of that one any more"
    assert not [line for line in fake.lines("p-slurm") if " rm " in line]


def test_a_former_cluster_is_removed_or_kept_by_an_answer(project: Project) -> None:
    """And not by --yes: its queue and homes would be lost with it."""
    yes = Listener(answer=True, by_yes=True)
    fake = with_another(project)
    (told,) = previous.settle(fake, project, yes, remember=False)
    assert "is kept" in told
    assert "dshpc destroy --prefix old" in told
    assert not fake.lines(" rm ")
    assert len(list(previous.settle(fake, project, Listener(answer=False), remember=True))) == 1
    assert list(previous.settle(fake, project, silent := Listener(), remember=True)) == []
    assert silent.questions == [], "who has answered is not asked again"
    (project.folder / previous.KEPT).unlink()
    (told,) = previous.settle(fake, project, Listener(), remember=True)
    assert told == f"Removed: old-slurm, {', '.join(f'old-{part}' for part in VOLUMES)}."


@pytest.mark.parametrize(
    ("label", "status", "shared"),
    [
        ("GPU-1,GPU-2", "running", ("GPU-1",)),
        ("GPU-1", "exited", None),
        ("GPU-2,GPU-10", "running", None),
        (None, "running", None),
    ],
)
def test_clusters_with_the_same_gpus_are_told(
    label: str | None, status: str, shared: tuple[str, ...] | None
) -> None:
    (value,) = json.loads(container("/another", status).stdout)
    if label is not None:
        value["Config"]["Labels"]["org.dshpc.gpus"] = label
    fake = FakeMachine(
        commands={
            "docker ps": Answer("p-slurm\nq-slurm\n"),
            "docker inspect --type container -- q-slurm": Answer(json.dumps([value])),
        }
    )
    found = neighbours.sharing(fake, "p-slurm", "GPU-0,GPU-1")
    wanted = () if shared is None else (OtherCluster("q", "/another", shared),)
    assert found == wanted
    assert neighbours.sharing(FakeMachine(), "p-slurm", "") == ()


@pytest.mark.parametrize("owner", ["/another/folder", None])
def test_volumes_that_were_taken_over_go_with_the_container(
    project: Project, owner: str | None
) -> None:
    gone = destroy(machine(project, **{"docker inspect --type volume": volume(owner)}),
                   project, Listener())  # fmt: skip
    assert {"p-state", "p-key"} <= set(gone.removed)


@pytest.mark.parametrize("owner", ["/another/folder", None])
def test_a_strangers_volumes_stay_and_are_named(project: Project, owner: str | None) -> None:
    change = {"docker inspect --type volume": volume(owner), INSPECT: NONE}
    fake = machine(project, **change)
    gone = destroy(fake, project, Listener())
    assert not fake.lines("volume rm")
    assert [f"docker volume rm p-{part}" in text for part, text in
            zip(VOLUMES, gone.left, strict=True)] == [True] * 3  # fmt: skip
    assert (owner or "does not say") in gone.left[0]


def test_what_a_takeover_left_is_this_folders(project: Project) -> None:
    runtime = {**project.runtime(), "volumes_of": "/another/folder"}
    (project.folder / ".dshpc/runtime.json").write_text(json.dumps(runtime))
    change = {"docker inspect --type volume": volume("/another/folder"), INSPECT: NONE}
    assert "p-state" in destroy(machine(project, **change), project, Listener()).removed


def test_nothing_to_destroy(project: Project) -> None:
    change = {INSPECT: NONE, "docker inspect --type volume": NO_VOLUME}
    fake = machine(project, **change)
    fake.commands["docker network ls --format {{.Name}} --filter "
                  "label=com.docker.compose.project=p"] = Answer()  # fmt: skip
    gone = destroy(fake, project, Listener())
    assert (gone.removed, gone.left, gone.notes) == ([], [], [])


def test_all_that_could_not_be_removed_is_told(project: Project) -> None:
    busy = Answer(code=1, stderr="Error response from daemon: it is in use")
    change = dict.fromkeys(("docker volume rm", "docker network rm", "docker rmi"), busy)
    fake = machine(project, **change)
    fake.commands = {"docker compose --": busy} | fake.commands
    gone = destroy(fake, project, Listener(), image=True)
    assert gone.removed == ["p-slurm"]
    for name in ("compose down", "p_default", "p-state", "p-key", "p-slurm:none"):
        assert any(name in text and "in use" in text for text in gone.left), name


def test_destroy_without_compose_removes_all_the_same(project: Project) -> None:
    fake = machine(project)
    (project.folder / "docker-compose.yml").unlink()
    assert "p-slurm" in destroy(fake, project, Listener()).removed
    assert fake.lines("docker rm -f -v -- p-slurm")


def test_destroy_without_a_yes_removes_nothing(project: Project) -> None:
    fake = machine(project)
    with pytest.raises(DshpcError, match="Nothing was removed"):
        destroy(fake, project, Listener(answer=False))
    asked = ("inspect", "squeue")
    assert [line for line in fake.lines() if not any(word in line for word in asked)] == []


def test_destroy_keeps_images_unless_asked(project: Project) -> None:
    fake = machine(project)
    destroy(fake, project, Listener())
    assert not fake.lines("rmi")


def test_a_folder_without_a_cluster(tmp_path: Path) -> None:
    with pytest.raises(DshpcError, match="no cluster") as caught:
        cluster.status(FakeMachine(), Project(tmp_path))
    assert "configure-environment" in caught.value.resolution[0]


def test_no_compose_file_and_no_compose(project: Project) -> None:
    fake = machine(project)
    fake.commands["docker compose version"] = Answer(code=1)
    fake.programs = {"docker"}
    with pytest.raises(DshpcError, match="Compose is not installed"):
        cluster.up(fake, project, Listener())
    (project.folder / "docker-compose.yml").unlink()
    with pytest.raises(DshpcError, match="is missing"):
        cluster.down(machine(project), project, Listener())


def test_logs(project: Project) -> None:
    argv = cluster.logs_argv(machine(project), project, follow=True, tail=5)
    assert argv == ["docker", "logs", "--follow", "--tail", "5", "--", "p-slurm"]
    with pytest.raises(DshpcError, match="no log"):
        cluster.logs_argv(machine(project, **{INSPECT: NONE}), project, follow=False, tail=None)


# Status


def test_status_as_json(project: Project) -> None:
    value = cluster.status(machine(project), project).to_json()
    assert json.loads(json.dumps(value)) == {
        "schema": "dshpc.status/1",
        "exit_code": 0,
        "ready": True,
        "project": str(project.folder),
        "container": "p-slurm",
        "state": "running",
        "health": None,
        "image": "p-slurm:none",
        "started": "2026-01-01T00:00:00Z",
        "phase": "ready",
        "failure": None,
        "nodes": [
            {
                "name": "p",
                "state": "mixed",
                "reason": None,
                "gres_total": {"gpu:h100": 2},
                "gres_in_use": {"gpu:h100": 1},
            }
        ],
        "isolation": {"tier": "default", "detail": TIERS["default"]},
        "image_gpu_type": None,
        "simulated": True,
        "changes": ["GPU gone: t4"],
        "drift": [],
        "reconfigured": None,
        "files": None,
        "config_sha256": None,
        "pending": {
            "count": 1,
            "jobs": [
                {
                    "job": "5",
                    "user": "ada",
                    "name": "train",
                    "why": "it is held; to release it: dshpc scontrol release 5",
                    "hold": "person",
                    "asks_for": None,
                    "until": None,
                }
            ],
        },
        "notes": [],
        "compose_late": False,
        "problem": None,
        "kept_last_good": None,
        "refused": None,
        "idle_gpus": [],
        "unclean_ends": [],
        "interrupted": None,
        "accounting": None,
        "rest": None,
    }


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        ({INSPECT: NONE}, Exit.ERROR, "is down"),
        ({"docker exec p-slurm dshpc-node": Answer("{}", 3)}, Exit.INCOMPLETE, "not started yet"),
        (
            {"docker exec p-slurm dshpc-node": Answer('{"phase": "starting: key"}', 3)},
            Exit.INCOMPLETE,
            "starting: key",
        ),
        (
            {
                "docker exec p-slurm dshpc-node": Answer(
                    '{"phase": "failed", "failure": {"brief": "No key."}}', 2
                )
            },
            Exit.ERROR,
            "No key.",
        ),
        (
            {"docker exec p-slurm sinfo": Answer("p|(null)|(null)|drained|a|b\n")},
            Exit.ERROR,
            "because: a|b",
        ),
        (
            {"docker exec p-slurm sinfo": Answer(code=1, stderr="no controller")},
            Exit.ERROR,
            "no controller",
        ),
    ],
)
def test_status_of_a_cluster_that_is_not_well(
    project: Project, change: dict[str, Any], code: int, said: str
) -> None:
    status = cluster.status(machine(project, **change), project)
    assert status.exit_code == code
    assert not status.ready
    assert said in "\n".join(lines(status))


def test_a_refused_configuration_is_a_warning(project: Project) -> None:
    kept = {"brief": "Line 3 is wrong.", "details": "", "resolution": []}
    report = json.dumps({"phase": "ready", "ready": True, "kept_last_good": kept})
    status = cluster.status(
        machine(project, **{"docker exec p-slurm dshpc-node": Answer(report)}), project
    )
    assert (status.ready, status.exit_code) == (True, Exit.WARNING)
    assert status.exit_code_of_change == Exit.ERROR
    assert "Line 3 is wrong." in "\n".join(lines(status))
    down = ClusterStatus("/p", "p-slurm", "missing", kept_last_good=kept)
    assert down.exit_code == Exit.ERROR


@pytest.mark.parametrize(("state", "true"), [("idle", False), ("drained", True), ("idle*", True)])
def test_a_node_that_was_taken_back_since_the_start(
    project: Project, state: str, true: bool
) -> None:
    """Slurm keeps the reason, and the start's report its note."""
    taken = parse_line("NodeName=p State=IDLE+DRAIN Reason=hot [root@2026-01-01T00:00:00]")
    assert taken is not None
    left = daemons.take_back(FakeMachine(), "p", taken, fresh=False)
    assert left is not None
    other = "Another note."
    told = {
        "phase": "ready",
        "ready": True,
        "notes": [left.note, other],
        "note_keys": ["node p", None],
    }
    report = json.dumps(told)
    fake = machine(project, **{"docker exec p-slurm dshpc-node": Answer(report)})
    fake.commands["docker exec p-slurm sinfo"] = Answer(f"p|gpu:h100:2||{state}|hot\n")
    status = cluster.status(fake, project)
    assert status.notes[-1] == other
    assert (left.note in status.notes) is true
    assert ("because: hot" in "\n".join(lines(status))) is true


def test_jobs_that_cannot_run_are_explained(project: Project) -> None:
    status = cluster.status(machine(project), project)
    text = "\n".join(lines(status))
    assert "1 queued job is held:\n           5 (ada, train): it is held" in text
    jobs = status.to_json()["pending"]
    assert (jobs["count"], jobs["jobs"][0]["job"]) == (1, "5")
    silent = machine(project, **{"docker exec p-slurm sh -c squeue": Answer(code=1)})
    assert cluster.status(silent, project).to_json()["pending"] is None


DRIFT = {"what": "GPUs of type h100", "was": "2", "is": "1", "done": "Gres is gpu:h100:1"}


def test_what_is_different_is_one_block(project: Project) -> None:
    told = {"phase": "ready", "ready": True, "drift": [DRIFT], "changes": ["GPUs: 2 before"]}
    report = json.dumps({**told, "reconfigured": "2026-01-02T03:04:05.5Z"})
    status = cluster.status(
        machine(project, **{"docker exec p-slurm dshpc-node": Answer(report)}), project
    )
    said = lines(status)
    at = said.index("Changed    since the last start, at 2026-01-02T03:04:05Z by reconfigure:")
    assert said[at + 1 : at + 3] == [
        "           GPUs of type h100: was 2, is 1",
        "             done: Gres is gpu:h100:1",
    ]
    assert "2 before" not in "\n".join(said), "the same is not said twice"
    assert status.to_json()["drift"] == [DRIFT]


def test_settings_that_are_not_in_force_yet(project: Project) -> None:
    fake = machine(project)
    record = {"texts": {"prefix": "p"}, "by_variable": []}
    (project.folder / ".dshpc/settings.json").write_text(json.dumps(record))
    yaml = project.folder / "dshpc.yaml"
    yaml.write_text("prefix: p\n")
    assert not [note for note in cluster.status(fake, project).notes if "still runs" in note]
    yaml.write_text("prefix: p\narray_limit: 50\n")
    (note,) = [note for note in cluster.status(fake, project).notes if "still runs" in note]
    assert note.startswith(
        "array_limit is now 50 (dshpc.yaml:2:1), but the cluster still runs with 10001."
    )
    yaml.write_text("prefix: p\narray_limit: 0\ngpuu: amd\n")
    status = cluster.status(fake, project)
    assert status.exit_code == 0, "the cluster goes on"
    first, second = status.notes
    assert first.startswith("dshpc.yaml:2:1: array_limit = '0' ")
    assert "dshpc config unset array_limit" in first
    assert second.startswith("dshpc.yaml:3:1: there is no setting 'gpuu'.")
    assert "dshpc config unset gpuu" in second
    yaml.write_text("prefix: p\nslurm_conf_extra: |\n  KillWait=10\n  ClusterName=x\n")
    (note,) = cluster.status(fake, project).notes
    assert note.startswith("dshpc.yaml:4:3: slurm_conf_extra, line 2 clashes: ")


def test_what_was_refused_is_told_before_what_waits(project: Project) -> None:
    """It said "To apply it: configure-environment", which refused it again."""
    fake, yaml = machine(project), project.folder / "dshpc.yaml"
    record = {"texts": {"prefix": "p"}, "by_variable": []}
    (project.folder / ".dshpc/settings.json").write_text(json.dumps(record))
    (project.folder / "config").mkdir(exist_ok=True)
    project.write_json("config/manifest.json", {"files": {"config/slurm.conf": "0"}})
    yaml.write_text("prefix: p\nslurm_conf_extra: KillWaitt=30\n")
    error = DshpcError("Slurm knows no 'KillWaitt'.", "The line is: x", ("Did you mean KillWait?",))
    refused.remember(project, project.settings({}), error)
    status = cluster.status(fake, project)
    said = lines(status)
    at = said.index("Refused    by the last configure-environment, which changed nothing:")
    assert said[at + 1 : at + 4] == [
        "           Slurm knows no 'KillWaitt'.",
        "           The line is: x",
        "           - Did you mean KillWait?",
    ]
    (note,) = [text for text in said if "still runs with" in text]
    assert said.index(note) > at
    assert "To apply" not in note
    assert status.refused == error.to_json()
    (short,) = cluster.restart(machine(project, **IDLE), project, Listener()).notes
    assert short.endswith("The last configure-environment was refused. See why: dshpc status")
    yaml.write_text("prefix: p\n")
    assert cluster.status(fake, project).refused is None, "nothing waits"


def test_a_setting_that_goes_into_a_file_of_ones_own(project: Project) -> None:
    """It was silently not in force, and before that to be applied by a run that could not."""
    fake, yaml = machine(project), project.folder / "dshpc.yaml"
    record = {"texts": {"prefix": "p"}, "by_variable": []}
    (project.folder / ".dshpc/settings.json").write_text(json.dumps(record))
    (project.folder / "config").mkdir(exist_ok=True)
    conf = project.folder / "config/slurm.conf"
    conf.write_text("# USER_CUSTOMIZED=true\nClusterName=p\n")
    yaml.write_text("prefix: p\nslurm_conf_extra: KillWait=60\nshm_size: 4g\n")
    (now, note) = [text for text in cluster.status(fake, project).notes if "dshpc.yaml" in text]
    assert now.startswith("shm_size is now 4g")
    assert note.startswith(
        "slurm_conf_extra (dshpc.yaml:2:1) is not in force: config/slurm.conf is "
    )
    assert "does not have: KillWait=60." in note
    assert "dshpc reconfigure" in note
    *_, short = cluster.restart(machine(project, **IDLE), project, Listener()).notes
    assert "because the file that they go into is your own: slurm_conf_extra." in short
    conf.write_text("# USER_CUSTOMIZED=true\nClusterName=p\nKillWait=60\n")
    (now,) = [text for text in cluster.status(fake, project).notes if "dshpc.yaml" in text]
    assert now.startswith("shm_size is now 4g"), "in force by the file, and nothing to apply"


@pytest.mark.parametrize("start", [cluster.up, cluster.restart])
def test_a_start_says_which_settings_it_did_not_put_in_force(project: Project, start: Any) -> None:
    record = {"texts": {"prefix": "p"}, "by_variable": []}
    (project.folder / ".dshpc/settings.json").write_text(json.dumps(record))
    yaml = project.folder / "dshpc.yaml"
    yaml.write_text("prefix: p\n")
    assert start(machine(project, **IDLE), project, Listener()).notes == ()
    yaml.write_text("prefix: p\narray_limit: 50\nshm_size: 4g\n")
    (note,) = start(machine(project, **IDLE), project, Listener()).notes
    assert note == (
        "Settings changed and not in force yet: shm_size (dshpc.yaml:3:1), array_limit "
        "(dshpc.yaml:2:1). To apply them: configure-environment"
    )
    yaml.write_text("prefix: p\narray_limit: 0\ngpuu: amd\n")
    (note,) = start(machine(project, **IDLE), project, Listener()).notes
    assert note.startswith("Settings that cannot be used, and are not in force: array_limit, gpuu.")
    assert "configure-environment" not in note, "which refuses them"


def test_whose_files_are_in_force(project: Project) -> None:
    mine = "# mine\n"
    (project.folder / "config").mkdir()
    (project.folder / "config/gres.conf").write_text(mine)
    told = {"phase": "ready", "ready": True, "customized": {"gres.conf": "edited"},
            "config_sha256": {"gres.conf": digest(mine)}}  # fmt: skip
    fake = machine(project, **{"docker exec p-slurm dshpc-node": Answer(json.dumps(told))})
    status = cluster.status(fake, project)
    assert status.files == {"slurm.conf": "rendered", "gres.conf": "edited",
                            "cgroup.conf": "rendered",
                            "docker-compose.yml": "edited"}  # fmt: skip
    assert "gres.conf yours (edited by hand)" in "\n".join(lines(status))
    assert not [note for note in status.notes if "not in force" in note]
    (project.folder / "config/gres.conf").write_text("# again\n")
    (note,) = cluster.status(fake, project).notes
    assert note == "config/gres.conf is not in force as it is now: dshpc reconfigure"
    (project.folder / "config/gres.conf").unlink()
    (project.folder / "config/gres.conf").mkdir()  # what is asked for is how the cluster is
    (note,) = cluster.status(fake, project).notes
    assert note.startswith(f"Cannot read {project.folder}/config/gres.conf: Is a directory. ")


def test_simulated_gpus_are_labelled(project: Project) -> None:
    text = "\n".join(lines(cluster.status(machine(project), project)))
    assert "SIMULATED" in text
    assert "gpu:h100 1 of 2 in use" in text


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("gpu:h100:3(IDX:0-2)", {"gpu:h100": 3}),
        ("gpu:h100:8(S:0-1),gpu:1g.10gb:7(S:0)", {"gpu:h100": 8, "gpu:1g.10gb": 7}),
        ("gpu:h100:2(IDX:0,3),gpu:t4:1(IDX:1)", {"gpu:h100": 2, "gpu:t4": 1}),
        ("gpu:0", {"gpu": 0}),
        ("gpu:(null):0(IDX:N/A)", {"gpu": 0}),
        ("(null)", {}),
        ("", {}),
    ],
)
def test_gres(text: str, wanted: dict[str, int]) -> None:
    assert parse_gres(text) == wanted


@given(st.text())
def test_any_text_is_nodes_and_a_tier(text: str) -> None:
    for node in parse_rows(text):
        assert node.name
        assert parse_gres(node.gres) == node.gres_total
    assert isolation(parse_config(text)) in TIERS
    assert isinstance(start_report.parse(text), dict)


def test_nodes_as_sinfo_prints_them() -> None:
    text = (
        "a  |gpu:h100:2(S:0),gpu:t4:1 |gpu:h100:0(IDX:N/A),gpu:t4:1(IDX:2)|idle* |none\n"
        "a|gpu:h100:2,gpu:t4:1|gpu:0|idle*|none\nb|(null)|gpu:0|drained|a | b\n"
    )
    first, second = parse_rows(text)
    assert (first.name, first.state, first.plain_state) == ("a", "idle*", "idle")
    assert first.gres == "gpu:h100:2,gpu:t4:1"
    assert not first.usable, "it does not respond"
    assert (second.gres, second.reason) == ("", "a | b")


def test_usable_states() -> None:
    def usable(state: str) -> bool:
        return Node("n", state, None, {}, {}).usable

    assert all(map(usable, ("idle", "mixed", "allocated", "completing", "mixed-")))
    assert not any(map(usable, ("idle*", "drained", "draining", "down", "inval", "unknown", "")))


def test_isolation() -> None:
    both = "TaskPlugin   = task/cgroup,task/affinity\nConstrainDevices = yes\n"
    assert isolation(parse_config(both)) == "enforced"
    assert isolation(parse_config("TaskPlugin = task/none\nConstrainDevices = yes\n")) == "default"
    assert isolation({}) == "unknown"


def test_a_health_check_that_is_late_contradicts_nothing() -> None:
    node = Node("n", "idle", None, {}, {})
    up = ClusterStatus("/p", "p-slurm", "running", health="unhealthy", phase="ready", nodes=(node,))
    assert lines(up)[0].startswith(
        "Container  p-slurm: running (unhealthy when Docker last looked; Slurm answers now), since"
    )
    for ill in (
        replace(up, phase="starting: key"),
        replace(up, nodes=()),
        replace(up, problem="x"),
    ):
        assert lines(ill)[0].startswith("Container  p-slurm: running (unhealthy), since")
    assert "(healthy)" in lines(replace(up, health="healthy"))[0]


def ended(*entries: object, **report: object) -> ClusterStatus:
    told = cluster_status.from_report({"unclean_ends": list(entries), **report}, None)
    return ClusterStatus("/p", "p-slurm", "running", **{**told, "phase": "ready"})


def killed_lines(status: ClusterStatus) -> str:
    said = lines(status)
    at = next((n for n, text in enumerate(said) if text.startswith("Killed")), len(said))
    return "\n".join(said[at:])


def test_kills_of_the_controller_are_told_and_odd_words_about_them_are_not() -> None:
    odd: tuple[object, ...] = (1_700_000_000, "x", None, {}, {"at": "x"}, {"at": 1 << 40})
    up = ended({"at": 1_700_000_000, "jobs": "x"}, *odd, {"at": 1_700_000_100, "jobs": None})
    assert [end.jobs for end in up.unclean_ends] == [None, None]
    said = killed_lines(up)
    assert f"{clock.told(1_700_000_100)} (twice in the last day)" in said
    assert "Which jobs ran is not known" in said
    assert killed_lines(ended()) == ""


def test_the_jobs_that_a_kill_met_are_named_whole_as_data_and_cut_for_people() -> None:
    many = [str(number) for number in range(1, 31)]
    jobs = {"requeued": many, "concluded": ["40"], "ended": ["41_2"]}
    about = {"notes": ["N", "other"], "note_keys": ["interrupted", None]}
    up = ended({"at": 1_700_000_000, "jobs": jobs}, interrupted=jobs, **about)
    said = killed_lines(up)
    assert "start from the beginning: 1, 2, 3, " in said
    assert "19, 20 and 10 more\n" in said
    assert "do not run again: 40\n" in said
    assert ": 41_2\n" in said
    assert up.notes == ("other",)  # the other says the same
    told = json.loads(json.dumps(up.to_json()))
    assert told["unclean_ends"][0]["jobs"] == told["interrupted"] == jobs
    # slurmctld alone, later: the start's own note is not told by that any more
    later = ended(
        {"at": 1_700_000_000, "jobs": jobs},
        {"at": 1_700_000_050, "jobs": {"continued": ["42"]}},
        **about,
    )
    assert later.notes == ("N", "other")
    assert "Ran on, uninterrupted: 42" in killed_lines(later)
    none = ended({"at": 1_700_000_000, "jobs": {"continued": []}})
    assert "No job was running" in killed_lines(none)
