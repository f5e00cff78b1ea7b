"""What the Tab key waits for: commands, names of things, and jobs where the engine never answers.

python benchmarks/completion.py
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from side_by_side import arguments, limited, program

ASKED = {
    "commands and options": (["job", ""], 0.3),
    "ids of findings": (["explain", "DSH-"], 0.3),
    "jobs, where the engine never answers": (["scancel", ""], 0.5),
}
"""What is typed, and the most seconds that it may take."""


def answered(words: list[str], folder: Path, engine: str) -> tuple[float, bool]:
    """Seconds, and whether anything was offered."""
    began = time.perf_counter()
    done = subprocess.run(
        [program(), "__complete", "--", *words],
        cwd=folder,
        env={**os.environ, "DOCKER_HOST": engine},
        capture_output=True,
        check=False,
        timeout=60,
    )
    return time.perf_counter() - began, bool(done.stdout)


def main() -> int:
    asked = arguments(__doc__, 20)
    beyond = False
    with tempfile.TemporaryDirectory() as text, socket.socket(socket.AF_UNIX) as silent:
        folder = Path(text)
        silent.bind(f"{text}/engine.sock")
        silent.listen(100)
        (folder / ".dshpc").mkdir()
        runtime = {"container": "none-slurm", "work": text, "prefix": "none"}
        (folder / ".dshpc/runtime.json").write_text(json.dumps(runtime))
        for what, (words, most) in ASKED.items():
            rounds = [
                answered(words, folder, f"unix://{text}/engine.sock")
                for _ in range(asked.rounds + 1)
            ]
            if any(offered != (words[0] != "scancel") for _, offered in rounds):
                sys.exit(f"{what}: not what is there was offered")
            took = median(seconds for seconds, _ in rounds[1:])
            beyond |= limited(f"completion of {what}", took, "s", most=most)
    return int(beyond)


if __name__ == "__main__":
    sys.exit(main())
