"""`dshpc node add`: look, carry the program, prove, carry the image, join, and a job from here."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from dshpc_setup.adding import connection, image, program, scripts
from dshpc_setup.adding import host as hosts
from dshpc_setup.adding.connection import Connection
from dshpc_setup.adding.host import Host
from dshpc_setup.adding.look import CARRIED, Found, look, refuse
from dshpc_setup.cluster import added, nodes, targets, verify, worker_changes
from dshpc_setup.engine_client import BUILTIN, PODMAN
from dshpc_setup.errors import DshpcError, Exit, Fix, usage_error
from dshpc_setup.files import atomic
from dshpc_setup.join import client, giving
from dshpc_setup.join.token import Token
from dshpc_setup.machine import Machine
from dshpc_setup.project.folder import Project
from dshpc_setup.slurm.client import Slurm
from dshpc_setup.terminal.reporter import Reporter
from dshpc_setup.terminal.sanitize import plain

DOCKER = "docker"
_TTL = "1h"
_JOIN_S = 3600.0
_END_S = 300.0
_ASK_S = 20.0
_OURS = ("--join", "--dir", "--json", "--yes", "--image-file", "--dry-run", "--diff", "--no-start")


@dataclass(frozen=True)
class Wanted:
    """`node`: its name, "" for its host's; `words`: for configure-environment there; `interactive`: somebody
    can be asked for a password."""

    host: Host
    node: str = ""
    words: tuple[str, ...] = ()
    interactive: bool = False


@dataclass(frozen=True)
class Added:
    node: str
    gres: str
    state: str
    proof: str

    def lines(self, host: Host) -> list[str]:
        return [
            f"Added: {self.node}, {self.state}, {self.gres or 'no GPU'}: {self.proof}.",
            f"Its program and its log are there: cd {host.shown_folder} && ./dshpc logs",
        ]


def usual_folder(project: Project) -> str:
    """Below the home there, one for each cluster."""
    return f"dshpc-{targets.target(project).prefix}"


def refuse_words(words: tuple[str, ...]) -> None:
    """Raises DshpcError (usage) for what the command itself says, and for what cannot be carried."""
    for word in words:
        if word.partition("=")[0] in _OURS or word == "-y":
            raise usage_error(f"{word}: dshpc node add says that itself.", "", "Leave it out.")
        if not word or not word.isprintable():
            raise usage_error("An option for the other machine is empty, or no line of text.")


def add(machine: Machine, project: Project, wanted: Wanted, reporter: Reporter) -> Added:
    """The machine is a node, and a job has run there; raises DshpcError, and it is as it was."""
    refuse_words(wanted.words)
    token = giving.give(machine, project, _TTL, once=True).token
    try:
        reporter.progress(f"connecting to {wanted.host.name}")
        with connection.opened(machine, wanted.host, interactive=wanted.interactive) as there:
            found = look(there)
            reporter.note(f"{wanted.host.short}: {found.words()}")
            refuse(found, wanted.host)
            chosen = image.choose(machine, project, found)
            run = _Run(machine, project, wanted, reporter, there, found, token, chosen)
            run.tell()
            with run.taken_back():
                run.carry_program()
                run.prove()
                run.carry_image()
                run.join()
            image.keep_note(there, chosen)
        host = wanted.host
        added.remember(project, run.node, added.Way(host.name, host.folder, host.port))
        return _proven(machine, project, run.node)
    finally:
        giving.take_back(project, token.id)


def again(
    machine: Machine,
    project: Project,
    reporter: Reporter,
    only: Collection[str] | None = None,
    *,
    interactive: bool,
) -> Mapping[str, Added | DshpcError]:
    """Nodes that were added from here join again, one after the other, by the way that they were added; by
    node, what became of it. `only`: of these nodes, those that were."""
    done: dict[str, Added | DshpcError] = {}
    for node, way in added.read(project).items():
        if only is not None and node not in only:
            continue
        try:
            host = hosts.read(way.host, way.folder, way.port)
            done[node] = add(machine, project, Wanted(host, node, (), interactive), reporter)
        except DshpcError as error:
            done[node] = error
    return done


@dataclass(frozen=True)
class _Run:
    machine: Machine
    project: Project
    wanted: Wanted
    reporter: Reporter
    there: Connection
    found: Found
    token: Token
    chosen: image.Carried

    @property
    def node(self) -> str:
        return self.wanted.node or self.found["node"] or client.node_name(self.found["host"])

    @property
    def engine(self) -> str:
        """There: what is named, or what its node has; else the one of here, where this user may use it."""
        if named := _value(self.wanted.words, "--engine"):
            return named
        if self.found["joined"]:
            return self.found["engine"] or DOCKER
        here = str(self.project.runtime().get("engine") or DOCKER)
        if here == BUILTIN or self.found.is_root or self.found[here]:
            return here
        return next((each for each in (DOCKER, PODMAN) if self.found[each]), BUILTIN)

    def tell(self) -> None:
        """What will be done about engine and image, before anything goes there."""
        here = str(self.project.runtime().get("engine") or DOCKER)
        if self.engine != here and not self.found["joined"]:
            self._say(f"the engine there is {self.engine}; here it is {here}")
        if not self.chosen.id:
            self._say(self.chosen.why)

    def carry_program(self) -> None:
        """The launchers make the Python environment there at their first start."""
        arch = self.machine.system[2]
        packages = program.fits(self.found, arch)
        file = self.there.folder / "program.tar.gz"
        try:
            digest = program.pack(file, packages=packages, arch=arch)
            size = file.stat().st_size
            if self.found["program"] == digest:
                self._say(f"the program is there already, in {self.wanted.host.shown_folder}")
                return
            self.reporter.progress(f"carrying the program: {size / 1e6:.0f} MB")
            image.send(self.there, file, scripts.unpack(self.wanted.host.shell_folder))
        except OSError as error:
            raise atomic.write_error(error, file) from None
        finally:
            file.unlink(missing_ok=True)
        whence = "" if packages else "; Python packages come from its package index"
        self._say(
            f"the program is carried to {self.wanted.host.shown_folder}, {size / 1e6:.0f} MB{whence}"
        )

    def prove(self) -> None:
        """All that a join tries before it writes anything, before the image goes there."""
        kept: list[str] = []
        code = self._configure(("--dry-run",), kept.append)
        if code != 0:
            for line in kept:
                self._say(line)
            raise self._failed(code)

    def carry_image(self) -> None:
        if self.chosen.id:
            size = image.carry(self.machine, self.project, self.there, self.reporter)
            self._say(f"{self.chosen.why}, {size / 1e6:.0f} MB")

    def join(self) -> None:
        code = self._configure(self.chosen.words, self._say)
        if code != 0:
            raise self._failed(code)

    def _configure(self, words: tuple[str, ...], on_line: Callable[[str], None]) -> int | None:
        known = self.found["joined"] or _value(self.wanted.words, "--engine")
        engine = () if known else ("--engine", self.engine)
        line = (
            "--yes",
            "--json",
            "--dir",
            ".",
            "--join",
            self.token.text(),
            "--node-name",
            self.node,
        )
        fate = "new" if self.found.is_new else "kept"
        return self.there.run_watched(
            f"sh {self.wanted.host.shell_folder}/{CARRIED}/join {fate}",
            (*line, *engine, *words, *self.wanted.words),
            deadline_s=_JOIN_S,
            on_line=on_line,
        ).code

    def _say(self, line: str) -> None:
        self.reporter.note(f"{self.wanted.host.short}: {plain(line)}")

    def _failed(self, code: int | None) -> DshpcError:
        host, steps = self.wanted.host, list[str | Fix]()
        if not self.found.is_root and self.engine != BUILTIN:
            steps.append(
                Fix(
                    "Where it wants root: this user has no sudo there without a password. Come as root, or "
                    "take the engine that needs none",
                    f"dshpc node add {host.name} -- --engine builtin",
                )
            )
        gone = " Nothing of it is left there." if self.found.is_new else ""
        if code is None:
            return DshpcError(
                f"{host.name} did not become a node within {_JOIN_S / 60:.0f} minutes.",
                gone.strip(),
                ("See what keeps it, then run this again.",),
                Exit.INCOMPLETE,
            )
        return DshpcError(
            f"{host.name} did not become a node.",
            f"What it says stands above.{gone}",
            (*steps, "Do what it says, then run this again."),
            Exit.INCOMPLETE if code == Exit.INCOMPLETE else Exit.ERROR,
        )

    @contextlib.contextmanager
    def taken_back(self) -> Iterator[None]:
        """Where the block does not come to its end, nor does what it began there."""
        try:
            yield
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                self.reporter.note(f"Ending it on {self.wanted.host.name} ...")
            self._take_back()
            raise

    def _take_back(self) -> None:
        command = scripts.ended(self.wanted.host.shell_folder, remove=self.found.is_new)
        with contextlib.suppress(DshpcError):  # lost: the other side sees to it by itself
            done = self.there.run(command, deadline_s=_END_S)
            if not done.ok:
                self.reporter.note(
                    f"Left on {self.wanted.host.name}: {self.wanted.host.shown_folder}. To remove it, there: "
                    f"cd {self.wanted.host.shown_folder} && ./dshpc destroy"
                )
        self._forget_half_joined()

    def _forget_half_joined(self) -> None:
        """It has had the key, so the name was free: Slurm may know the node already."""
        if not (self.found.is_new and giving.was_used(self.project, self.token.id)):
            return
        container = targets.target(self.project).container
        slurm = Slurm(self.machine, container, checked=True)
        if slurm.node(self.node, deadline_s=_ASK_S) is not None:
            worker_changes.forget(self.machine, container, self.node)


def _value(words: tuple[str, ...], flag: str) -> str | None:
    """What stands behind a flag, as `--flag VALUE` or `--flag=VALUE`."""
    for place, word in enumerate(words):
        if word == flag and place + 1 < len(words):
            return words[place + 1]
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
    return None


def _proven(machine: Machine, project: Project, node: str) -> Added:
    """A job from here, by the network that all others will take."""
    found = nodes.look(machine, project).named(node)
    container = targets.target(project).container
    proof = verify.run_first_job(machine, container, bool(found.gres), node)
    return Added(node, found.gres or "", found.state, proof)
