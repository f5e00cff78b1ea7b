"""An environment of a job: what its first use takes, and what each later one adds to a submission.

    python benchmarks/env.py [--dir PROJECT]

The project is the folder where configure-environment ran, or one below it, with its cluster running. The
first use is timed with the cache of uv as it is: the rest comes over the network. Jobs of `true` are
submitted with and without an environment, in turns.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from statistics import median

from side_by_side import arguments, limited, program, project_at, timed

from dshpc_setup.jobs import environments
from dshpc_setup.jobs.staging import Incoming

MOST_FIRST_S = 5.0
MOST_LATER_S = 0.05


def main() -> int:
    options = arguments(__doc__, 10, project=True)
    project = project_at(options.dir)
    work = str(project.runtime()["work"])
    with tempfile.TemporaryDirectory() as folder:
        # One that nobody has yet
        text = f"numpy==2.4.1  # {os.urandom(8).hex()}\n"
        Path(folder, "requirements.txt").write_text(text)
        plain = [program(), "run", "--dir", str(project.folder)]
        within = [*plain, "--env", folder]
        try:
            before = os.times()
            first = timed([*within, "--wait", "--", "python3", "-c", "import numpy"])
            after = os.times()
            pairs = [
                (timed([*within, "--json", "--", "true"]), timed([*plain, "--json", "--", "true"]))
                for _ in range(options.rounds)
            ]
        finally:
            made = environments.ready(folder, Incoming(work, dry=True))
            shutil.rmtree(made, ignore_errors=True)
    more = median(with_one - without for with_one, without in pairs)
    print(f"a submission within an environment: {more * 1000:.0f} ms more, median of {len(pairs)}")
    cpu_s = sum(after[2:4]) - sum(before[2:4])
    print(f"the first use of numpy: {cpu_s:.2f} s of a CPU for the command with uv")
    beyond = limited("the first use of numpy", first, "s", most=MOST_FIRST_S)
    return int(limited("a later use, more than without", more, "s", most=MOST_LATER_S) or beyond)


if __name__ == "__main__":
    sys.exit(main())
