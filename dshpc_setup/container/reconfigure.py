"""`dshpc-node reconfigure`: the path of a start in the running container, while jobs go on.

The daemons are restarted by their supervisor rather than told to reconfigure: they read everything
anew then (ports, plugins and the node's GPUs too), jobs and those who wait for one outlive it, and a
text that they refuse after all cannot end a controller that nobody starts again.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from dshpc_setup import settings as settings_module
from dshpc_setup.container import (
    accounting,
    check,
    config,
    daemons,
    drift,
    hardware_fit,
    in_force,
    job_survival,
    network,
    outcome,
    partitions,
    rest,
    state_volume,
    up,
    worker,
)
from dshpc_setup.container import status as status_module
from dshpc_setup.container.complaints import while_up
from dshpc_setup.container.config import Candidate
from dshpc_setup.container.exclusive import alone
from dshpc_setup.container.look import Seen, look
from dshpc_setup.container.proof import prove
from dshpc_setup.container.run import Run, slurm_user
from dshpc_setup.container.status import Status, as_failure
from dshpc_setup.errors import DshpcError, Exit, Fix
from dshpc_setup.files.storage import replace_text
from dshpc_setup.jobs.stopping import STOPS
from dshpc_setup.machine import Machine
from dshpc_setup.signals import handled
from dshpc_setup.slurm import slurm_conf
from dshpc_setup.slurm.paths import ASK, Paths

_RESTARTED_S = 10.0
_ASK_S = 5.0
_POLL_S = 0.01


def reconfigure(machine: Machine, paths: Paths, env: Mapping[str, str]) -> int:
    """Put in force what `config/` and the hardware say now; 0 also where nothing had to be done.

    Raises DshpcError: with exit code 3 where it cannot be asked for now, else with 2, and what was in
    force before is so still.
    """
    settings = settings_module.of_container(env)
    with alone(paths, "dshpc reconfigure"), _stoppable() as begin:
        before = _ready(paths)
        status = Status(paths, say=_say, live=False)
        run = Run(machine, paths, status, settings, slurm_user(), restored=True)
        _reconfigure(run, before, begin)
    return Exit.OK


@contextlib.contextmanager
def _stoppable() -> Iterator[Callable[[], None]]:
    """TERM and its like end us until the function that it gives is called, and nothing after that: what has
    begun to change is finished, or taken back."""
    begun: list[bool] = []

    def hear(number: int, _frame: object) -> None:
        if not begun:
            raise KeyboardInterrupt
        _say(f"{signal.Signals(number).name} came too late: the change has begun, and is finished.")

    with handled(STOPS, hear):
        yield lambda: begun.append(True)


def _say(text: str) -> None:
    print(status_module.printable(text), flush=True)


def _ready(paths: Paths) -> Mapping[str, Any]:
    """The status of a cluster that runs."""
    found = status_module.read(paths) if os.path.exists(paths.status) else None
    phase = str(found["phase"]) if found else "starting"
    if found is not None and phase == "ready":
        return found
    if phase == "failed":
        raise DshpcError(
            "The cluster's start failed, so there is nothing running to reconfigure.",
            str((found or {}).get("failure", {}).get("brief", "")),
            (
                Fix("See why", "dshpc status", step="look"),
                Fix("When that is fixed", "dshpc restart", step="after", does="restart"),
            ),
            Exit.INCOMPLETE,
        )
    raise DshpcError(
        "The cluster is still starting.",
        f"It is at: {phase}.",
        (Fix("Wait until it is ready, then run this again", "dshpc status"),),
        Exit.INCOMPLETE,
    )


def _reconfigure(run: Run, before: Mapping[str, Any], begin: Callable[[], None]) -> None:
    paths, status = run.paths, run.status
    state_volume.ensure_room(paths)
    old_texts = _texts_in_force(paths)
    seen = look(run)
    try:
        candidate = _checked(run, seen, old_texts)
        node = check.node_name(candidate, run.settings.node)
        job_survival.ensure(run, Candidate(old_texts, {}, {}), candidate, node)
    except DshpcError as error:
        error = while_up(error)
        _say_refused(run, before, error)
        raise error from None
    if not run.is_worker:
        _restart_watchers(run)
    same = partitions.same(old_texts, candidate.texts)
    counted = run.is_worker or accounting.is_as_wanted(run, before.get("accounting"))
    if same and counted and not seen.changes and _took_over(paths, _daemons(run)):
        found = daemons.show_node(run.machine, node)
        if found is not None and (found.usable or not found.own_doing):
            _forget_refusal(run, before)
            in_force.remember(run, candidate)
            status.say("Nothing has changed: what is in force is what the machine and config/ say.")
            return
    status.values.update(node=node, gres=check.gres_of(candidate, node))
    begin()
    _say_begun(run, before)
    _count(run, before, candidate)
    old_folder = os.path.realpath(paths.etc_slurm)
    with status.step("swap"):
        folder = in_force.write(run, candidate)
    try:
        own_gres = "gres.conf" in candidate.customized
        _restart(run, candidate, seen, folder, own_gres=own_gres)
        proof = prove(run, candidate, node, fresh=False)
    except DshpcError as error:
        if candidate.texts == old_texts:
            raise
        error = while_up(error)
        _back(run, Candidate(old_texts, {}, {}), seen, old_folder, error)
        _say_refused(run, before, error)
        raise error from None
    _remove_others(paths, (folder, old_folder))
    changes = drift.with_done(
        seen.changes,
        (old_texts, candidate.texts),
        node,
        own=candidate.customized,
        resumed=proof.reconciled.resumed,
    )
    outcome.drift(status, changes)
    drift.save(paths, drift.remembered(seen.facts, seen.image))
    in_force.remember(run, candidate)
    if not run.is_worker:
        if accounting.is_on(run):
            accounting.registered(run)
        else:
            accounting.end(run)
        rest.restart(run, before.get("rest"))
    if run.settings.place.is_joined:
        from dshpc_setup.container import far

        far.tell_controller(run)
    status.values["reconfigured"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    status.ready()
    outcome.ready(run, seen.plan, candidate, proof.summary)


def _count(run: Run, before: Mapping[str, object], candidate: Candidate) -> None:
    """Accounting is up before slurmctld is started with it; where it does not come up, all stays."""
    try:
        accounting.prepare(run)
        accounting.bring_up(run, candidate.texts["slurm.conf"])
    except DshpcError as error:
        error = while_up(error)
        _say_refused(run, before, error)
        raise error from None


_WATCHERS = {"longest-wait": ("longest_wait",), "use": ("idle_gpu", "release_idle")}


def _restart_watchers(run: Run) -> None:
    """Services that go by settings, where these are others than last time; each goes on where it was."""
    for name, settings in _WATCHERS.items():
        path = f"{run.paths.run}/{name}.settings"
        now = "".join(f"{getattr(run.settings, each)}\n" for each in settings)
        if config.read_file(path) != now:
            run.machine.run(["s6-svc", "-r", f"{run.paths.services}/{name}"], deadline_s=_ASK_S)
            replace_text(path, now, sync=False)


def _texts_in_force(paths: Paths) -> dict[str, str]:
    """What /etc/slurm holds, less the key, the plugins and what is made of the rest."""
    other = ("slurm.key", "slurm.jwks", "plugstack.conf", "oci.conf", ASK)
    folder = paths.etc_slurm
    found = {
        name: config.read_file(f"{folder}/{name}")
        for name in sorted(os.listdir(folder))
        if name not in other
    }
    texts = {name: text for name, text in found.items() if text is not None}
    return {**texts, "slurm.conf": worker.as_read(texts["slurm.conf"])}


_FOLDERS = {"slurmctld": "slurmctld", "slurmd": "slurm"}  # of /run, with the socket for clients


def _daemons(run: Run) -> tuple[str, ...]:
    return ("slurmd",) if run.is_worker else tuple(check.PORTS)


def _took_over(paths: Paths, names: Collection[str] = tuple(check.PORTS)) -> bool:
    """Whether the daemons were started with what /etc/slurm is now, and clients reach them."""
    now = os.readlink(paths.etc_slurm)
    sockets = (paths.at(f"/run/{_FOLDERS[name]}/sack.socket") for name in names)
    return all(map(os.path.exists, sockets)) and all(
        (config.read_file(f"{paths.run}/{name}.conf") or "").strip() == now for name in names
    )


def _checked(run: Run, seen: Seen, old_texts: Mapping[str, str]) -> Candidate:
    chosen = in_force.choose(run, seen)
    with run.status.step("check"):
        if isinstance(chosen, DshpcError):
            raise chosen
        error = hardware_fit.own_misfit(chosen, seen, run.settings.node, run.machine.is_device)
        error = error or state_volume.foreign_error(run.paths, chosen)
        same = partitions.same(old_texts, chosen.texts)
        depth: in_force.Depth = "look" if same else "parse" if run.is_worker else "trial"
        error = error or in_force.check_text(run, chosen, depth)
        if error is not None:
            raise error
    return chosen


def _say_begun(run: Run, before: Mapping[str, Any]) -> None:
    """Until this has ended nobody knows what is in force: where it is killed, the next run does not take its
    settings for those that the container has."""
    read = {**before["config_sha256"], settings_module.LIVE_FILE: ""}
    run.status.write({**before, "config_sha256": read})


def _say_refused(run: Run, before: Mapping[str, object], error: DshpcError) -> None:
    """The status goes on as it was, and says what is not in force and why."""
    values = run.status.values
    tried = {key: values[key] for key in ("customized", "config_sha256") if values[key]}
    values.update(before)
    values.update(tried, kept_last_good=as_failure(error))
    run.status.write()
    run.status.say("The cluster keeps the configuration that it had.")


def _forget_refusal(run: Run, before: Mapping[str, object]) -> None:
    """What was refused at the start or since then is fixed: the status says so."""
    values = run.status.values
    tried = {key: values[key] for key in ("customized", "config_sha256")}
    if before.get("kept_last_good") is None and all(before.get(key) == tried[key] for key in tried):
        return
    values.update(before)
    values["notes_about"].pop("kept_last_good", None)
    told = zip(values["notes"], values["note_keys"], strict=True)
    left = [each for each in told if each[1] != "kept_last_good"]
    notes, keys = [text for text, _ in left], [key for _, key in left]
    values.update(tried, kept_last_good=None, notes=notes, note_keys=keys)
    run.status.write()


# Swap and restart in a process of its own: whatever ends us, both daemons get the same set
_PUT_IN_FORCE = """
ln -sfn "$1" "$2.new"
mv -T "$2.new" "$2"
shift 2
for service; do s6-svc -r "$service"; done
"""


def _restart(run: Run, candidate: Candidate, seen: Seen, folder: str, *, own_gres: bool) -> None:
    """Make the folder /etc/slurm, and wait until both daemons run with it."""
    machine, paths = run.machine, run.paths
    node = check.node_name(candidate, run.settings.node)
    up.tell_jobs(run, candidate, seen, f"{folder}/{ASK}", own_gres=own_gres)
    with run.status.step("restart"):
        up.name_node(run, node)
        run.up_since = time.time()
        services = [f"{paths.services}/{name}" for name in _daemons(run)]
        machine.start_daemon(
            ["sh", "-euc", _PUT_IN_FORCE, "sh", folder, paths.etc_slurm, *services],
            log=f"{paths.run}/reconfigure.log",
        )
        for name in _daemons(run):
            port = check.port(candidate.texts, *check.PORTS[name])
            if _runs_with(paths, name, folder, port):
                continue
            # A slurmd that was not understood for a while does not end on TERM (seen with 24.11.5)
            machine.run(["s6-svc", "-k", f"{paths.services}/{name}"], deadline_s=_ASK_S)
            if not _runs_with(paths, name, folder, port):
                raise up.why_down(run, candidate, node, name)
        if run.is_worker:
            worker.register(run, candidate, node, fresh=False)


def _runs_with(paths: Paths, service: str, folder: str, port: int) -> bool:
    until = time.monotonic() + _RESTARTED_S
    while time.monotonic() < until:
        started = (config.read_file(f"{paths.run}/{service}.conf") or "").strip()
        if started == folder and network.listens(port):
            return True
        time.sleep(_POLL_S)
    return False


def _back(run: Run, old: Candidate, seen: Seen, folder: str, why: DshpcError) -> None:
    """What was in force before is so again; where that fails as well, the status says both."""
    run.status.say("It did not come up with the new configuration: back to the former one.")
    try:
        _restart(run, old, seen, folder, own_gres=True)
        prove(run, old, check.node_name(old, run.settings.node), fresh=False)
        if not slurm_conf.has_accounting(old.texts["slurm.conf"]):
            accounting.end(run)
    except DshpcError as error:
        both = DshpcError(
            f"{why.brief} Going back failed as well: {error.brief}",
            "\n".join(filter(None, (why.details, error.details))),
            (Fix("Start the cluster again", "dshpc restart", does="restart"), *error.steps),
        )
        run.status.failed(both)
        raise both from None


def _remove_others(paths: Paths, kept: Collection[str]) -> None:
    """Folders of configurations that are neither in force nor were before."""
    import shutil

    for name in os.listdir(paths.run):
        path = f"{paths.run}/{name}"
        if name.startswith("conf.") and path not in kept:
            shutil.rmtree(path, ignore_errors=True)
