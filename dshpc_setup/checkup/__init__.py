"""Asks the machine, the project folder and the cluster all that the checks of diagnose want to know.

Beside each other, each with a deadline; nothing raises for what a machine, a folder or a cluster is
like: what could not be asked is told as that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from dshpc_setup import __version__, probes
from dshpc_setup import settings as settings_module
from dshpc_setup.checkup import (
    cluster,
    device_links,
    disks,
    gpu_memory,
    kernel,
    lent,
    other_nodes,
)
from dshpc_setup.diagnose import CheckInput, catalogue
from dshpc_setup.engine import inspecting
from dshpc_setup.engine_client import BUILTIN
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import HostFacts
from dshpc_setup.machine import Ended, Machine, Say, earlier
from dshpc_setup.machine.overlay import with_simulated_gpus
from dshpc_setup.machine.recorded import RecordedMachine
from dshpc_setup.observed.model import DeviceLinks, GpuMemory, KernelLog, Observed
from dshpc_setup.project.folder import PROOF, REMEMBERED, Project
from dshpc_setup.settings import BY_NAME, Reading, Settings, WrongSetting

if TYPE_CHECKING:
    from dshpc_setup.engine.inspecting import Early
    from dshpc_setup.passthrough import Passthrough
    from dshpc_setup.plan import ClusterPlan

_T = TypeVar("_T")


DEADLINE_S = 9.5  # of all of it
_FACTS_S = 7.0  # of the machine: what is asked after it has the rest
_BUSY, _SLOW_TAKES = (
    40.0,
    3.0,
)  # per cent; times as long as all is asked once more on such a machine


def examine(machine: Machine, project: Project | None, early: Early | None = None) -> CheckInput:
    """All that is known: on the host, or in the cluster's own container.

    `early`: what was asked already about the project's container. What it is still being asked, its
    answer in `with_inside`, is not asked again.

    The checks take as long to be imported as the machine takes to answer: it is done meanwhile.
    """
    from dshpc_setup.machine import commands  # noqa: F401  # once: else each process that asks does it

    if cluster.is_inside(machine):
        return _examine_inside(machine)
    settings, wrong = _settings(project, machine.env)
    seen = with_simulated_gpus(machine, settings.simulate)
    usable = None if wrong else settings
    deadline_s = DEADLINE_S * inspecting.patience(project.runtime() if project else {})
    deadline_s += other_nodes.more_s(project)

    def questions(early: Early | None, slow: float = 1.0) -> dict[str, Callable[[Say], None]]:
        asked: dict[str, Callable[[Say], None]] = {
            "machine": partial(_machine, machine, seen, project, usable, slow=slow)
        }
        if project is not None:
            asked["cluster"] = lambda say: say(
                cluster.look(machine, project, deadline_s * slow - 0.5, early, slow=slow)
            )
        return asked

    ended = machine.apart(questions(early), deadline_s=deadline_s, meanwhile=catalogue)
    if _gave_up(ended) and _is_busy(machine):
        ended = machine.apart(questions(None, _SLOW_TAKES), deadline_s=deadline_s * _SLOW_TAKES)
    from dshpc_setup.engine import daemon
    from dshpc_setup.passthrough import Passthrough

    facts, observed = _put_together(seen, ended, project)
    installed = daemon.installed(machine)
    observed = replace(
        observed,
        settings_wrong=wrong,
        engine_installed=installed,
        docker_command=machine.which("docker") is not None,
        owner=_other_owner(machine, project),
    )
    own = project if project is not None and project.foreign is None else None
    observed = replace(observed, packages=locked_packages(own))
    proof = Passthrough.from_json(own.read_note(PROOF)) if own else None
    from dshpc_setup.passthrough.driver_files import DriverFiles

    known = known_of(machine, facts, settings, observed, proof)
    return replace(known, driver_files=_last(ended["machine"], DriverFiles))


def _gave_up(ended: Mapping[str, Ended]) -> bool:
    """Whether an answer of the engine or of the cluster did not come."""
    facts, seen = _last(ended["machine"], HostFacts), _clusters(ended.get("cluster"), None)
    silent = facts is None or facts.engine.state == "timeout"
    return silent or bool(seen.cluster is not None and seen.cluster.problem)


def _is_busy(machine: Machine) -> bool:
    """Whether something here has waited for a CPU for much of the last seconds (the kernel's
    Documentation/accounting/psi.rst): an answer that has not come is late then, and not missing."""
    told = re.search(r"^some avg10=([0-9.]+)", machine.read("/proc/pressure/cpu").text or "")
    return told is not None and float(told[1]) >= _BUSY


def with_inside(
    machine: Machine, known: CheckInput, asked: Ended, again: Callable[[float], Ended]
) -> CheckInput:
    """With the answer of a container that was asked early: an inspecting.Answer, or how it ended.

    Where none came in time on a machine that is busy, `again` asks once more, for so many times as long.
    """
    is_late = known.observed.inside is None and known.observed.inside_problem is None
    if is_late and cluster.is_late(asked) and _is_busy(machine):
        asked = again(_SLOW_TAKES)
    return replace(known, observed=cluster.with_inside(known.observed, asked))


def _other_owner(machine: Machine, project: Project | None) -> str | None:
    """Whose the project folder is where it is not ours: his name, else his number."""
    if project is None:
        return None
    try:
        uid = project.folder.stat().st_uid
    except OSError:
        return None
    if uid == machine.uid:
        return None
    import pwd  # not on every system that this is imported on

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def locked_packages(project: Project | None) -> tuple[str, ...] | None:
    """What the methods' packages are locked to; None where they are not, or it cannot be read."""
    from dshpc_setup.environment import locking

    try:
        lock = locking.read(project.folder) if project is not None else None
    except DshpcError:
        return None  # `dshpc env show` and the next build say why
    return tuple(f"{each.name} {each.version}" for each in lock.wheels) if lock else None


def _examine_inside(machine: Machine) -> CheckInput:
    """There is no engine to ask, and no project folder; the container was given its settings."""
    settings, wrong = _told(settings_module.read(env=machine.env))
    seen = with_simulated_gpus(machine, settings.simulate)
    ended = machine.apart(
        {
            "machine": lambda say: say(probes.gather(seen, engine=False, deadline_s=_FACTS_S)),
            "cluster": lambda say: say(cluster.inside_here(machine)),
        },
        deadline_s=DEADLINE_S,
        meanwhile=catalogue,
    )
    facts, observed = _put_together(seen, ended, None)
    observed = replace(observed, settings_wrong=wrong)
    return known_of(machine, facts, settings, observed)


def examine_recorded(machine: Machine) -> CheckInput:
    """The same for a recorded machine: what was observed on it lies in its folder, or is not known.

    Its settings are those that it was recorded with, else the default ones: those of the project that
    we stand in are about another machine. Raises DshpcError where what was observed cannot be read.
    """
    from dshpc_setup.bundle.replay import Stored, stored_of  # which looks by examine itself

    folder = getattr(machine, "folder", None)
    told = stored_of(folder) if isinstance(folder, Path) else Stored()
    settings = told.settings or Settings()
    facts = probes.gather(with_simulated_gpus(machine, settings.simulate))
    observed = told.observed or Observed()
    if observed.kernel.state is None and isinstance(machine, RecordedMachine):
        observed = replace(observed, kernel=kernel.read_recorded(machine, facts.platform))
    from dshpc_setup.passthrough import of_driver

    known = known_of(machine, facts, settings, observed)
    return told.with_proof(replace(known, driver_files=of_driver(machine, facts)))


def _settings(
    project: Project | None, env: Mapping[str, str]
) -> tuple[Settings, tuple[WrongSetting, ...]]:
    """The settings of the project, those that cannot be used with their default, and why."""
    if project is None:
        return Settings(), ()
    try:
        return _told(project.read_settings(env))
    except DshpcError as error:  # what earlier runs remember is damaged
        return Settings(), (
            WrongSetting(
                "file", "remembered", REMEMBERED, error.brief, error.details, steps=error.resolution
            ),
        )


def _told(read: Reading) -> tuple[Settings, tuple[WrongSetting, ...]]:
    from dshpc_setup.plan import wrong_settings

    clashing = wrong_settings(read.settings)
    default = {each.setting: BY_NAME[each.setting].default for each in clashing if each.setting}
    return replace(read.settings, **default), (*read.wrong, *clashing)


def _of_projects_engine(facts: HostFacts, project: Project | None) -> HostFacts:
    """An engine that is silent does not say what it is; the folder says it of the built-in one."""
    if facts.engine.state != "timeout" or project is None:
        return facts
    if project.runtime().get("engine") != BUILTIN:
        return facts
    return replace(facts, engine=replace(facts.engine, kind=BUILTIN))


def _machine(
    machine: Machine,
    seen: Machine,
    project: Project | None,
    settings: Settings | None,
    say: Say,
    *,
    slow: float = 1.0,
) -> None:
    """The facts, and beside each other what is asked once these are known.

    `settings` are None where those of the project cannot be used; all may take `slow` times as long.
    """
    patience = slow * inspecting.patience(project.runtime() if project else {})
    more_s = other_nodes.more_s(project)  # the other nodes are asked at the same time
    until = machine.clock() + DEADLINE_S * patience + more_s
    facts = probes.gather(seen, deadline_s=_FACTS_S * slow)
    if facts.engine.state == "timeout" and slow == 1 and (patience > 1 or more_s):
        say(facts)  # should the machine not answer at all now
        left_s = until - machine.clock() - (DEADLINE_S - _FACTS_S)
        facts = probes.gather(seen, deadline_s=left_s)
    facts = _of_projects_engine(facts, project)
    say(facts)
    folder = project.folder if project else None
    work = project.runtime().get("work") if project else None
    if not isinstance(work, str) or Path(work).is_relative_to(folder or "/"):
        work = None
    questions: dict[str, Callable[[Say], None]] = {
        "kernel": lambda tell: tell(kernel.read_log(machine, facts.platform)),
        "disks": lambda tell: tell(disks.disks(machine, facts, folder, work)),
        "links": lambda tell: tell(device_links.device_links(machine, facts)),
    }
    if facts.engine.kind == BUILTIN:
        from dshpc_setup.passthrough import of_driver

        questions["driver"] = lambda tell: tell(of_driver(seen, facts))
    if gpu_memory.can_be_asked(facts):
        questions["memory"] = lambda tell: tell(gpu_memory.in_use(seen, facts))
    else:
        say(gpu_memory.in_use(seen, facts))
    if project is not None and project.foreign is None:
        from dshpc_setup.checkup import files  # reads YAML, which the container cannot
        from dshpc_setup.cluster import workers

        plan = _plan(facts, settings) if settings else None
        chosen = settings or Settings()
        as_run = project.with_homes(chosen)
        questions["lent"] = lambda tell: lent.look(machine, project.runtime(), chosen, tell)
        others = workers.planned(machine, facts, as_run) if plan is not None else ()
        plan = plan and workers.with_image_of_all(plan, others)
        questions["files"] = lambda tell: tell(
            files.project_files(project, facts, chosen, plan, others)
        )
    for end in machine.apart(questions, deadline_s=earlier(until - machine.clock())).values():
        for item in end.items:
            say(item)


def _put_together(
    machine: Machine, ended: Mapping[str, Ended], project: Project | None
) -> tuple[HostFacts, Observed]:
    """What was told; of what was not, the default, or how its asking ended."""
    told = ended["machine"]
    observed = replace(
        _clusters(ended.get("cluster"), project),
        version=__version__,
        disks=_last(told, tuple) or (),
        kernel=_last(told, KernelLog) or KernelLog(),
        gpu_memory=_last(told, GpuMemory) or GpuMemory(),
        device_links=_last(told, DeviceLinks) or DeviceLinks(),
    )
    if project is not None:
        from dshpc_setup.checkup.files import FolderSeen

        folder = _last(told, FolderSeen) or FolderSeen()
        seen = _last(told, lent.Lent) or lent.Lent()
        observed = replace(observed, project=str(project.folder), lent=seen.folders, **vars(folder))
    return _last(told, HostFacts) or _no_facts(machine), observed


def _no_facts(machine: Machine) -> HostFacts:
    """Where not even the probes' own deadline held: every section says that it was not asked."""
    return probes.gather(machine, engine=False, only=())


def _last(end: Ended, kind: type[_T]) -> _T | None:
    """What was told last of that kind."""
    return next((item for item in reversed(end.items) if isinstance(item, kind)), None)


def _clusters(end: Ended | None, project: Project | None) -> Observed:
    if end is None:
        return Observed()
    found = _last(end, Observed)
    if found is not None:
        return found
    why = f": {end.detail}" if end.detail else ""
    return cluster.unanswered(project, f"The cluster could not be asked{why}.")


def known_of(
    machine: Machine,
    facts: HostFacts,
    settings: Settings,
    observed: Observed,
    proof: Passthrough | None = None,
) -> CheckInput:
    """What checks look at, of a machine whose facts are here."""
    from dshpc_setup.engine.refusals import endpoint_elsewhere

    return CheckInput(
        facts,
        plan=_plan(facts, settings),
        whole=not settings.devices,
        proof=proof,
        endpoint=endpoint_elsewhere(machine, facts.engine),
        observed=observed,
    )


def _plan(facts: HostFacts, settings: Settings) -> ClusterPlan | None:
    from dshpc_setup.plan import plan_cluster

    try:
        return plan_cluster(facts, settings)
    except DshpcError:  # a GPU that is named in the settings is not there
        return None
