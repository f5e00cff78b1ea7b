"""Repairs of the project folder and of its cluster. Pure."""

from __future__ import annotations

from dshpc_setup.diagnose import CheckInput
from dshpc_setup.engine.compose import FILE as COMPOSE_FILE
from dshpc_setup.engine_client import DOCKER
from dshpc_setup.render.configuration import CONFIG_FILES
from dshpc_setup.repair import node
from dshpc_setup.repair.model import PATHS, Argv, Host, Made, Refusal, Repair


def restrict_env(_: CheckInput, here: Host, __: str) -> Made:
    if here.folder is None:
        return Refusal("There is no project folder.")
    path = f"{here.folder}/.env"
    return (Repair("restrict-env", "Let only you read .env", (("chmod", "0600", path),)),)


def start_cluster(known: CheckInput, here: Host, _: str) -> Made:
    found = known.observed.cluster
    if here.folder is None or found is None:
        return Refusal("No cluster was set up in this folder.")
    if found.state == "running":
        return Refusal("The cluster runs.")
    if found.state == "restarting":
        return Refusal("It ends soon after each start.")
    return (Repair("start-cluster", "Start the cluster", (("dshpc", "up"),)),)


def restrict_key(known: CheckInput, here: Host, _: str) -> Made:
    """In the running container: a restart refuses a key that others can read, see container/keys.py."""
    if here.container is None or _not_running(known, here):
        return _not_running(known, here) or Refusal("It is not known what it is called.")
    commands = (
        tuple(DOCKER.run_in(here.container, "chown", "slurm:slurm", PATHS.key)),
        tuple(DOCKER.run_in(here.container, "chmod", "600", PATHS.key)),
    )
    return (Repair("restrict-key", "Let only Slurm's user read Slurm's key", commands),)


def start_daemon(known: CheckInput, here: Host, name: str) -> Made:
    if here.container is None or _not_running(known, here):
        return _not_running(known, here) or Refusal("It is not known what it is called.")
    argv = DOCKER.run_in(here.container, "s6-svc", "-u", f"{PATHS.services}/{name}")
    return (Repair("start-daemon", f"Start {name} again", (tuple(argv),), name),)


def restart_cluster(known: CheckInput, here: Host, _: str) -> Made:
    if why := _not_running(known, here):
        return why
    inside = known.observed.inside
    key = inside.key if inside else None
    # container/keys.py refuses such a key at a start: the cluster would not come back
    if key is not None and (key.state != "present" or (key.mode or 0) & 0o066):
        return Refusal("The cluster would not start again with its key as it is.")
    argv = ("dshpc", "restart")
    does = "Restart the cluster"
    return (Repair("restart-cluster", does, (argv,), stops="cluster"),)


def reconfigure(known: CheckInput, here: Host, _: str) -> Made:
    if why := _not_running(known, here):
        return why
    does = (
        "Let the cluster detect its hardware and read config/ again; running jobs are not affected"
    )
    return (Repair("reconfigure", does, (("dshpc", "reconfigure"),)),)


def resume(known: CheckInput, here: Host, about: str) -> Made:
    if why := _not_running(known, here):
        return why
    made = node.repair(here)
    again = isinstance(made, Refusal) and made.by_reconfigure
    return reconfigure(known, here, about) if again else made


def render(known: CheckInput, here: Host, _: str) -> Made:
    if here.folder is None or known.observed.cluster is None:
        return Refusal("No cluster was set up in this folder.")
    seen = known.observed.container
    if seen is not None and seen.image_there is False:
        return Refusal("The cluster's image has to be built, which takes minutes.")
    argv: Argv = ("configure-environment", "--no-build")
    running = known.observed.cluster.state == "running"
    does = "Test the GPUs in containers and render the files again"
    names = (*(f"config/{name}" for name in CONFIG_FILES), COMPOSE_FILE)
    return (
        Repair(
            "render",
            does if running else f"{does}, without starting the cluster",
            (argv if running else (*argv, "--no-start"),),
            changes=tuple(f"{here.folder}/{name}" for name in names),
        ),
    )


def _not_running(known: CheckInput, here: Host) -> Refusal | None:
    found = known.observed.cluster
    if here.folder is None or found is None:
        return Refusal("No cluster was set up in this folder.")
    return None if found.state == "running" else Refusal("The cluster does not run.")
