"""The steps "start" and "verify" of a run: the container is there, Slurm answers, and a job has run."""

from __future__ import annotations

from dshpc_setup.apply import apply
from dshpc_setup.apply.apply import Change
from dshpc_setup.cluster import (
    last_engine,
    neighbours,
    previous,
    serving,
    start,
    verify,
    worker_changes,
    workers,
)
from dshpc_setup.engine import compose as compose_tool
from dshpc_setup.engine import start_report
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import HostFacts
from dshpc_setup.plan import ClusterPlan
from dshpc_setup.project.folder import GPUS_LABEL
from dshpc_setup.render.labels import gpus_label
from dshpc_setup.settings import Settings
from dshpc_setup.setup import engine_choice
from dshpc_setup.setup.files_step import write
from dshpc_setup.setup.joining import rejoined
from dshpc_setup.setup.run import Run


def start_cluster(
    run: Run,
    facts: HostFacts,
    settings: Settings,
    image: str,
    changes: tuple[Change, ...],
) -> bool | None:
    """Whether the container was started now; None where it is not to be."""
    with run.steps.step("start") as say:
        if not run.options.start:
            write(run, settings, changes)
            say("--no-start", True)
            return None
        compose = facts.engine.compose
        assert compose is not None  # made sure of in the first step: tools.ready
        joining = run.options.joining
        may_stop = run.options.may_stop
        has_key = joining is not None and rejoined(run.machine, settings, joining)
        try:
            agreed = start.agreed(
                run.machine,
                run.project,
                settings,
                compose,
                image,
                changes,
                may_stop,
                run.reporter,
            )
            file = next(item for item in changes if item.path == compose_tool.FILE)
            nodes = worker_changes.foreseen(run.machine, run.project, settings, image, file)
            if agreed.why is None or agreed.live:  # else all jobs were asked about
                worker_changes.may_end(run.machine, settings, nodes, may_stop, run.reporter)
        except DshpcError:
            # Nothing is in force of it, and who has edited a file can look at it and take it
            apply.offer(run.project, changes)
            raise
        prefix = settings.prefix
        stays = None
        if agreed.found is None:
            stays = last_engine.left_behind(run.machine, run.project, facts.engine, prefix)
        write(run, settings, changes)
        run.ready = agreed.report
        run.replaced.append(agreed.found.image_id if agreed.found else None)
        worker_changes.make_way(run.machine, nodes, run.reporter)
        started = start.bring_up(
            run.machine, run.project, settings, compose, agreed, may_stop, run.reporter
        )
        if not started:
            started = worker_changes.bring_up(
                run.machine, run.project, settings, compose, nodes, run.reporter
            )
        if stays is not None:
            run.steps.note(stays)
        last_engine.remember(run.project, facts.engine, prefix)
        ends = engine_choice.ends_with_login(run.machine) if run.engine == "podman" else None
        if started and ends is not None:
            run.steps.note(ends)
        if joining is not None and not has_key:
            run.reporter.progress("taking the cluster's key")
            joining.connect(run.machine, settings.container)
        say("started" if started else "running already")
        return started


def verify_cluster(
    run: Run,
    settings: Settings,
    plan: ClusterPlan,
    started: bool,
) -> None:
    with run.steps.step("verify") as say:
        run.reporter.progress("waiting for Slurm")
        is_new = started or run.options.joining is not None
        told = {} if is_new else run.ready
        told = told or verify.wait_ready(run.machine, settings.container)
        verify.refuse_last_good(told)
        wanted = settings.worker_containers
        workers.wait_ready(run.machine, wanted, run.reporter)
        cluster = verify.ask_cluster(run.machine, settings.container)
        known = [node.name for node in cluster.nodes]
        is_joined = settings.place.is_joined
        if not is_joined and worker_changes.settle(
            run.machine, settings.container, known, tuple(wanted)
        ):
            cluster = verify.ask_cluster(run.machine, settings.container)
        if settings.listens:
            cluster, others = cluster.of_machine(settings.node)
            for note in verify.of_others(others):
                run.steps.note(note)
        run.report.cluster = cluster
        for note in start_report.notes(told, cluster.usable):
            run.steps.note(note)
        own = any(item.action.startswith("kept-") for item in run.report.changes)
        planned = {each.plan.node: each.plan.gres_text for each in run.workers}
        verify.judge_nodes(cluster, {plan.node: plan.gres_text, **planned}, own_files=own)
        has_gpu = any(node.gres for node in cluster.nodes)
        said = "ready"
        if is_new:
            node = settings.node if settings.listens else None
            owned = settings.place.owner is not None
            said = verify.run_first_job(run.machine, settings.container, has_gpu, node, owned=owned)
        if run.options.joining is not None:
            for note in run.options.joining.conclude(run.machine):
                run.steps.note(note)
        say(f"{said}; {cluster.describe()}")
    serving.follow(run.machine, run.project, run.reporter, settings)


def look_beside(run: Run, settings: Settings, plan: ClusterPlan) -> None:
    """Other clusters with the same GPUs, and those of this folder."""
    label = gpus_label(plan).get(GPUS_LABEL, "")
    asks = run.options.interactive
    try:
        for other in neighbours.sharing(run.machine, settings.container, label):
            run.steps.note(
                f"The cluster {other.prefix} in {other.folder} gives jobs the same GPUs "
                f"({', '.join(other.gpus)}): jobs of both would meet on them. Let each have its own: "
                "dshpc config set devices 0,1"
            )
        for text in previous.settle(run.machine, run.project, run.reporter, remember=asks):
            run.steps.note(text)
    except DshpcError as error:  # the cluster is up and proven, whatever stands beside it
        run.steps.note(f"Other clusters could not be looked for: {error.brief}")
