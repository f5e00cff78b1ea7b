"""A newer Slurm goes on with the queue, the users and the accounting that an older one has left behind."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from dshpc_setup.container import accounting
from dshpc_setup.plan import ClusterPlan, plan_cluster
from dshpc_setup.plan.model import DATABASE_PORT
from dshpc_setup.render.configuration import render_slurm
from dshpc_setup.settings import Settings
from dshpc_setup.slurm.paths import Paths
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


@contextlib.contextmanager
def cluster(
    root: SlurmRoot, plan: ClusterPlan, place: Path, left: Path | None
) -> Iterator[NamedRoom]:
    """All daemons of one release, with an empty state or with what another one has left."""
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
        where = {"MYSQL_UNIX_PORT": PATHS.database_socket}
        ends.enter_context(daemon_in(room, (*slurm, "mariadbd", defaults), place / "mariadbd.log"))
        ends.enter_context(daemon_in(room, ("slurmdbd", "-D"), place / "slurmdbd.log", where))
        until = time.monotonic() + UP_S
        while run_in(room, ("sacctmgr", "ping")).code != 0:
            assert time.monotonic() < until, (place / "slurmdbd.log").read_text()
            time.sleep(0.2)
        log = place / "slurmctld.log"
        controller = ends.enter_context(daemon_in(room, ("slurmctld", "-D"), log))
        assert wait_for_controller(controller, log) is None, log.read_text()
        daemon = ends.enter_context(
            daemon_in(room, ("slurmd", "-D", "-N", plan.node), place / "slurmd.log")
        )
        assert wait_for_node(room, plan.node, daemon)[1] is None, log.read_text()
        yield room


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


def test_data_of_the_release_before(slurms: dict[str, SlurmRoot], tmp_path: Path) -> None:
    """24.11 to 26.05: the database is converted, and slurmctld reads its queue; each as if it were killed."""
    plan = plan_cluster(look("workstation-rtx4090"), Settings(prefix="lab", accounting="on"))
    kept = tmp_path / "state"
    with cluster(slurms["trixie"], plan, tmp_path / "old", None) as room:
        good(run_in(room, ("srun", "-n1", "--gres=gpu:1", "true")))
        limit = ("sacctmgr", "-i", "modify", "user", "where", "name=root", "set")
        good(run_in(room, (*limit, "GrpTRES=gres/gpu=1")))
        waits = good(run_in(room, ("sbatch", "--parsable", "--hold", "-o/dev/null", "--wrap=true")))
        until = time.monotonic() + UP_S
        while counted(room).get("1", ("", ""))[0] != "COMPLETED":
            assert time.monotonic() < until
            time.sleep(0.2)
        good(run_in(room, ("scontrol", "shutdown", "slurmctld")))
        time.sleep(1)
        run(["cp", "-a", str(room.path(PATHS.state)), str(kept)]).good()
    with cluster(slurms["sid"], plan, tmp_path / "new", kept) as room:
        state, tres = counted(room)["1"]
        assert state == "COMPLETED"
        assert "gres/gpu=1" in tres.split(",")
        shown = ("sacctmgr", "-n", "-P", "list", "assoc", "user=root", "format=GrpTRES")
        assert good(run_in(room, shown)) == "gres/gpu=1"
        assert good(run_in(room, ("squeue", "-h", "-o", "%i %t"))) == f"{waits} PD"
        good(run_in(room, ("scontrol", "release", waits)))
        until = time.monotonic() + UP_S
        while counted(room).get(waits, ("", ""))[0] != "COMPLETED":
            assert time.monotonic() < until
            time.sleep(0.2)
