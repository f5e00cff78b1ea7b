"""`dshpc doctor` against `dshpc detect` and what engine and Slurm take; its end where docker hangs.

    python benchmarks/doctor.py [--dir PROJECT]

The limit is read as (doctor - answers) / detect <= 1.5, the median over rounds that take all three in
turn. `answers` is what doctor's own questions to engine, container and Slurm take by themselves, the
same commands side by side as doctor has them; what `dshpc-node` computes in the container is part
of its answer. So what doctor's own work slows down in them counts against doctor.

With the cluster of a project; or without one, and then only the engine answers.
On a machine that is busy with other things the three are not alike: see its load.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from side_by_side import limited, parser, program, project_at, timed

sys.path.insert(0, str(Path(__file__).parents[1]))
from dshpc_setup.checkup import DEADLINE_S, cluster
from dshpc_setup.machine import CommandResult, Ended, Say, workers
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.project.folder import Project
from tests.integration.stuck import STUB

MOST = 1.5
MOST_LATE_S = 2.0

Chains = Mapping[str, Sequence[Sequence[str]]]


class Noting(LocalMachine):
    """Notes which commands doctor runs about the cluster, by the question that they are for."""

    def __init__(self) -> None:
        super().__init__()
        self.chains: dict[str, list[Sequence[str]]] = {"": []}
        self._question = ""

    def run(self, argv: Sequence[str], **more: Any) -> CommandResult:
        self.chains[self._question].append(tuple(argv))
        return super().run(argv, **more)

    def apart(
        self,
        questions: Mapping[str, Callable[[Say], None]],
        *,
        deadline_s: float,
        meanwhile: Callable[[], object] | None = None,
        on_item: Callable[[Any], object] | None = None,
    ) -> Mapping[str, Ended]:
        del deadline_s
        found: dict[str, Ended] = {}
        for name, question in questions.items():
            self._question = name
            self.chains[name] = []
            found |= workers.in_place({name: question}, meanwhile)
        self._question = ""
        return found


def asked_of(project: Project) -> Chains:
    """The commands that doctor asks engine and Slurm; "" before the others, which run side by side."""
    machine = Noting()
    seen = cluster.look(machine, project, DEADLINE_S)
    if seen.cluster is None or seen.inside is None:
        raise SystemExit(f"The cluster of {project.folder} does not answer: {seen.inside_problem}")
    return machine.chains


def answers_s(chains: Chains) -> float:
    """How long the commands take by themselves, one after the other where doctor has them so."""

    def ask(name: str) -> None:
        for argv in chains[name]:
            timed(argv)

    threads = [threading.Thread(target=ask, args=(name,)) for name in chains if name]
    began = time.perf_counter()
    ask("")
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began


def engine_s() -> float:
    """How long the engine takes for what detect and doctor ask it: its version, its info."""
    began = time.perf_counter()
    LocalMachine().docker(10)
    return time.perf_counter() - began


def compare(project: Project | None, rounds: int) -> bool:
    """Whether doctor is over its limit: the median over the rounds, each with all three in turn."""
    where = ["--dir", str(project.folder)] if project else []
    chains = asked_of(project) if project else {}
    found = []
    for _ in range(rounds + 1):
        detect = timed([program(), "detect", "--json"])
        answers = answers_s(chains) if chains else engine_s()
        found.append((detect, answers, timed([program(), "doctor", "--json", *where])))
    # the first round fills the caches
    detect, answers, doctor = map(statistics.median, zip(*found[1:], strict=True))
    ratio = statistics.median((whole - asked) / least for least, asked, whole in found[1:])
    title = f"dshpc doctor{' with a cluster' if chains else ''}"
    print(
        f"{title}: {doctor * 1000:.0f} ms against "
        f"{detect * 1000:.0f} ms of detect, {answers * 1000:.0f} ms of the engine"
        f"{' and Slurm' if chains else ''}, "
        f"median of {rounds}"
    )
    return limited(f"{title}, ratio, less what these answer in", ratio, most=MOST)


def late(title: str, project: Path, env: Mapping[str, str]) -> bool:
    """Whether it ends too late; ends the benchmark where it does not say what hangs, or not the rest."""
    began = time.perf_counter()
    done = subprocess.run(
        [program(), "doctor", "--json", "--dir", str(project)],
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    took = time.perf_counter() - began
    report = json.loads(done.stdout)
    states = {(item["section"], item["state"]) for item in report["findings"]}
    complete = report["summary"]["crashed"] == 0 and ("host", "ok") in states
    complete &= any("did not answer" in line or "no answer" in line for line in words(report))
    if not complete:
        sys.exit(f"{title} hangs: doctor does not say so, or findings are missing")
    what = f"doctor, {title} hangs: after its deadline of {DEADLINE_S:g} s"
    return limited(what, took - DEADLINE_S, "s", most=MOST_LATE_S)


def words(report: Mapping[str, object]) -> list[str]:
    """All sentences of a report."""
    return json.dumps(report, indent=0).splitlines()


def hanging(folder: Path) -> list[bool]:
    """A docker that never answers and ignores signals, then an engine beside it that is silent too."""
    tools, project = folder / "tools", folder / "project"
    tools.mkdir()
    (tools / "docker").write_text(STUB)
    (tools / "docker").chmod(0o755)
    (project / ".dshpc").mkdir(parents=True)
    cluster_of = {"container": "bench-slurm", "prefix": "bench", "work": str(project)}
    (project / ".dshpc" / "runtime.json").write_text(json.dumps(cluster_of))
    pids = folder / "stub-pids"
    env = {"PATH": f"{tools}:{os.environ['PATH']}", "STUB_PIDS": str(pids)}
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(folder / "docker.sock"))
            listener.listen()
            silent = {**env, "DOCKER_HOST": f"unix://{folder}/docker.sock"}
            return [
                late("the command docker", project, env),
                late("the engine, and the command docker,", project, silent),
            ]
    finally:
        for pid in pids.read_text().split() if pids.exists() else ():  # should any be left
            subprocess.run(["kill", "-9", pid], stderr=subprocess.DEVNULL, check=False)


def main() -> int:
    asked = parser(__doc__, 20)
    asked.add_argument("--dir", type=Path, metavar="PROJECT")
    options = asked.parse_args()
    project = project_at(options.dir) if options.dir else None
    os.chdir("/")  # else doctor finds the cluster of the folder that we stand in
    worse = [compare(project, options.rounds)]
    with tempfile.TemporaryDirectory() as text:
        worse += hanging(Path(text))
    return int(any(worse))


if __name__ == "__main__":
    sys.exit(main())
