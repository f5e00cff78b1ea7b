"""The only composer: from a machine and settings to a running cluster, step by step."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dshpc_setup import apply, ownership, passthrough, probes, stanza, verify
from dshpc_setup.describe import (
    describe_changes,
    describe_facts,
    describe_mapping,
    describe_plan,
)
from dshpc_setup.engine import compose as compose_tool
from dshpc_setup.engine import containers
from dshpc_setup.engine.install import ensure_engine
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.facts import HostFacts
from dshpc_setup.files import make_folder
from dshpc_setup.image.base import BaseImage, ensure_base, find_base
from dshpc_setup.image.build import build, build_args, choose_builder, compose_build
from dshpc_setup.image.context import Context, write_context
from dshpc_setup.image.site import gather_site
from dshpc_setup.machine import Machine
from dshpc_setup.passthrough import Passthrough
from dshpc_setup.plan import ClusterPlan, plan_cluster
from dshpc_setup.project import OWN, PROOF, Project
from dshpc_setup.render import CONFIG_FILES, render_env, render_slurm
from dshpc_setup.report import STEPS, Report, Step, StepName, StepReporter
from dshpc_setup.settings import Settings


@dataclass(frozen=True)
class Options:
    """How far to go, and what may be asked."""

    flags: Mapping[str, str | None] = field(default_factory=dict)
    settings_file: Path | None = None
    dry_run: bool = False
    build: bool = True
    start: bool = True
    take_over: bool = False
    interactive: bool = False
    greeting: str = ""  # the first line on screen


@dataclass(frozen=True)
class _Recipe:
    """What the image is made of and from."""

    base: BaseImage
    context: Context
    args: Mapping[str, str]


class Configure:
    """One run of configure-environment; `report` is true at every moment."""

    def __init__(
        self, machine: Machine, project: Project, options: Options, reporter: StepReporter
    ) -> None:
        self.machine, self.project, self.options = machine, project, options
        self.reporter = reporter
        self.report = Report()

    def run(self) -> Report:
        """All steps; an error ends the run and stands in the report, nothing is raised but Ctrl-C."""
        try:
            if self.options.greeting:
                self.reporter.note(self.options.greeting)
            settings = self._settings()  # a wrong one is refused before anything is made
            if self.options.dry_run:
                self._steps(settings)
            else:
                with self.project.lock():
                    self._steps(settings)
        except DshpcError as error:
            self.report.error = error
        except KeyboardInterrupt:
            self.report.error = DshpcError(
                "Interrupted.",
                "",
                ("Run again: what is done already is not done twice.",),
                Exit.INTERRUPTED,
            )
        self._fill()
        return self.report

    def _fill(self) -> None:
        done = {step.name for step in self.report.steps}
        for name in STEPS:
            if name not in done:
                self.report.steps.append(Step(name, "skipped", 0.0))

    def _settings(self) -> Settings:
        settings = self.project.settings(
            self.machine.env, self.options.flags, self.options.settings_file
        )
        stanza.work_folder(self.project.folder, settings)
        return settings

    @contextmanager
    def _step(self, name: StepName) -> Iterator[Callable[..., None]]:
        """Times a step; the body calls the yielded function with what it found."""
        state: dict[str, Any] = {"state": "ok", "detail": None}

        def say(detail: str, skipped: bool = False) -> None:
            state["detail"], state["state"] = detail, "skipped" if skipped else "ok"

        started = self.machine.clock()
        self.reporter.begin(name)
        try:
            yield say
        except BaseException as error:
            state["state"] = "failed"
            state["detail"] = str(error) if isinstance(error, DshpcError) else "interrupted"
            raise
        finally:
            ms = round((self.machine.clock() - started) * 1000, 1)
            step = Step(name, state["state"], ms, state["detail"])
            self.report.steps.append(step)
            self.reporter.end(step)

    def _steps(self, settings: Settings) -> None:
        if not self.options.dry_run:
            apply.finish_interrupted(self.project)
        facts = self._probe(settings)
        base = self._base(facts, settings)
        proof = self._passthrough(facts, settings, base)
        plan = self._plan(facts, settings, proof)
        recipe = self._recipe(facts, settings, base, plan)
        changes = self._render(facts, settings, recipe, plan, proof)
        if self.options.dry_run:
            return
        image = self._build(facts, settings, recipe, plan)
        started = self._start(facts, settings, image, changes)
        if started is not None:
            self._verify(settings, plan, started)

    # -- the steps ----------------------------------------------------------------------------

    def _probe(self, settings: Settings) -> HostFacts:
        with self._step("probe") as say:
            machine = self._looked_at(settings)
            facts = probes.gather(machine)
            self.report.simulated = facts.gpus.simulated
            if facts.engine.state != "present" or facts.engine.compose is None:
                if self.options.dry_run:
                    self.reporter.note(f"Docker: {facts.engine.detail or facts.engine.state}.")
                else:
                    ensure_engine(
                        self.machine, facts, self.reporter, interactive=self.options.interactive
                    )
                    facts = probes.gather(machine)
            say(describe_facts(facts))
            if not self.options.dry_run:
                self._refuse_others(settings)
            if (mapped := describe_mapping(facts.engine)) is not None:
                self.reporter.note(mapped)
            return facts

    def _looked_at(self, settings: Settings) -> Machine:
        if not settings.simulate:
            return self.machine
        from dshpc_setup.machine.simulated import SimulatedMachine

        return SimulatedMachine(self.machine, settings.simulate, devices_exist=True)

    def _refuse_others(self, settings: Settings) -> None:
        """A container of that name that is not this folder's is never touched unasked."""
        found = containers.inspect(self.machine, settings.container)
        if found is None:
            return
        owner = found.labels.get(stanza.PROJECT_LABEL)
        if owner is None:
            raise DshpcError(
                f"There is a container {settings.container} already, and it is not ours.",
                "It was not made by configure-environment, so it is left alone.",
                (
                    "Choose another name: --prefix NAME.",
                    f"Or remove it yourself: docker rm -f {settings.container}",
                ),
            )
        if owner != str(self.project.folder) and not self.options.take_over:
            raise DshpcError(
                f"The cluster {settings.prefix} belongs to another folder: {owner}.",
                f"Its container {settings.container} was made from there.",
                (
                    "Choose another name here: --prefix NAME.",
                    "Or replace it by this folder's: --take-over (its jobs and users stay).",
                ),
            )

    def _base(self, facts: HostFacts, settings: Settings) -> BaseImage | None:
        with self._step("base") as say:
            if self.options.dry_run or not self.options.build:
                say("not needed for a dry run" if self.options.dry_run else "--no-build", True)
                return None
            base = ensure_base(
                self.machine, facts, settings, self.reporter, interactive=self.options.interactive
            )
            origins = {"local": "here already", "pulled": "pulled", "debootstrap": "made here"}
            say(f"{base.ref}, {origins[base.origin]}")
            return base

    def _passthrough(
        self, facts: HostFacts, settings: Settings, base: BaseImage | None
    ) -> Passthrough:
        with self._step("passthrough") as say:
            plan = plan_cluster(facts, settings)
            untested = passthrough.without_test(plan, self._simulated_files(settings))
            if untested is not None:
                say(untested.reason, True)
                self._need_gpu(settings, untested)
                return untested
            whole = not settings.devices
            kept = Passthrough.from_json(self.project.read_json(PROOF))
            if kept and kept.works and kept.key == passthrough.proof_key(facts, plan, whole):
                say(f"{kept.reason} Kept from an earlier run.")
                return kept
            if base is None:
                reason = "Not tested: that needs the base image, which this run leaves out."
                say(reason, True)
                return passthrough.first_candidate(self.machine, facts, plan, whole, reason)
            proof = passthrough.prove(self.machine, facts, plan, base.ref, whole)
            say(proof.reason)
            self._need_gpu(settings, proof)
            self.project.write_json(PROOF, proof.to_json())
            return proof

    def _simulated_files(self, settings: Settings) -> tuple[str, ...]:
        if not settings.simulate:
            return ()
        from dshpc_setup.machine.simulated import device_files, parse_profile

        return device_files(parse_profile(settings.simulate))

    def _need_gpu(self, settings: Settings, proof: Passthrough) -> None:
        if proof.works:
            return
        if settings.gpu in ("nvidia", "amd", "intel"):
            raise DshpcError(
                f"You asked for {settings.gpu} GPUs, but none can be used here.",
                "\n".join(proof.failures) or proof.reason,
                ("Mend that and run again.", "Or go on without a GPU: --gpu none."),
            )
        self.reporter.note(f"CPU only: {proof.reason}")

    def _plan(self, facts: HostFacts, settings: Settings, proof: Passthrough) -> ClusterPlan:
        with self._step("plan") as say:
            plan = plan_cluster(facts, settings)
            if plan.gres and not proof.works:
                reason = f"Docker cannot hand over the GPUs: {proof.reason}"
                plan = plan_cluster(facts, replace(settings, gpu="none"))
                plan = replace(plan, left_out=(reason,))
            for reason in plan.left_out if plan.gres else ():
                self.reporter.note(f"Not used: {reason}")
            say(describe_plan(plan))
            return plan

    def _recipe(
        self, facts: HostFacts, settings: Settings, base: BaseImage | None, plan: ClusterPlan
    ) -> _Recipe | None:
        """How the image is made; None where no base image is there and none is to be made."""
        if base is None:
            base = find_base(self.machine, facts, settings)
        if base is None:
            return None
        builder = choose_builder(self.machine, facts)
        site = gather_site(self.machine)
        folder = self.project.own / "build"
        if self.options.dry_run:
            with tempfile.TemporaryDirectory() as scratch:
                context = write_context(
                    Path(scratch) / "build", buildkit=builder != "classic", site=site
                )
            context = replace(context, folder=folder)
        else:
            context = write_context(folder, buildkit=builder != "classic", site=site)
            self.project.give_to_owner(folder, context.secrets_folder)
        args = build_args(self.machine, facts, settings, base, plan.gpu_type)
        return _Recipe(base, context, args)

    def _render(
        self,
        facts: HostFacts,
        settings: Settings,
        recipe: _Recipe | None,
        plan: ClusterPlan,
        proof: Passthrough,
    ) -> tuple[apply.Change, ...]:
        with self._step("render") as say:
            compose = facts.engine.compose
            # compose v1 refuses build.secrets: there the file only runs the image that was built
            with_build = recipe is not None and (compose is None or compose.major >= 2)
            build = (
                compose_build(recipe.context, recipe.base, recipe.args, self.project.folder)
                if recipe is not None and with_build
                else None
            )
            text = stanza.compose_text(
                self.project.folder,
                settings,
                facts,
                plan,
                proof,
                stanza.image_tag(settings, plan.gpu_type),
                build,
            )
            texts = render_slurm(plan)
            wanted = {f"config/{name}": apply.Wanted(texts[name]) for name in CONFIG_FILES}
            wanted["docker-compose.yml"] = apply.Wanted(text)
            wanted[".env"] = apply.Wanted(render_env(settings.prefix), 0o600)
            changes = apply.compare(self.project, wanted)
            if self.options.dry_run:
                changes = self.report.changes = apply.planned(changes)
            else:
                self._write(settings, changes)
            say(describe_changes(changes))
            return changes

    def _write(self, settings: Settings, changes: tuple[apply.Change, ...]) -> None:
        work = stanza.work_folder(self.project.folder, settings)
        make_folder(work, self.project.owner)
        apply.write(self.project, changes)
        self.report.changes = changes
        former = self.project.runtime().get("container")
        if former not in (None, settings.container):
            self.reporter.note(
                f"The former cluster's container {former} is left as it is: docker rm -f {former}"
            )
        self.project.remember(self.options.flags)
        runtime = {
            "container": settings.container,
            "prefix": settings.prefix,
            "work": str(work),
            "docker": "docker",
        }
        self.project.write_json(f"{OWN}/runtime.json", runtime)

    def _build(
        self, facts: HostFacts, settings: Settings, recipe: _Recipe | None, plan: ClusterPlan
    ) -> str:
        """The id of the image to run."""
        with self._step("build") as say:
            tag = stanza.image_tag(settings, plan.gpu_type)
            if not self.options.build or recipe is None:
                found = containers.image_id(self.machine, tag)
                if found is None and self.options.start:
                    raise DshpcError(
                        f"There is no image {tag} yet, and --no-build leaves out making it.",
                        "",
                        ("Run again without --no-build.",),
                    )
                say("--no-build", True)
                return found or ""
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
            size = f"{result.size / 1e6:.0f} MB"
            say(f"{tag}, {size}" if result.built else f"{tag}, {size}, here already")
            return result.id

    def _start(
        self,
        facts: HostFacts,
        settings: Settings,
        image: str,
        changes: tuple[apply.Change, ...],
    ) -> bool | None:
        """Whether the container was started now; None where it is not to be."""
        with self._step("start") as say:
            if not self.options.start:
                say("--no-start", True)
                return None
            found = containers.inspect(self.machine, settings.container)
            if found and found.labels.get(stanza.PROJECT_LABEL) != str(self.project.folder):
                containers.remove(self.machine, settings.container)  # --take-over asked for it
                found = None
            if found and found.running and self._is_current(found, image, changes):
                say("running already")
                return False
            self._up(facts, settings)
            now = containers.inspect(self.machine, settings.container)
            if found and found.running and now and now.id == found.id:
                # the same container: compose saw no change, but what config/ holds has changed
                containers.restart(self.machine, settings.container)
            say("started")
            return True

    def _up(self, facts: HostFacts, settings: Settings) -> None:
        compose = facts.engine.compose
        if compose is None:
            raise DshpcError("Docker Compose is not installed.", "", ("Install docker-compose.",))
        compose_tool.up(
            self.machine,
            compose,
            self.project.folder,
            settings.prefix,
            on_line=self.reporter.progress,
        )

    def _is_current(
        self, found: containers.Container, image: str, changes: tuple[apply.Change, ...]
    ) -> bool:
        """Whether a start would change nothing: same image, same compose file, same own files."""
        if found.image_id != image or found.health == "unhealthy":
            return False
        own = {}
        for item in changes:
            if item.path == "docker-compose.yml":
                if item.action in ("kept-custom", "kept-edited"):
                    return False  # compose itself knows best what has changed in it
                if found.labels.get(stanza.RENDERED_LABEL) != stanza.rendered_label(
                    item.wanted.text
                ):
                    return False
            elif item.action in ("kept-custom", "kept-edited"):
                own[item.path.removeprefix("config/")] = ownership.digest(item.old or "")
        return verify.own_files(self.machine, found.name) == own

    def _verify(self, settings: Settings, plan: ClusterPlan, started: bool) -> None:
        with self._step("verify") as say:
            self.reporter.progress("waiting for Slurm")
            verify.wait_ready(self.machine, settings.container)
            said = "ready"
            if started:
                said = verify.run_first_job(self.machine, settings.container, bool(plan.gres))
            self.report.cluster = verify.ask_cluster(self.machine, settings.container)
            nodes = ", ".join(
                f"{node.name} {node.state} {node.gres or 'no GPU'}"
                for node in self.report.cluster.nodes
            )
            say(f"{said}; {nodes}")
            if not self.report.cluster.ready:
                raise DshpcError(
                    f"Slurm runs, but its node is not ready for jobs: {nodes}.",
                    "",
                    (
                        "See why: dshpc scontrol show node",
                        f"Look at the log: docker logs {settings.container}",
                    ),
                )
