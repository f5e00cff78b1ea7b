"""The only composer: from a machine and settings to a running cluster, step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dshpc_setup import apply, passthrough, probes, stanza, verify
from dshpc_setup.cluster.owner import former_owner, refuse_others
from dshpc_setup.cluster.start import ensure_running
from dshpc_setup.describe import (
    describe_attempt,
    describe_cause,
    describe_changes,
    describe_facts,
    describe_fix,
    describe_mapping,
    describe_missing,
    describe_plan,
    describe_proof,
)
from dshpc_setup.engine import compose
from dshpc_setup.engine.install import ensure_engine
from dshpc_setup.engine.privilege import caller
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.facts import HostFacts
from dshpc_setup.files import make_folder
from dshpc_setup.image.base import BaseImage, ensure_base, find_base
from dshpc_setup.image.build import build
from dshpc_setup.image.client import inspect
from dshpc_setup.image.recipe import Recipe, make_recipe
from dshpc_setup.machine import Machine
from dshpc_setup.machine.overlay import simulated_device_files, with_simulated_gpus
from dshpc_setup.passthrough import Bench, Passthrough
from dshpc_setup.plan import ClusterPlan, plan_cluster
from dshpc_setup.project import PROOF, REMEMBERED, RUNTIME, Project, json_text
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
    env: Mapping[str, str] | None = None  # where settings may stand; None: the machine's own
    replayed: str | None = None  # the folder of a recorded machine: nothing of it can be started


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
            if self.options.replayed is not None:
                self._note(
                    f"The machine recorded in {self.options.replayed} is replayed: "
                    "nothing is started or written."
                )
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
        env = self.machine.env if self.options.env is None else self.options.env
        settings = self.project.settings(env, self.options.flags, self.options.settings_file)
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
            state["detail"] = "interrupted" if isinstance(error, KeyboardInterrupt) else str(error)
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
        recipe, changes = self._render(facts, settings, base, plan, proof)
        if self.options.dry_run:
            return
        image = self._build(facts, settings, recipe, plan)
        started = self._start(facts, settings, image, changes)
        if started is not None:
            self._verify(settings, plan, changes, started)

    # -- the steps ----------------------------------------------------------------------------

    def _probe(self, settings: Settings) -> HostFacts:
        with self._step("probe") as say:
            machine = with_simulated_gpus(self.machine, settings.simulate)
            facts = probes.gather(machine)
            self.report.simulated = facts.gpus.simulated
            if facts.engine.state != "present" or facts.engine.compose is None:
                if self.options.dry_run:
                    self._note(f"{describe_missing(facts.engine)} A real run would see to it.")
                else:
                    ensure_engine(
                        self.machine, facts, self.reporter, interactive=self.options.interactive
                    )
                    facts = probes.gather(machine)
            say(describe_facts(facts))
            if facts.engine.state == "present" and self.options.replayed is None:
                refuse_others(
                    self.machine, self.project, settings, take_over=self.options.take_over
                )
            if (mapped := describe_mapping(facts.engine)) is not None:
                self._note(mapped)
            return facts

    def _base(self, facts: HostFacts, settings: Settings) -> BaseImage | None:
        with self._step("base") as say:
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

    def _passthrough(
        self, facts: HostFacts, settings: Settings, base: BaseImage | None
    ) -> Passthrough:
        with self._step("passthrough") as say:
            plan = plan_cluster(facts, settings)
            untested = passthrough.without_test(plan, simulated_device_files(settings.simulate))
            if untested is not None:
                say(untested.reason, True)
                self._need_gpu(settings, untested)
                return untested
            whole = not settings.devices
            kept = Passthrough.from_json(self.project.read_note(PROOF))
            key = passthrough.proof_key(facts, plan, whole)
            if kept and kept.works and (kept.key, kept.user) == (key, self._user()):
                say(f"{kept.reason} Kept from an earlier run.")
                return kept
            if base is None or self.options.dry_run:
                reason = "Not tested: this run starts no container of the base image."
                say(reason, True)
                return passthrough.untested(facts, plan, whole, reason)
            proof = passthrough.prove(self.machine, facts, plan, self._bench(base), whole=whole)
            say(describe_proof(proof))
            for warning in proof.warnings:
                self._note(describe_cause(warning))
            self.project.write_json(PROOF, proof.to_json())  # doctor shows a failed one as well
            self._need_gpu(settings, proof)
            return proof

    def _bench(self, base: BaseImage) -> Bench:
        return Bench(base.ref, self._user(), environment=base.environment)

    def _user(self) -> tuple[int, int]:
        """Whose jobs these will be."""
        who = caller(self.machine)
        return who.uid, who.gid

    def _need_gpu(self, settings: Settings, proof: Passthrough) -> None:
        if proof.works:
            return
        if settings.gpu in ("nvidia", "amd", "intel") or settings.devices:
            asked = settings.gpu if settings.gpu != "auto" else ", ".join(settings.devices)
            raise DshpcError(
                f"You asked for GPUs ({asked}), but none can be used here.",
                "\n".join(describe_attempt(row) for row in proof.attempts) or proof.reason,
                (*_fixes(proof), "Then run again.", "Or go on without a GPU: --gpu none."),
            )
        fixes = _fixes(proof)
        self._note("CPU only, until that is mended:" if fixes else f"CPU only: {proof.reason}")
        for number, fix in enumerate(fixes, 1):
            self._note(f"{number}. {fix}")
        if fixes:
            self._note(f"{len(fixes) + 1}. Then run this again.")

    def _plan(self, facts: HostFacts, settings: Settings, proof: Passthrough) -> ClusterPlan:
        with self._step("plan") as say:
            plan = plan_cluster(facts, settings)
            if plan.gres and not proof.works:
                plan = plan_cluster(facts, replace(settings, gpu="none"))
                plan = replace(plan, left_out=(describe_proof(proof),))
            for reason in plan.left_out if plan.gres else ():
                self._note(f"Not used: {reason}")
            say(describe_plan(plan))
            return plan

    def _render(
        self,
        facts: HostFacts,
        settings: Settings,
        base: BaseImage | None,
        plan: ClusterPlan,
        proof: Passthrough,
    ) -> tuple[Recipe | None, tuple[apply.Change, ...]]:
        with self._step("render") as say:
            recipe = (
                make_recipe(
                    self.machine,
                    facts,
                    settings,
                    self.project,
                    base,
                    plan.gpu_type,
                    dry_run=self.options.dry_run,
                )
                if base is not None
                else None
            )
            text = stanza.compose_text(
                self.project.folder,
                settings,
                facts,
                plan,
                proof,
                stanza.image_tag(settings, plan.gpu_type),
                recipe.for_compose(facts, self.project.folder) if recipe else None,
            )
            texts = render_slurm(plan)
            wanted = {f"config/{name}": apply.Wanted(texts[name]) for name in CONFIG_FILES}
            wanted[compose.FILE] = apply.Wanted(text)
            wanted[".env"] = apply.Wanted(render_env(settings.prefix), 0o600)
            changes = apply.compare(self.project, wanted)
            if self.options.dry_run:
                changes = self.report.changes = apply.planned(changes)
            else:
                self._let_compose_read(facts, changes)
                self._write(settings, changes)
            say(describe_changes(changes))
            return recipe, changes

    def _let_compose_read(self, facts: HostFacts, changes: tuple[apply.Change, ...]) -> None:
        """A text that is new is read by the compose tool itself before anything is written."""
        tool = facts.engine.compose
        new = [item for item in changes if item.path == compose.FILE and item.target is not None]
        if tool is None or not new or new[0].action == "unchanged":
            return
        folder = str(self.project.folder)
        said = compose.check(self.machine, tool, new[0].wanted.text, folder=folder)
        if said is not None:
            raise DshpcError(
                f"Compose {tool.version} refuses the {compose.FILE} that was rendered.",
                said,
                ("Nothing was written. Report this with the output of: dshpc detect --json",),
            )

    def _write(self, settings: Settings, changes: tuple[apply.Change, ...]) -> None:
        work = stanza.work_folder(self.project.folder, settings)
        make_folder(work, self.project.owner)
        before = self.project.runtime()
        former = before.get("container")
        if former not in (None, settings.container):
            self._note(f"The former cluster {former} is left as it is: docker rm -f {former}")
        runtime = {
            "container": settings.container,
            "prefix": settings.prefix,
            "work": str(work),
            "docker": "docker",
        }
        owner = former_owner(self.machine, settings) if self.options.take_over else None
        if owner := owner or before.get("volumes_of"):
            runtime["volumes_of"] = str(owner)
        notes = {RUNTIME: json_text(runtime)}
        if chosen := self.project.remembering(self.options.flags):
            notes[REMEMBERED] = json_text(chosen)
        apply.write(self.project, changes, notes)
        self.report.changes = changes

    def _build(
        self, facts: HostFacts, settings: Settings, recipe: Recipe | None, plan: ClusterPlan
    ) -> str:
        """The id of the image to run."""
        with self._step("build") as say:
            tag = stanza.image_tag(settings, plan.gpu_type)
            if not self.options.build or recipe is None:
                found = inspect(self.machine, tag)
                if found is None and self.options.start:
                    raise DshpcError(
                        f"There is no image {tag} yet, and --no-build leaves out making it.",
                        "",
                        ("Run again without --no-build.",),
                    )
                say("--no-build", True)
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
            compose = facts.engine.compose
            if compose is None:
                raise DshpcError(
                    "Docker Compose is not installed.", "", ("Install docker-compose.",)
                )
            started = ensure_running(
                self.machine, self.project, settings, compose, image, changes, self.reporter
            )
            say("started" if started else "running already")
            return started

    def _verify(
        self,
        settings: Settings,
        plan: ClusterPlan,
        changes: tuple[apply.Change, ...],
        started: bool,
    ) -> None:
        with self._step("verify") as say:
            self.reporter.progress("waiting for Slurm")
            told = verify.wait_ready(self.machine, settings.container)
            verify.refuse_last_good(told)
            for note in told.get("notes", ()):
                self._note(str(note))
            cluster = self.report.cluster = verify.ask_cluster(self.machine, settings.container)
            own = any(item.action in ("kept-custom", "kept-edited") for item in changes)
            verify.judge_nodes(cluster, plan.gres_text, settings.container, own_files=own)
            has_gpu = any(node.gres for node in cluster.nodes)
            said = "ready"
            if started:
                said = verify.run_first_job(self.machine, settings.container, has_gpu)
            say(f"{said}; {cluster.describe()}")

    def _note(self, text: str) -> None:
        """Said on screen and kept in the report."""
        self.report.notes.append(text)
        self.reporter.note(text)


def _fixes(proof: Passthrough) -> tuple[str, ...]:
    """What mends the mechanism that would be taken, a step each."""
    first = proof.to_mend
    return tuple(describe_fix(fix) for fix in first.fix) if first is not None else ()
