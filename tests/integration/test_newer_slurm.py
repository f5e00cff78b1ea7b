"""A newer Slurm goes on with the queue, the users and the accounting that an older one has left behind."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.container import accounting, joining
from dshpc_setup.machine import CommandResult
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.plan import ClusterPlan, plan_cluster
from dshpc_setup.plan.model import DATABASE_PORT
from dshpc_setup.render.configuration import render_slurm
from dshpc_setup.settings import Settings
from dshpc_setup.slurm import associations
from dshpc_setup.slurm.paths import Paths
from dshpc_setup.slurm_releases import unfit
from tests.integration.commands import run
from tests.integration.slurms.cluster import (
    Answer,
    believed,
    configure,
    daemon_in,
    run_in,
    wait_for_controller,
    wait_for_node,
)
from tests.integration.slurms.hardware import add_nodes
from tests.integration.slurms.room import NamedRoom, slurm_room
from tests.integration.slurms.roots import SlurmRoot
from tests.unit.machine.test_machines import look

pytest_plugins = ("tests.integration.slurms.fixtures",)

PATHS = Paths()
UP_S = 120.0
REFUSED = "Incompatible versions of client and server code"
DATABASE = {"MYSQL_UNIX_PORT": PATHS.database_socket}


@contextlib.contextmanager
def cluster(
    root: SlurmRoot, plan: ClusterPlan, place: Path, left: Path | None, *, older: bool = False
) -> Iterator[NamedRoom]:
    """All daemons of one release, with an empty state or with what another one has left.

    `older`: slurmdbd is the one of the root that lies at /older in this one.
    """
    (place / "room").mkdir(parents=True)
    with slurm_room(root, plan.node, place / "room") as room, contextlib.ExitStack() as ends:
        add_nodes(room, plan)
        configure(room, root, believed(render_slurm(plan)))
        state = room.path(PATHS.state)
        if left is not None:
            run(["cp", "-a", "-T", str(left), str(state)]).good()
        conf = accounting.daemon_conf(plan.node, DATABASE_PORT, "slurm")
        room.put("/etc/slurm/slurmdbd.conf", conf, 0o600)
        room.put("/run/dshpc/database/my.cnf", accounting.server_conf(PATHS))
        mine = (room.path("/etc/slurm/slurmdbd.conf"), room.path("/run/dshpc/database"),
                room.path("/run/slurmdbd"), room.path(PATHS.database),
                room.path(f"{PATHS.database}/tmp"))  # fmt: skip
        for folder in mine[1:]:
            folder.mkdir(parents=True, exist_ok=True)
        run(["chown", f"{root.owner[0]}:{root.owner[1]}", *map(str, mine)]).good()
        slurm = ("setpriv", "--reuid=slurm", "--regid=slurm", "--clear-groups", "--")
        defaults = "--defaults-file=/run/dshpc/database/my.cnf"
        if left is None:
            data = f"{PATHS.database}/mariadb"
            good(run_in(room, (*slurm, "mkdir", data)))
            empty = ("sh", "-euc", accounting.EMPTY, "sh", "slurm", defaults, f"--datadir={data}")
            good(run_in(room, (*slurm, *empty)))
        ends.enter_context(daemon_in(room, (*slurm, "mariadbd", defaults), place / "mariadbd.log"))
        argv = (*(("chroot", "/older") if older else ()), "slurmdbd", "-D")
        if older:
            see_there(room, "older")
        ends.enter_context(daemon_in(room, argv, place / "slurmdbd.log", DATABASE))
        if not older:
            answers(room, place / "slurmdbd.log")
        log = place / "slurmctld.log"
        controller = ends.enter_context(daemon_in(room, ("slurmctld", "-D"), log))
        assert wait_for_controller(controller, log) is None, log.read_text()
        daemon = ends.enter_context(
            daemon_in(room, ("slurmd", "-D", "-N", plan.node), place / "slurmd.log")
        )
        assert wait_for_node(room, plan.node, daemon)[1] is None, log.read_text()
        yield room


def put_into(place: Path, root: SlurmRoot) -> None:
    """Another release's programs, in a folder of a root: what is not there yet."""
    if place.exists():
        return
    place.mkdir()
    for part in ("usr", "var"):
        run(["cp", "-al", str(root.folder / part), str(place)]).good()
    for link in ("bin", "sbin", "lib", "lib64"):
        run(["cp", "-a", str(root.folder / link), str(place)]).good()
    for folder in ("dev", "etc", "proc", "run", "tmp"):
        (place / folder).mkdir()


def see_there(room: NamedRoom, folder: str) -> None:
    """The programs there have the room's files and devices."""
    for name in ("dev", "etc", "proc", "run"):
        good(run_in(room, ("mount", "--rbind", f"/{name}", f"/{folder}/{name}")))


class Inside(LocalMachine):
    """The machine of a room, seen from a folder of it."""

    def __init__(self, room: NamedRoom, top: str) -> None:
        super().__init__()
        self.room, self.top = room, top

    def run(self, argv: Sequence[str], **_: Any) -> CommandResult:
        done = run_in(self.room, ("chroot", self.top, *argv))
        return CommandResult(tuple(argv), "present", done.code, done.text, done.errors, 1.0)


def answers(room: NamedRoom, log: Path) -> None:
    until = time.monotonic() + UP_S
    while run_in(room, ("sacctmgr", "ping")).code != 0:
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.2)


def good(answer: Answer) -> str:
    assert answer.code == 0, answer.said
    return answer.text.strip()


def counted(room: NamedRoom) -> Mapping[str, tuple[str, str]]:
    """Job -> its state and what it had, as the database says it."""
    said = good(
        run_in(room, ("sacct", "-a", "-X", "-n", "-P", "--format=JobID,State,AllocTRES%90"))
    )
    rows = (line.split("|") for line in said.splitlines())
    return {job: (state, tres) for job, state, tres in rows}


PLAN = plan_cluster(look("workstation-rtx4090"), Settings(prefix="lab", accounting="on"))


@pytest.fixture(scope="module")
def left(
    slurms: dict[str, SlurmRoot], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str]:
    """The state that 24.11 leaves as it is killed, and a job that waits in it."""
    place = tmp_path_factory.mktemp("left")
    with cluster(slurms["trixie"], PLAN, place / "old", None) as room:
        good(run_in(room, ("srun", "-n1", "--gres=gpu:1", "true")))
        limit = ("sacctmgr", "-i", "modify", "user", "where", "name=root", "set")
        good(run_in(room, (*limit, "GrpTRES=gres/gpu=1")))
        waits = good(run_in(room, ("sbatch", "--parsable", "--hold", "-o/dev/null", "--wrap=true")))
        has_ended(room, "1")
        good(run_in(room, ("scontrol", "shutdown", "slurmctld")))
        time.sleep(1)
        run(["cp", "-a", str(room.path(PATHS.state)), str(place / "state")]).good()
    return place / "state", waits


def has_ended(room: NamedRoom, *jobs: str) -> None:
    """As the database knows it."""
    until = time.monotonic() + UP_S
    while any(counted(room).get(job, ("", ""))[0] != "COMPLETED" for job in jobs):
        assert time.monotonic() < until
        time.sleep(0.2)


def test_data_of_the_release_before(
    slurms: dict[str, SlurmRoot], left: tuple[Path, str], tmp_path: Path
) -> None:
    """24.11 to 26.05: the database is converted, and slurmctld reads its queue; each as if it were killed."""
    kept, waits = left
    with cluster(slurms["sid"], PLAN, tmp_path / "new", kept) as room:
        state, tres = counted(room)["1"]
        assert state == "COMPLETED"
        assert "gres/gpu=1" in tres.split(",")
        shown = ("sacctmgr", "-n", "-P", "list", "assoc", "user=root", "format=GrpTRES")
        assert good(run_in(room, shown)) == "gres/gpu=1"
        assert good(run_in(room, ("squeue", "-h", "-o", "%i %t"))) == f"{waits} PD"
        good(run_in(room, ("scontrol", "release", waits)))
        has_ended(room, waits)


@pytest.mark.parametrize(("controller", "node"), [("trixie", "sid"), ("sid", "trixie")])
def test_a_slurmd_of_another_release(
    slurms: dict[str, SlurmRoot], tmp_path: Path, controller: str, node: str
) -> None:
    """What a join says of two versions is what these daemons do."""
    ours, theirs = slurms[controller], slurms[node]
    put_into(ours.folder / "other", theirs)
    plan = plan_cluster(look("workstation-rtx4090"), Settings(prefix="lab"))
    (tmp_path / "room").mkdir()
    with slurm_room(ours, plan.node, tmp_path / "room") as room:
        add_nodes(room, plan)
        configure(room, ours, believed(render_slurm(plan)))
        see_there(room, "other")
        logs = tmp_path / "slurmctld.log", tmp_path / "slurmd.log"
        slurmd = ("chroot", "/other", "slurmd")
        said = joining.about(Inside(room, "/other"), 0).slurm
        assert said == theirs.version
        with daemon_in(room, ("slurmctld", "-D"), logs[0]) as serves:
            assert wait_for_controller(serves, logs[0]) is None, logs[0].read_text()
            with daemon_in(room, (*slurmd, "-D", "-N", plan.node), logs[1]) as daemon:
                if unfit(ours.version, said) is None:
                    assert wait_for_node(room, plan.node, daemon)[1] is None, logs[0].read_text()
                    good(run_in(room, ("srun", "-n1", "--gres=gpu:1", "true")))
                    return
                until = time.monotonic() + UP_S
                while REFUSED not in logs[0].read_text():
                    assert time.monotonic() < until, (logs[0].read_text(), logs[1].read_text())
                    time.sleep(0.2)
                shown = run_in(room, ("scontrol", "-o", "show", "node", plan.node)).text
                assert " State=IDLE " not in shown


def test_a_slurmdbd_that_is_older_than_slurmctld(
    slurms: dict[str, SlurmRoot], left: tuple[Path, str], tmp_path: Path
) -> None:
    """Jobs go on meanwhile, and a slurmdbd of slurmctld's release is told of all of them."""
    kept, waits = left
    put_into(slurms["sid"].folder / "older", slurms["trixie"])
    place = tmp_path / "mixed"
    with cluster(slurms["sid"], PLAN, place, kept, older=True) as room:
        good(run_in(room, ("scontrol", "release", waits)))
        good(run_in(room, ("srun", "-n1", "--gres=gpu:1", "true")))
        done = ("squeue", "-h", "-a", "-t", "COMPLETED", "-o", "%i")
        until = time.monotonic() + UP_S
        while len(jobs := good(run_in(room, done)).split()) < 3:
            assert time.monotonic() < until
            time.sleep(0.2)
        asked = run_in(room, ("sacctmgr", "ping"))
        assert (asked.code, associations.is_up(asked.text)) == (1, False)
        until = time.monotonic() + UP_S
        while "Incompatible versions" not in (place / "slurmdbd.log").read_text():
            assert time.monotonic() < until
            time.sleep(0.2)
        good(run_in(room, ("pkill", "-x", "slurmdbd")))
        with daemon_in(room, ("slurmdbd", "-D"), place / "newer.log", DATABASE):
            answers(room, place / "newer.log")
            has_ended(room, *jobs)
            assert {"gres/gpu=1"} <= set(counted(room)[max(jobs, key=int)][1].split(","))
