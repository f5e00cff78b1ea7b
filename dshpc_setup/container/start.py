"""The start of the container, from nothing to a first job that ran."""

from __future__ import annotations

import json
import os
import pwd
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from dshpc_setup import settings as settings_module
from dshpc_setup.container import check, config, daemons, folders, hardware, network, users
from dshpc_setup.container.config import Candidate
from dshpc_setup.container.places import Places
from dshpc_setup.container.status import Status, as_failure, log, with_name
from dshpc_setup.container.storage import read_text, replace_text
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.facts import HostFacts
from dshpc_setup.machine import Machine
from dshpc_setup.plan import ClusterPlan
from dshpc_setup.settings import Settings


@dataclass
class Run:
    """What the steps of one start hand on to each other."""

    machine: Machine
    places: Places
    status: Status
    settings: Settings
    slurm: tuple[int, int]  # SlurmUser's uid and gid
    restored: bool = False  # slurmctld has a saved state: this is not the first start


def start(machine: Machine, places: Places, env: Mapping[str, str]) -> int:
    """Start Slurm; 0 when a first job ran, 2 when it could not and the status says why."""
    status = Status(places)
    settings = Settings()
    try:
        settings = settings_module.load(env=env)
        run = Run(machine, places, status, settings, _slurm_user())
        _prepare(run)
        facts, plan = _detect(run)
        candidate = _in_force(run, plan)
        node = check.node_name(candidate, settings.node)
        status.values.update(node=node, gres=plan.gres_text)
        _daemons(run, candidate, node)
        summary = _first_job(run, candidate, node)
    except DshpcError as error:
        _say_failed(status, with_name(error, settings.container))
        return Exit.ERROR
    except Exception as error:  # the boundary: a defect of ours must stand in the status, too
        _say_failed(status, with_name(_defect(error), settings.container))
        raise
    text = json.dumps(hardware.remembered(facts))
    replace_text(f"{places.state}/facts.json", f"{text}\n", sync=False)  # it is only compared with
    config.save_last_good(places, candidate.texts)
    status.ready()
    _say_ready(run, plan, candidate, summary)
    return Exit.OK


def _prepare(run: Run) -> None:
    status, places = run.status, run.places
    with status.step("host name"):
        if run.machine.listdir("/sys/class/net") == ("lo",):
            raise _no_network()
        name = socket.gethostname()
        for each in dict.fromkeys((name, run.settings.node)):
            _let_resolve(run, each)
    with status.step("folders"):
        folders.make_folders(places, run.slurm)
        run.restored = bool(run.machine.listdir("/var/lib/dshpc/state/slurmctld"))
        note = folders.adopt_state(places, run.slurm)
        if note:
            status.note(note)
    with status.step("users"):
        count = users.restore(places)
        if count:
            log(f"{count} users of the host are known.")
    with status.step("key"):
        note = folders.ensure_key(places, run.slurm)
        if note:
            log(note)


def _no_network() -> DshpcError:
    return DshpcError(
        "The container has no network.",
        "Slurm's daemons speak to each other by TCP and do not start with the loopback device alone.",
        ("Start it with a network, such as Docker's own: docker run --network bridge ...",),
    )


def _slurm_user() -> tuple[int, int]:
    entry = pwd.getpwnam("slurm")
    return entry.pw_uid, entry.pw_gid


def _let_resolve(run: Run, name: str) -> None:
    note = folders.host_name_note(run.places, name, lambda n: _resolves(run.machine, n))
    if note:
        run.status.note(note)


def _resolves(machine: Machine, name: str) -> bool:
    return machine.run(["getent", "hosts", name], deadline_s=1.0).ok


def _detect(run: Run) -> tuple[HostFacts, ClusterPlan]:
    status = run.status
    with status.step("detect"):
        facts = hardware.look(run.machine, run.settings.simulate)
        facts, left_out = hardware.only_visible(facts, run.machine.is_device)
        if run.settings.simulate and not run.settings.devices:
            note = hardware.not_handed_in(run.machine, run.settings.simulate)
            left_out = (*left_out, note) if note else left_out
        for sentence in left_out:
            status.note(sentence)
        before = read_text(f"{run.places.state}/facts.json")
        now = hardware.remembered(facts)
        differences = hardware.changes(_json(before), now)
        for sentence in differences:
            log(f"Since the last start: {sentence}")
        built_for = (read_text(run.places.gpu_type) or "none").strip()
        note = hardware.image_note(built_for, facts)
        if note:
            status.note(note)
        status.values.update(
            changes=list(differences), image_gpu_type=built_for, simulated=facts.gpus.simulated
        )
    with status.step("plan"):
        from dshpc_setup.plan import plan_cluster

        return facts, hardware.without_missing_plugin(plan_cluster(facts, run.settings))


def _json(text: str | None) -> dict[str, object] | None:
    """The last facts; damaged ones are as good as none: they are only compared with."""
    try:
        found = json.loads(text) if text is not None else None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _in_force(run: Run, plan: ClusterPlan) -> Candidate:
    """The configuration that passed its checks, in /etc/slurm."""
    status, places = run.status, run.places
    last = config.load_last_good(places)
    with status.step("render"):
        from dshpc_setup.render import render_slurm

        chosen = _choose(run, render_slurm(plan))
    with status.step("check"):
        if isinstance(chosen, DshpcError):
            candidate = _fall_back(run, chosen, last)
        else:
            error = _check(run, chosen, last)
            candidate = chosen if error is None else _fall_back(run, error, last)
    with status.step("swap"):
        folder = f"{places.run}/conf.{os.getpid()}"
        config.write_set(folder, candidate.texts, places.key)
        config.activate(places, folder)
    return candidate


def _choose(run: Run, rendered: Mapping[str, str]) -> Candidate | DshpcError:
    """With the user's files; the error where one of them cannot be read."""
    try:
        found = config.choose(run.places, rendered)
    except DshpcError as error:
        return error
    # Of what is tried, whether it passes or not: the host compares these with its files
    run.status.values.update(customized=dict(found.customized), config_sha256=dict(found.sha256))
    return found


def _check(run: Run, candidate: Candidate, last: Mapping[str, str] | None) -> DshpcError | None:
    """What is wrong with it. Where there is no last good one to fall back on, what can be seen
    without Slurm is all: then the daemons themselves are the trial, and sooner."""
    error = _seen_error(run, candidate)
    if error is not None:
        return error
    node = check.node_name(candidate, run.settings.node)
    _let_resolve(run, node)  # a slurm.conf of the user may give it a name of its own
    if last is None or dict(candidate.texts) == dict(last):
        return None
    folder = f"{run.places.run}/new"
    config.write_set(folder, candidate.texts, run.places.key)
    return check.parse_error(run.machine, candidate, folder, node) or check.trial_error(
        run.machine, candidate, run.places
    )


def _seen_error(run: Run, candidate: Candidate) -> DshpcError | None:
    """What is wrong with it that no Slurm program has to be asked for."""
    try:
        check.node_name(candidate, run.settings.node)
    except DshpcError as error:
        return error
    return check.device_error(candidate, run.machine.is_device) or check.host_error(
        candidate, socket.gethostname()
    )


def _fall_back(run: Run, error: DshpcError, last: Mapping[str, str] | None) -> Candidate:
    """The last good configuration, where there is one and its devices are here; else the error."""
    if last is None:
        raise error
    kept = Candidate(last, {}, {})
    if _seen_error(run, kept) is not None:
        raise error
    _let_resolve(run, check.node_name(kept, run.settings.node))
    error = with_name(error, run.settings.container)
    run.status.values["kept_last_good"] = as_failure(error)
    run.status.note(f"{error.brief} The last good configuration stays in force.")
    for line in (*error.details.splitlines(), *error.resolution):
        log(f"  {line}")
    return kept


def _daemons(run: Run, candidate: Candidate, node: str) -> None:
    machine, places, status = run.machine, run.places, run.status
    replace_text(f"{places.run}/node", f"{node}\n", sync=False)
    with status.step("slurmctld"):
        port = check.port(candidate.texts, "SlurmctldPort", 6817)
        if network.listens(port):
            raise _port_taken(port)
        if not daemons.bring_up(machine, places, "slurmctld", port):
            raise _down(run, candidate, node, "slurmctld")
    with status.step("slurmd"):
        port = check.port(candidate.texts, "SlurmdPort", 6818)
        up = daemons.bring_up(machine, places, "slurmd", port)
        if daemons.has_ended(places, "slurmctld"):  # it listens before it has read everything
            raise _down(run, candidate, node, "slurmctld")
        if not up:
            raise _down(run, candidate, node, "slurmd")


def _down(run: Run, candidate: Candidate, node: str, program: str) -> DshpcError:
    """Take both daemons down, and find out why one of them did not come up."""
    for service in ("slurmd", "slurmctld"):
        daemons.take_down(run.machine, run.places, service)
    return (
        check.trial_error(run.machine, candidate, run.places)
        or check.parse_error(run.machine, candidate, os.path.realpath(run.places.etc_slurm), node)
        or _did_not_come_up(program)
    )


def _port_taken(port: int) -> DshpcError:
    return DshpcError(
        f"Another program listens on port {port} already.",
        "The container shares its network with the host or with another cluster.",
        ("Give the container a network of its own, or end that program, then start it again.",),
    )


def _did_not_come_up(program: str) -> DshpcError:
    return DshpcError(
        f"{program} does not come up.",
        f"Its configuration was accepted; what {program} says stands in the container's log.",
        ("See: docker logs CONTAINER",),
    )


def _first_job(run: Run, candidate: Candidate, node: str) -> str:
    """How the proof went, in words."""
    machine, status = run.machine, run.status
    others = False
    with status.step("reconcile"):
        if run.restored:
            found = daemons.wait_registered(machine, node)
            for note in (
                daemons.reconcile(machine, node, found),
                daemons.end_lost_jobs(machine, node),
            ):
                if note:
                    status.note(note)
            if found.unwell and not found.own_doing:
                return "no job was tried: the node was taken out by a person"
            others = daemons.others_hold_the_node(machine)
    with_gpu = "gpu:" in _node_gres(candidate)
    with status.step("first job"):
        deadline_s = daemons.SHORT_PROOF_S if others else daemons.PROOF_S
        result = daemons.prove(machine, node, with_gpu, deadline_s)
        if result.ok:
            return f"srun {'--gres=gpu:1 ' if with_gpu else ''}true passed in {result.ms:.0f} ms"
        found_now = daemons.show_node(machine, node)
        if others and result.state == "timeout" and found_now is not None and found_now.usable:
            status.note("No job was tried at this start: jobs from before it hold the node.")
            return "none: jobs from before the start hold the node"
        raise daemons.proof_error(result, node, found_now)


def _node_gres(candidate: Candidate) -> str:
    return "".join(
        line.partition("#")[0].lower()
        for line in candidate.texts["slurm.conf"].splitlines()
        if line.lower().lstrip().startswith("nodename") and "gres=" in line.lower()
    )


def _defect(error: Exception) -> DshpcError:
    return DshpcError(
        "The start stopped at a defect of dsHPC setup itself.",
        f"{type(error).__name__}: {error}",
        ("Please report it with the output of: docker logs CONTAINER",),
    )


def _say_failed(status: Status, error: DshpcError) -> None:
    status.failed(error)
    log("The start FAILED. The container stays up so that you can look into it.")
    log(f"What:  {error.brief}")
    for line in error.details.splitlines():
        log(f"Why:   {line}")
    for line in error.resolution:
        log(f"To do: {line}")


def _say_ready(run: Run, plan: ClusterPlan, candidate: Candidate, summary: str) -> None:
    own = [f"{name} is yours ({how})" for name, how in candidate.customized.items()]
    simulated = " (SIMULATED: made up, no job computes on them)" if plan.simulated else ""
    gpus = plan.gres_text or "none"
    log(f"Cluster {plan.cluster}, partition {plan.partition}, node {run.status.values['node']}")
    log(f"  CPUs   {plan.cpus}, memory for jobs {plan.real_memory_mib} MiB")
    log(f"  GPUs   {gpus}{simulated}")
    for reason in plan.left_out:
        log(f"         {reason}")
    if run.status.values["kept_last_good"]:
        own = ["the last good ones: see above what is wrong with the new ones"]
    log(f"  Files  {', '.join(own) if own else 'all rendered from what was found'}")
    log(f"  Proof  {summary}")
    log(f"Ready after {run.status.elapsed_ms:.0f} ms.")
