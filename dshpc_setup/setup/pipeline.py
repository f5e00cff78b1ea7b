"""The only composer: from a machine and settings to a running cluster, step by step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dshpc_setup.apply import apply
from dshpc_setup.cluster import (
    refused,
    workers,
)
from dshpc_setup.container import far
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.facts import HostFacts
from dshpc_setup.image import replaced
from dshpc_setup.machine import Machine
from dshpc_setup.passthrough import Passthrough
from dshpc_setup.passthrough.words import describe_proof
from dshpc_setup.plan import ClusterPlan, plan_cluster, refuse_too_many, wrong_settings
from dshpc_setup.plan.devices import unhealthy_reasons, unhealthy_told
from dshpc_setup.project.folder import Project
from dshpc_setup.render import volumes
from dshpc_setup.settings import Settings, together
from dshpc_setup.setup import (
    engine_choice,
    files_step,
    image_step,
    kept_homes,
    probe_step,
    shared_folders,
    start_step,
    toolkits,
    work_place,
)
from dshpc_setup.setup.describe import (
    describe_plans,
)
from dshpc_setup.setup.joining import fit_ids, refuse_keyless
from dshpc_setup.setup.proven import Proving, prove
from dshpc_setup.setup.report import Report, StepReporter
from dshpc_setup.setup.run import Options, Run

# Where a setting is somebody's own word, given for this run or written down
_CHOSEN = ("flag", "environment", "file")


class Configure:
    """One run of configure-environment; `report` is true at every moment."""

    def __init__(
        self, machine: Machine, project: Project, options: Options, reporter: StepReporter
    ) -> None:
        self._run = Run(machine, project, options, reporter)

    def run(self) -> Report:
        """All steps; an error ends the run and stands in the report, nothing is raised but Ctrl-C."""
        run = self._run
        try:
            if run.options.greeting:
                run.reporter.note(run.options.greeting)
            if run.options.replayed is not None:
                run.steps.note(
                    f"The machine recorded in {run.options.replayed} is replayed: "
                    "nothing is started or written."
                )
            if run.options.replayed is None:
                run.project.need_own()
            settings = self._settings()  # a wrong one is refused before anything is made
            if settings.listens and run.options.replayed is None:
                far.own_address(settings)
            if run.options.joining is not None:
                for text in run.options.joining.said:
                    run.steps.note(text)
            if run.options.dry_run:
                self._steps(settings)
            else:
                with run.project.lock():
                    self._remembered(settings)
        except DshpcError as error:
            run.report.error = error
            if any(item.action.startswith("would-") for item in run.report.changes):
                run.steps.note("The files of this folder are as they were before this run.")
        except KeyboardInterrupt:
            run.report.error = DshpcError(
                "Interrupted.",
                "",
                ("Run again: what is done already is not done twice.",),
                Exit.INTERRUPTED,
            )
        run.steps.fill()
        return run.report

    def _remembered(self, settings: Settings) -> None:
        """The steps; why they put nothing in force is told again by those who only look."""
        run = self._run
        try:
            self._steps(settings)
        except DshpcError as error:
            if not run.is_written:
                refused.remember(run.project, settings, error)
            raise
        refused.forget(run.project)

    def _settings(self) -> Settings:
        run = self._run
        env = run.machine.env if run.options.env is None else run.options.env
        read = run.project.read_settings(env, run.flags, run.options.settings_file)
        settings = read.settings
        if wrong := (*read.wrong, *wrong_settings(settings)):
            raise together(wrong)
        work = volumes.work_folder(run.project.folder, settings)
        if run.options.replayed is None:
            self._work_place(work, settings)
            shared_folders.need_mounts(run.project.folder, settings)
        return settings

    def _work_place(self, work: Path, settings: Settings) -> None:
        run = self._run
        folder = run.project.folder
        if not run.options.dry_run:
            work_place.agreed(work, settings, folder, run.reporter)
        elif question := work_place.foreseen(work, settings, folder):
            run.steps.note(f"A real run would ask: {question}")

    def _steps(self, settings: Settings) -> None:
        run = self._run
        if not run.options.dry_run:
            apply.finish_interrupted(run.project)
            if run.options.joining is not None:
                run.options.joining.prepare()
        settings = self._through_engine(settings)
        facts = probe_step.probe(run, settings)
        if run.options.joining is None and not run.options.dry_run:
            refuse_keyless(run.machine, settings)
        if run.options.replayed is None:
            shared_folders.need_followed(settings, facts)
            settings = shared_folders.with_homes(run.machine, run.project, settings, facts)
            settings = toolkits.with_toolkits(run.project, settings)
            if settings.toolkits:
                run.steps.note(toolkits.told(settings))
        ideal = self._ideal(facts, settings)
        for sentence in unhealthy_told(ideal, facts.gpus):
            run.steps.note(sentence)
        base = image_step.base(run, facts, settings, ideal)
        testable = None if run.options.dry_run else base
        proving = Proving(run.machine, run.project, facts, settings, ideal, testable)
        proof = prove(proving, run.steps)
        plan = self._plan(facts, settings, proof, ideal)
        recipe, changes = files_step.render(run, facts, settings, base, plan, proof)
        if run.options.dry_run:
            return
        image = image_step.build_image(run, facts, settings, recipe, plan)
        started = start_step.start_cluster(run, facts, settings, image, changes)
        if started is not None:
            start_step.verify_cluster(run, settings, plan, started)
            if settings.homes and run.was_there:  # a new one has kept nothing
                for text in kept_homes.copied(run.machine, settings.container, run.reporter):
                    run.steps.note(text)
            if started and (freed := replaced.remove(run.machine, run.replaced, image)):
                run.steps.note(f"The image that was replaced is removed: {freed / 1e6:.0f} MB.")
            start_step.look_beside(run, settings, plan)

    def _ideal(self, facts: HostFacts, settings: Settings) -> ClusterPlan:
        """The plan where all GPUs can be used: a setting that none can follow is told before what is slow."""
        run = self._run
        try:
            refuse_too_many(facts, settings)
            plan = plan_cluster(facts, settings)
            run.workers = workers.planned(run.machine, facts, settings)
            return workers.with_image_of_all(plan, run.workers)
        except DshpcError:
            with run.steps.step("plan"):
                raise

    def _through_engine(self, settings: Settings) -> Settings:
        """From here on the machine is seen through the engine; with the ports of the built-in one."""
        run = self._run
        if run.options.replayed is not None:
            return settings
        chosen = engine_choice.choose(
            run.given,
            settings.engine,
            run.project.runtime(),
            interactive=run.options.interactive,
            looks_only=run.options.dry_run,
        )
        engine_choice.need(
            run.given,
            chosen,
            run.project.runtime(),
            looks_only=run.options.dry_run,
        )
        if chosen.note is not None:
            run.steps.note(chosen.note)
        run.through(chosen.kind)
        if run.options.joining is not None:
            told = fit_ids(run.machine, run.options.joining, chosen.kind)
            if told is not None:
                run.steps.note(told)
                run.joins(run.options.joining)
                settings = self._settings()
        kept = run.options.dry_run or settings.sources["slurm_ports"].origin in _CHOSEN
        shares = chosen.kind == "builtin" or settings.listens  # the machine's own network
        shares = shares or (chosen.kind == "podman" and bool(settings.worker_numbers))
        if not shares or kept or settings.place.is_joined:
            return settings
        from dshpc_setup.setup import kept_ports  # with the built-in engine a fifth of all imports

        run.flags["slurm_ports"] = kept_ports.choose(
            run.machine, run.project, settings, chosen.kind
        )
        return self._settings()

    def _plan(
        self, facts: HostFacts, settings: Settings, proof: Passthrough, ideal: ClusterPlan
    ) -> ClusterPlan:
        run = self._run
        with run.steps.step("plan") as say:
            plan = ideal
            if plan.gres and not proof.works:
                plan = plan_cluster(facts, replace(settings, gpu="none"))
                plan = replace(plan, left_out=(describe_proof(proof),))
            plan = workers.with_image_of_all(plan, run.workers)
            told = unhealthy_reasons(facts.gpus)
            for reason in plan.left_out if plan.gres else ():
                if reason not in told:
                    run.steps.note(f"Not used: {reason}")
            say(describe_plans((plan, *(each.plan for each in run.workers))))
            if run.workers:
                run.steps.note(
                    f"The {len(run.workers) + 1} nodes share this machine's CPUs and memory: each one "
                    "offers all of them to jobs."
                )
            if run.workers and not settings.simulate and plan.gres:
                run.steps.note(f"Node {plan.node} has the GPUs; the other nodes have none.")
            return plan
