"""`dshpc reconfigure` on the host: what it asks, what it passes on, and every way it can end."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.cluster.reconfigure import differing, lines, reconfigure
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.project.folder import LIVE, Project
from tests.unit.cluster.conftest import GONE, INSPECT, cluster, container
from tests.unit.engine.fake import Answer, FakeMachine, Listener

RECONFIGURE = "docker exec -e DSHPC_FROM_HOST=1 p-slurm /usr/local/lib/dshpc/as-user"


def machine(project: Project, *, env: tuple[str, ...] = (), **answer: Any) -> FakeMachine:
    fake = cluster(project)
    fake.commands |= {
        "docker exec p-slurm squeue": Answer(),
        "docker inspect --type container --format": Answer(json.dumps(["PATH=/bin", *env])),
        RECONFIGURE: Answer(**answer),
        "docker exec p-slurm sinfo": Answer("p|gpu:h100:1|gpu:0|idle|none\n"),
        "docker exec p-slurm scontrol": Answer("TaskPlugin = task/none\n"),
        "docker exec p-slurm sh -c squeue": Answer(),
    }
    return fake


def test_it_is_done_and_told(project: Project) -> None:
    done = reconfigure(machine(project, stdout="GPUs: was 2, is 1\n"), project, {}, Listener())
    assert (done.exit_code, done.lines, done.behind) == (0, ("GPUs: was 2, is 1",), ())
    value = done.to_json()
    assert (value["schema"], value["exit_code"], value["ready"]) == ("dshpc.status/1", 0, True)
    assert value["reconfigure"]["lines"] == ["GPUs: was 2, is 1"]


@pytest.mark.parametrize("state", ["drained", "draining", "down"])
def test_a_node_that_a_person_took_out_is_no_failure(project: Project, state: str) -> None:
    fake = machine(project, stdout="Nothing has changed\n")
    fake.commands["docker exec p-slurm sinfo"] = Answer(f"p|gpu:h100:1|gpu:0|{state}|new fans\n")
    done = reconfigure(fake, project, {}, Listener())
    assert (done.exit_code, done.to_json()["exit_code"], done.status.exit_code) == (0, 0, 2)
    assert f"Node p is {state} (new fans), by a person" in lines(done)[-1]


@pytest.mark.parametrize(
    ("code", "sinfo", "wanted"),
    [
        (0, "p|gpu:h100:1|gpu:0|inval|x\n", 2),
        (0, "p|gpu:h100:1|gpu:0|drained|x\nq|gpu:h100:1|gpu:0|inval|x\n", 2),
        (2, "p|gpu:h100:1|gpu:0|drained|x\n", 2),
        (3, "p|gpu:h100:1|gpu:0|drained|x\n", 3),
    ],
)
def test_what_is_a_failure_stays_one(project: Project, code: int, sinfo: str, wanted: int) -> None:
    fake = machine(project, code=code, stdout="x\n")
    fake.commands["docker exec p-slurm sinfo"] = Answer(sinfo)
    done = reconfigure(fake, project, {}, Listener())
    assert done.exit_code == wanted
    assert "by a person" not in "\n".join(lines(done))


@pytest.mark.parametrize("code", [Exit.ERROR, Exit.INCOMPLETE])
def test_a_refusal_is_passed_on_with_its_words(project: Project, code: int) -> None:
    fake = machine(project, code=code, stdout="config/gres.conf, line 3: no device.\n")
    done = reconfigure(fake, project, {}, Listener())
    assert done.exit_code == code
    assert "line 3" in lines(done)[0]
    assert done.status.ready, "the cluster goes on"


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        (Answer(code=None, state="timeout", stdout="check\n"), Exit.INCOMPLETE, "within 300 s"),
        (Answer(code=64, stdout="There is no command"), Exit.ERROR, "an older dsHPC setup"),
        (Answer(code=1, stdout="Traceback"), Exit.ERROR, "could not be reconfigured"),
    ],
)
def test_other_ends(project: Project, answer: Answer, code: int, said: str) -> None:
    fake = machine(project)
    fake.commands[RECONFIGURE] = answer
    with pytest.raises(DshpcError) as caught:
        reconfigure(fake, project, {}, Listener())
    assert caught.value.exit_code == code
    assert said in caught.value.brief


@pytest.mark.parametrize("status", [None, "exited", "paused"])
def test_a_cluster_that_is_down(project: Project, status: str | None) -> None:
    fake = machine(project)
    fake.commands[INSPECT] = GONE if status is None else container(project, status)
    with pytest.raises(DshpcError) as caught:
        reconfigure(fake, project, {}, Listener())
    assert "dshpc up" in caught.value.resolution[0]
    assert not fake.lines("reconfigure")


def test_settings_that_have_not_reached_the_container(project: Project) -> None:
    text = "gres_type: index\nclean_after: 1d\npartition: gpu\nreserve_mib: 512\n"
    (project.folder / "dshpc.yaml").write_text(text)
    fake = machine(project, env=("DSHPC_PREFIX=dshpc", "DSHPC_CLEAN_AFTER=1d"))
    project.write_json(LIVE, {"DSHPC_RESERVE_MIB": "512"})
    done = reconfigure(fake, project, {}, Listener())
    assert done.behind == ("gres_type", "partition")
    assert "configure-environment" in lines(done)[-1]
    both = ("DSHPC_GRES_TYPE=index", "DSHPC_CLEAN_AFTER=1d")
    project.write_json(LIVE, {"DSHPC_PARTITION": "gpu", "DSHPC_RESERVE_MIB": "512"})
    assert reconfigure(machine(project, env=both), project, {}, Listener()).behind == ()


@pytest.mark.parametrize(
    ("has", "wanted", "names"),
    [
        ([], {}, ()),
        (None, {}, ()),
        (["DSHPC_SLURM_PORTS=7000, 7001"], {"DSHPC_SLURM_PORTS": "7000,7001"}, ()),
        (["DSHPC_SLURM_PORTS=7000,7001"], {"DSHPC_SLURM_PORTS": "7000,7002"}, ("slurm_ports",)),
        (["DSHPC_PARTITIONS=a,b"], {}, ()),  # read anew from a file
        (["DSHPC_GPU=auto"], {}, ()),
        ([], {"DSHPC_GPU": "none"}, ("gpu",)),
        (["DSHPC_GPU=voodoo"], {}, ("gpu",)),
        (["DSHPC_WORK=x"], {}, ()),
        (["DSHPC_SLURM_CONF_EXTRA=A=1\nB=2"], {"DSHPC_SLURM_CONF_EXTRA": "A=1\nB=2"}, ()),
    ],
)
def test_which_settings_differ(
    has: list[str] | None, wanted: dict[str, str], names: tuple[str, ...]
) -> None:
    assert differing(json.dumps(has), wanted) == names


@given(st.one_of(st.text(), st.lists(st.text()).map(json.dumps)))
def test_any_answer_of_the_engine(text: str) -> None:
    assert isinstance(differing(text, {}), tuple)


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [
        (signal.SIGINT, Exit.INTERRUPTED, "Interrupted before anything was changed"),
        (signal.SIGINT, 143, "Interrupted before anything was changed"),
        (signal.SIGINT, Exit.OK, "The interruption came too late"),
        (
            signal.SIGTERM,
            Exit.ERROR,
            "The interruption came too late",
        ),  # refused, and so back as it was
    ],
)
def test_an_interruption_is_handed_in_and_its_end_awaited(
    project: Project, number: int, code: int, said: str
) -> None:
    def interrupted(_: tuple[str, ...]) -> Answer:
        signal.raise_signal(number)
        return Answer(code=code)

    before = signal.signal(signal.SIGTERM, lambda *_: pytest.fail("it ended us"))
    fake, told = machine(project), Listener()
    fake.commands[RECONFIGURE] = interrupted
    fake.commands["docker exec p-slurm /usr/local/lib/dshpc/as-user --signal"] = Answer()
    try:
        with pytest.raises(DshpcError) as caught:
            reconfigure(fake, project, {}, told)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (caught.value.brief.startswith(said), caught.value.exit_code) == (True, 128 + number)
    (delivered,) = fake.lines("--signal")
    (asked,) = fake.lines("dshpc-node reconfigure")
    token = asked.split("as-user ")[1].split()[0]
    assert delivered.endswith(f"--signal {token} TERM")
    assert "Press Ctrl-C again" in told.notes[0]
