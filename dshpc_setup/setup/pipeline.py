"""The only composer: from a machine and settings to a running cluster, step by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dshpc_setup import engine_door, probes
from dshpc_setup.apply import apply
from dshpc_setup.apply.apply import Change
from dshpc_setup.cluster import (
    last_engine,
    neighbours,
    own_files,
    previous,
    refused,
    serving,
    start,
    verify,
    worker_changes,
    workers,
)
from dshpc_setup.cluster.owner import former_owner, refuse_others
from dshpc_setup.cluster.stopping import MayStop
from dshpc_setup.container import far
from dshpc_setup.engine import compose as compose_tool
from dshpc_setup.engine import refusals, start_report, tools
from dshpc_setup.engine.images import inspect
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.facts import HostFacts
from dshpc_setup.image import replaced
from dshpc_setup.image.base import BaseImage, ensure_base, find_base, find_image
from dshpc_setup.image.build import build
from dshpc_setup.image.recipe import Recipe, make_recipe
from dshpc_setup.machine import Machine
from dshpc_setup.machine.longer_deadlines import patient
from dshpc_setup.machine.overlay import with_simulated_gpus
from dshpc_setup.passthrough import Passthrough
from dshpc_setup.passthrough.words import describe_proof
from dshpc_setup.plan import ClusterPlan, plan_cluster, refuse_too_many, wrong_settings
from dshpc_setup.plan.devices import unhealthy_reasons, unhealthy_told
from dshpc_setup.project.folder import GPUS_LABEL, Project
from dshpc_setup.render import configuration, stanza
from dshpc_setup.settings import Settings, together
from dshpc_setup.setup import (
    engine_choice,
    kept_homes,
    shared_folders,
    toolkits,
    work_place,
    written,
)
from dshpc_setup.setup.describe import (
    describe_changes,
    describe_facts,
    describe_mapping,
    describe_missing,
    describe_plans,
)
from dshpc_setup.setup.joining import Joining, refuse_keyless, rejoined
from dshpc_setup.setup.other_nodes import no_other_nodes
from dshpc_setup.setup.proven import Proving, prove
from dshpc_setup.setup.report import Report, StepReporter
from dshpc_setup.setup.steps import Steps

# Where a setting is somebody's own word, given for this run or written down
_CHOSEN = ("flag", "environment", "file")


@dataclass(frozen=True)
class Options:
    """How far to go, and what may be asked."""

    flags: Mapping[str, str | None] = field(default_factory=dict)
    settings_file: Path | None = None
    dry_run: bool = False
    build: bool = True
    renew: bool = False  # the image, with the packages of today
    start: bool = True
    take_over: bool = False
    may_stop: MayStop = field(default_factory=MayStop)  # running jobs
    interactive: bool = False
    greeting: str = ""  # the first line on screen
    env: Mapping[str, str] | None = None  # where settings may stand; None: the machine's own
    image_file: Path | None = None  # the image is in it, and is not made here
    replayed: str | None = None  # the folder of a recorded machine: nothing of it can be started
    joining: Joining | None = None  # the cluster elsewhere of which this machine becomes a node


class Configure:
    """One run of configure-environment; `report` is true at every moment."""

    def __init__(
        self, machine: Machine, project: Project, options: Options, reporter: StepReporter
    ) -> None:
        self._given = machine  # what is asked with a time of its own: the probes
        self.machine, self.project, self.options = patient(machine), project, options
        self.reporter = reporter
        self.steps = Steps(reporter, machine.clock)
        self.report = self.steps.report
        self._written = False
        self._was_there = bool(project.manifest) if options.replayed is None else False
        self._inputs = ""  # of what was rendered
        self._memory_mib: int | None = None  # of the node, in it
        self._replaced: list[str | None] = []  # ids of images that are no longer to be used
        self._ready: Mapping[
            str, Any
        ] = {}  # what the container says of its start, where it is over
        self._flags = dict(options.flags)
        if options.joining is not None:
            self._flags.update(options.joining.flags)
            project.joining = options.joining.note
        self._engine: engine_choice.Kind = "docker"  # what starts the container
        self._workers: tuple[stanza.Worker, ...] = ()

    def run(self) -> Report:
        """All steps; an error ends the run and stands in the report, nothing is raised but Ctrl-C."""
        try:
            if self.options.greeting:
                self.reporter.note(self.options.greeting)
            if self.options.replayed is not None:
                self.steps.note(
                    f"The machine recorded in {self.options.replayed} is replayed: "
                    "nothing is started or written."
                )
            if self.options.replayed is None:
                self.project.need_own()
            settings = self._settings()  # a wrong one is refused before anything is made
            if settings.listens and self.options.replayed is None:
                far.own_address(settings)
            if self.options.joining is not None:
                for text in self.options.joining.said:
                    self.steps.note(text)
            if self.options.dry_run:
                self._steps(settings)
            else:
                with self.project.lock():
                    self._remembered(settings)
        except DshpcError as error:
            self.report.error = error
            if any(item.action.startswith("would-") for item in self.report.changes):
                self.steps.note("The files of this folder are as they were before this run.")
        except KeyboardInterrupt:
            self.report.error = DshpcError(
                "Interrupted.",
                "",
                ("Run again: what is done already is not done twice.",),
                Exit.INTERRUPTED,
            )
        self.steps.fill()
        return self.report

    def _remembered(self, settings: Settings) -> None:
        """The steps; why they put nothing in force is told again by those who only look."""
        try:
            self._steps(settings)
        except DshpcError as error:
            if not self._written:
                refused.remember(self.project, settings, error)
            raise
        refused.forget(self.project)

    def _settings(self) -> Settings:
        env = self.machine.env if self.options.env is None else self.options.env
        read = self.project.read_settings(env, self._flags, self.options.settings_file)
        settings = read.settings
        if wrong := (*read.wrong, *wrong_settings(settings)):
            raise together(wrong)
        work = stanza.work_folder(self.project.folder, settings)
        if self.options.replayed is None:
            self._work_place(work, settings)
            shared_folders.need_mounts(self.project.folder, settings)
        return settings

    def _work_place(self, work: Path, settings: Settings) -> None:
        folder = self.project.folder
        if not self.options.dry_run:
            work_place.agreed(work, settings, folder, self.reporter)
        elif question := work_place.foreseen(work, settings, folder):
            self.steps.note(f"A real run would ask: {question}")

    def _steps(self, settings: Settings) -> None:
        if not self.options.dry_run:
            apply.finish_interrupted(self.project)
            if self.options.joining is not None:
                self.options.joining.prepare()
        settings = self._through_engine(settings)
        facts = self._probe(settings)
        if self.options.joining is None and not self.options.dry_run:
            refuse_keyless(self.machine, settings)
        if self.options.replayed is None:
            settings = shared_folders.with_homes(self.machine, self.project, settings, facts)
            settings = toolkits.with_toolkits(self.project, settings)
            if settings.toolkits:
                self.steps.note(toolkits.told(settings))
        ideal = self._ideal(facts, settings)
        for sentence in unhealthy_told(ideal, facts.gpus):
            self.steps.note(sentence)
        base = self._base(facts, settings, ideal)
        testable = None if self.options.dry_run else base
        proving = Proving(self.machine, self.project, facts, settings, ideal, testable)
        proof = prove(proving, self.steps)
        plan = self._plan(facts, settings, proof, ideal)
        recipe, changes = self._render(facts, settings, base, plan, proof)
        if self.options.dry_run:
            return
        image = self._build(facts, settings, recipe, plan)
        started = self._start(facts, settings, image, changes)
        if started is not None:
            self._verify(settings, plan, changes, started)
            if settings.homes and self._was_there:  # a new one has kept nothing
                for text in kept_homes.copied(self.machine, settings.container, self.reporter):
                    self.steps.note(text)
            if started and (freed := replaced.remove(self.machine, self._replaced, image)):
                self.steps.note(f"The image that was replaced is removed: {freed / 1e6:.0f} MB.")
            self._neighbours(settings, plan)

    def _neighbours(self, settings: Settings, plan: ClusterPlan) -> None:
        """Other clusters with the same GPUs, and those of this folder."""
        label = stanza.gpus_label(plan).get(GPUS_LABEL, "")
        asks = self.options.interactive
        try:
            for other in neighbours.sharing(self.machine, settings.container, label):
                self.steps.note(
                    f"The cluster {other.prefix} in {other.folder} gives jobs the same GPUs "
                    f"({', '.join(other.gpus)}): jobs of both would meet on them. Let each have its own: "
                    "dshpc config set devices 0,1"
                )
            for text in previous.settle(self.machine, self.project, self.reporter, remember=asks):
                self.steps.note(text)
        except DshpcError as error:  # the cluster is up and proven, whatever stands beside it
            self.steps.note(f"Other clusters could not be looked for: {error.brief}")

    def _ideal(self, facts: HostFacts, settings: Settings) -> ClusterPlan:
        """The plan where all GPUs can be used: a setting that none can follow is told before what is slow."""
        try:
            refuse_too_many(facts, settings)
            plan = plan_cluster(facts, settings)
            self._workers = workers.planned(self.machine, facts, settings)
            return workers.with_image_of_all(plan, self._workers)
        except DshpcError:
            with self.steps.step("plan"):
                raise

    def _through_engine(self, settings: Settings) -> Settings:
        """From here on the machine is seen through the engine; with the ports of the built-in one."""
        if self.options.replayed is not None:
            return settings
        chosen = engine_choice.choose(
            self._given,
            settings.engine,
            self.project.runtime(),
            interactive=self.options.interactive,
            looks_only=self.options.dry_run,
        )
        engine_choice.need(
            self._given, chosen, self.project.runtime(), looks_only=self.options.dry_run
        )
        if chosen.kind == "podman" and settings.worker_numbers:
            raise no_other_nodes()
        if chosen.note is not None:
            self.steps.note(chosen.note)
        self._engine = chosen.kind
        self._given = engine_door.through(
            self._given, chosen.kind, self.project.runtime().get("cache")
        )
        self.machine = patient(self._given)
        kept = self.options.dry_run or settings.sources["slurm_ports"].origin in _CHOSEN
        shares = chosen.kind == "builtin" or settings.listens  # the machine's own network
        if not shares or kept or settings.place.is_joined:
            return settings
        from dshpc_setup.setup import kept_ports  # with the built-in engine a fifth of all imports

        self._flags["slurm_ports"] = kept_ports.choose(
            self.machine, self.project, settings, chosen.kind
        )
        return self._settings()

    # -- the steps ----------------------------------------------------------------------------

    def _probe(self, settings: Settings) -> HostFacts:
        with self.steps.step("probe") as say:
            machine = with_simulated_gpus(self._given, settings.simulate)
            if self.options.dry_run:
                facts = self._seen(machine)
            else:
                facts = tools.ready(
                    self._given, machine, self.reporter, interactive=self.options.interactive
                )
            self.report.simulated = facts.gpus.simulated
            say(describe_facts(facts))
            if facts.engine.state == "present" and self.options.replayed is None:
                refuse_others(
                    self.machine, self.project, settings, take_over=self.options.take_over
                )
            if (mapped := describe_mapping(facts.engine)) is not None:
                self.steps.note(mapped)
            return facts

    def _seen(self, machine: Machine) -> HostFacts:
        """For a dry run: nothing is installed, and a recorded machine answers no other the second time."""
        if self.options.replayed is not None:
            facts = probes.gather(machine)
        else:
            facts = probes.gather_surely(machine, self.reporter.progress)
        if refused := refusals.unfit(facts):
            raise refused
        if facts.engine.state != "present" or facts.engine.compose is None:
            self.steps.note(f"{describe_missing(facts)} A real run would see to it.")
        return facts

    def _base(self, facts: HostFacts, settings: Settings, ideal: ClusterPlan) -> BaseImage | None:
        with self.steps.step("base") as say:
            if self._whole_image and not self.options.dry_run:
                tag = stanza.image_tag(settings, ideal.gpu_type)
                say(self._made_image(facts, settings, tag, ideal.gpu_type))
                return find_image(self.machine, tag)
            if self.options.dry_run or not self.options.build:
                say("not needed for a dry run" if self.options.dry_run else "--no-build", True)
                there = facts.engine.state == "present" and self.options.replayed is None
                return find_base(self.machine, facts, settings) if there else None
            base = ensure_base(
                self.machine, facts, settings, self.reporter, interactive=self.options.interactive
            )
            origins = {"local": "here already", "pulled": "pulled", "debootstrap": "made here"}
            say(f"{base.ref}, {origins[base.origin]}")
            return base

    @property
    def _whole_image(self) -> bool:
        """Whether the image is made here as a whole: these engines have no base image."""
        return self._engine != "docker"

    def _made_image(self, facts: HostFacts, settings: Settings, tag: str, gpu_type: str) -> str:
        """What was done, in words."""
        from dshpc_setup.setup import builtin_engine

        load: Callable[[Machine, str, Path, StepReporter], None] = builtin_engine.load_image
        keep = None
        if self._engine == "podman":
            from dshpc_setup.image import podman_image

            load, keep = podman_image.load, podman_image.keep
        if (file := self.options.image_file) is not None:
            load(self.machine, tag, file, self.reporter)
            return f"{tag}, of {file}"
        if not self.options.build:
            return f"{tag} (--no-build)"
        from dshpc_setup.image import builtin_build

        made = builtin_build.build(
            self.machine,
            facts,
            settings,
            self.project,
            tag,
            gpu_type,
            self.reporter,
            renew=self.options.renew,
            keep=keep,
        )
        self._replaced.append(made.replaced)
        return f"{tag}, {made.size / 1e6:.0f} MB" + ("" if made.built else ", here already")

    def _plan(
        self, facts: HostFacts, settings: Settings, proof: Passthrough, ideal: ClusterPlan
    ) -> ClusterPlan:
        with self.steps.step("plan") as say:
            plan = ideal
            if plan.gres and not proof.works:
                plan = plan_cluster(facts, replace(settings, gpu="none"))
                plan = replace(plan, left_out=(describe_proof(proof),))
            plan = workers.with_image_of_all(plan, self._workers)
            told = unhealthy_reasons(facts.gpus)
            for reason in plan.left_out if plan.gres else ():
                if reason not in told:
                    self.steps.note(f"Not used: {reason}")
            say(describe_plans((plan, *(each.plan for each in self._workers))))
            if self._workers:
                self.steps.note(
                    f"The {len(self._workers) + 1} nodes share this machine's CPUs and memory: each one "
                    "offers all of them to jobs."
                )
            if self._workers and not settings.simulate and plan.gres:
                self.steps.note(f"Node {plan.node} has the GPUs; the other nodes have none.")
            return plan

    def _render(
        self,
        facts: HostFacts,
        settings: Settings,
        base: BaseImage | None,
        plan: ClusterPlan,
        proof: Passthrough,
    ) -> tuple[Recipe | None, tuple[Change, ...]]:
        with self.steps.step("render") as say:
            recipe = (
                make_recipe(
                    self.machine,
                    facts,
                    settings,
                    self.project,
                    base,
                    plan.gpu_type,
                    dry_run=self.options.dry_run,
                    renew=self.options.renew,
                    say=self.reporter.progress,
                )
                if base is not None and not self._whole_image
                else None
            )
            file = stanza.compose_file(
                self.project.folder,
                settings,
                facts,
                plan,
                proof,
                stanza.image_tag(settings, plan.gpu_type),
                recipe.for_compose(self.project.folder) if recipe else None,
                self._workers,
            )
            changes = written.compared(self.project, plan, stanza.text_of(file))
            self._inputs, self._memory_mib = configuration.inputs(plan, file), plan.real_memory_mib
            self.report.changes = apply.planned(changes)
            say(describe_changes(self.report.changes if self.options.dry_run else changes))
            if not self.options.dry_run:
                written.keep_hidden(self.project, settings)
                if file.rights.seccomp:
                    written.keep_profile(self.project, file.rights.seccomp)
                written.let_compose_read(self.machine, self.project, facts, changes)
                if not self.project.manifest:
                    # Nothing has to stay in force yet, and what was chosen is remembered
                    self._write(settings, changes)
            return recipe, changes

    def _write(self, settings: Settings, changes: tuple[Change, ...]) -> None:
        """Where something is in force, only once nothing can refuse it: `dshpc up` would apply it."""
        if self._written:
            return
        owner = former_owner(self.machine, settings) if self.options.take_over else None
        origin = written.Origin(
            self._inputs,
            self._flags,
            owner,
            self._memory_mib,
            engine=self._engine,
            env=self.machine.env,
        )
        made = written.write(self.project, settings, changes, origin)
        for before, now in zip(changes, made, strict=True):
            if before.action != now.action and now.action.startswith("kept-"):
                self.steps.note(f"{now.path} was edited while this ran: it stays as it is.")
        self.report.changes, self._written = made, True
        for each in own_files.of_project(self.project, settings):
            self.steps.note(each.sentence)

    def _build(
        self, facts: HostFacts, settings: Settings, recipe: Recipe | None, plan: ClusterPlan
    ) -> str:
        """The id of the image to run."""
        with self.steps.step("build") as say:
            tag = stanza.image_tag(settings, plan.gpu_type)
            if not self.options.build or recipe is None:
                found = inspect(self.machine, tag)
                if found is None and self.options.start:
                    raise DshpcError(
                        f"There is no image {tag} yet, and --no-build leaves out making it.",
                        "",
                        ("Run again without --no-build.",),
                    )
                say("the image is there" if self._whole_image else "--no-build", True)
                return found.id if found is not None else ""
            result = build(
                self.machine,
                facts,
                settings,
                recipe.base,
                recipe.context,
                tag,
                plan.gpu_type,
                self.reporter,
            )
            self._replaced.append(result.replaced)
            size = f"{result.size / 1e6:.0f} MB"
            say(f"{tag}, {size}" if result.built else f"{tag}, {size}, here already")
            return result.id

    def _start(
        self,
        facts: HostFacts,
        settings: Settings,
        image: str,
        changes: tuple[Change, ...],
    ) -> bool | None:
        """Whether the container was started now; None where it is not to be."""
        with self.steps.step("start") as say:
            if not self.options.start:
                self._write(settings, changes)
                say("--no-start", True)
                return None
            compose = facts.engine.compose
            assert compose is not None  # made sure of in the first step: tools.ready
            joining = self.options.joining
            may_stop = self.options.may_stop
            has_key = joining is not None and rejoined(self.machine, settings, joining)
            try:
                agreed = start.agreed(
                    self.machine,
                    self.project,
                    settings,
                    compose,
                    image,
                    changes,
                    may_stop,
                    self.reporter,
                )
                file = next(item for item in changes if item.path == compose_tool.FILE)
                nodes = worker_changes.foreseen(self.machine, self.project, settings, image, file)
                if agreed.why is None or agreed.live:  # else all jobs were asked about
                    worker_changes.may_end(self.machine, settings, nodes, may_stop, self.reporter)
            except DshpcError:
                # Nothing is in force of it, and who has edited a file can look at it and take it
                apply.offer(self.project, changes)
                raise
            prefix = settings.prefix
            stays = None
            if agreed.found is None:
                stays = last_engine.left_behind(self.machine, self.project, facts.engine, prefix)
            self._write(settings, changes)
            self._ready = agreed.report
            self._replaced.append(agreed.found.image_id if agreed.found else None)
            worker_changes.make_way(self.machine, nodes, self.reporter)
            started = start.bring_up(
                self.machine, self.project, settings, compose, agreed, may_stop, self.reporter
            )
            if not started:
                started = worker_changes.bring_up(
                    self.machine, self.project, settings, compose, nodes, self.reporter
                )
            if stays is not None:
                self.steps.note(stays)
            last_engine.remember(self.project, facts.engine, prefix)
            ends = engine_choice.ends_with_login(self.machine) if self._engine == "podman" else None
            if started and ends is not None:
                self.steps.note(ends)
            if joining is not None and not has_key:
                self.reporter.progress("taking the cluster's key")
                joining.connect(self.machine, settings.container)
            say("started" if started else "running already")
            return started

    def _verify(
        self,
        settings: Settings,
        plan: ClusterPlan,
        changes: tuple[Change, ...],
        started: bool,
    ) -> None:
        with self.steps.step("verify") as say:
            self.reporter.progress("waiting for Slurm")
            is_new = started or self.options.joining is not None
            told = {} if is_new else self._ready
            told = told or verify.wait_ready(self.machine, settings.container)
            verify.refuse_last_good(told)
            wanted = settings.worker_containers
            workers.wait_ready(self.machine, wanted, self.reporter)
            cluster = verify.ask_cluster(self.machine, settings.container)
            known = [node.name for node in cluster.nodes]
            is_joined = settings.place.is_joined
            if not is_joined and worker_changes.settle(
                self.machine, settings.container, known, tuple(wanted)
            ):
                cluster = verify.ask_cluster(self.machine, settings.container)
            if settings.listens:
                cluster, others = cluster.of_machine(settings.node)
                for note in verify.of_others(others):
                    self.steps.note(note)
            self.report.cluster = cluster
            for note in start_report.notes(told, cluster.usable):
                self.steps.note(note)
            own = any(item.action.startswith("kept-") for item in self.report.changes)
            planned = {each.plan.node: each.plan.gres_text for each in self._workers}
            verify.judge_nodes(cluster, {plan.node: plan.gres_text, **planned}, own_files=own)
            has_gpu = any(node.gres for node in cluster.nodes)
            said = "ready"
            if is_new:
                node = settings.node if settings.listens else None
                said = verify.run_first_job(self.machine, settings.container, has_gpu, node)
            if self.options.joining is not None:
                self.options.joining.conclude()
            say(f"{said}; {cluster.describe()}")
        serving.follow(self.machine, self.project, self.reporter, settings)
