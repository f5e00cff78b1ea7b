"""`dshpc method run` against the plain sbatch call that it makes, and 1,000 sets as one array.

    python benchmarks/method_run.py [--dir PROJECT] [--method NAME]

The project is the folder where configure-environment ran, with its cluster running. At the end the jobs
are cancelled and their workspaces removed; other jobs go on.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from side_by_side import limited, parser, program, project_at, said

MOST_MORE_S = 0.35
MOST_ARRAY_S = 3.0
SETS = 1000
GONE_S = 60.0


@dataclass
class Submissions:
    """Timed, and taken back by `close`."""

    work: Path
    env: dict[str, str]
    jobs: set[str] = field(default_factory=set)
    workspaces: set[Path] = field(default_factory=set)

    def run(self, *words: str) -> float:
        """Seconds of a `dshpc method run`."""
        began = time.perf_counter()
        told = self.asked(*words)
        took = time.perf_counter() - began
        self.jobs.add(told["job_id"])
        self.workspaces.add(Path(told["workspace"]))
        return took

    def asked(self, *words: str) -> dict[str, str]:
        found: dict[str, str] = json.loads(self._dshpc("method", "run", *words, "--json"))
        return found

    def plain(self, call: list[str]) -> float:
        """Seconds of an sbatch call; --parsable is in it."""
        began = time.perf_counter()
        job = self._dshpc(*call, "--wrap", "true")
        took = time.perf_counter() - began
        self.jobs.add(job.strip().partition(";")[0])
        return took

    def close(self) -> None:
        if self.jobs:
            self._dshpc("scancel", *self.jobs)
        until = time.monotonic() + GONE_S
        while self.jobs & set(self._dshpc("squeue", "-h", "-o", "%A").split()):
            if time.monotonic() > until:
                sys.exit(f"cancelled jobs are still in the queue after {GONE_S:.0f} s")
            time.sleep(0.2)
        for workspace in self.workspaces:
            shutil.rmtree(workspace)

    def _dshpc(self, *words: str) -> str:
        return said([program(), *words], self.work, self.env)


def main() -> int:
    asked = parser(__doc__, 15, project=True)
    asked.add_argument("--method", default="vector-add", metavar="NAME", help="takes no parameter")
    options = asked.parse_args()
    project = project_at(options.dir)
    work = Path(project.runtime()["work"])
    ours = Submissions(work, {**os.environ, "DSHPC_DIR": str(project.folder)})
    call = ours.asked(options.method, "--dry-run")["sbatch"]
    # The same call, of a folder that is there
    places = {"--chdir": f"--chdir={work}", "--output": "--output=/dev/null"}
    call_words = [places.get(word.partition("=")[0], word) for word in call]
    try:
        rounds = range(options.rounds + 1)
        pairs = [(ours.run(options.method), ours.plain(call_words)) for _ in rounds][1:]
        with tempfile.TemporaryDirectory() as folder:
            table = Path(folder, "sets.json")
            table.write_text(json.dumps([{}] * SETS))
            array_s = ours.run(options.method, "--array", str(table))
    finally:
        ours.close()
    run_s, plain_s = (statistics.median(side) for side in zip(*pairs, strict=True))
    print(f"dshpc method run: {run_s * 1000:.0f} ms against {plain_s * 1000:.0f} ms of its sbatch call,"
          f" median of {options.rounds}")  # fmt: skip
    beyond = limited(
        "method run, more than its sbatch call", run_s - plain_s, "s", most=MOST_MORE_S
    )
    return int(
        limited(f"{SETS} parameter sets as one array", array_s, "s", most=MOST_ARRAY_S) | beyond
    )


if __name__ == "__main__":
    sys.exit(main())
