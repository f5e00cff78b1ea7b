"""Validating 1,000 method files, as `dshpc method validate --all` does.

python benchmarks/validate.py
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from side_by_side import arguments, limited, program, said

METHODS = 1000
MOST_S = 2.0


def declared(number: int) -> str:
    """A method file of the usual size: five parameters, ten resources."""
    value = {
        "name": f"method-{number}",
        "description": "Trains a model on a table and writes its weights.",
        "version": "1.0",
        "command": "python3 -u",
        "script_path": "main.py",
        "input_modes": ["single_file"],
        "parameters": [
            {
                "name": f"parameter_{index}",
                "type": "number",
                "description": "One of the numbers that it takes.",
                "default": index / 10,
                "allowed_values": [index / 10, 1, 2, 3],
            }
            for index in range(5)
        ],
        "resources": {
            "cpus": 4,
            "min_memory_mb": 8192,
            "memory_mb": 16384,
            "time_limit": "1-12:00:00",
            "gpus": 1,
            "gpu_memory_mb": 40000,
            "min_compute_capability": "8.0",
            "cuda": "12.4",
            "exclusive": False,
            "env": {"OMP_NUM_THREADS": "4"},
        },
        "requires": [f"method-{number - 1}"] if number % 10 else [],
    }
    return json.dumps(value, indent=2)


def main() -> int:
    asked = arguments(__doc__, 3)
    took = []
    with tempfile.TemporaryDirectory() as text:
        top = Path(text) / "methods"
        for number in range(METHODS):
            folder = top / f"method-{number}"
            folder.mkdir(parents=True)
            (folder / "method.json").write_text(declared(number))
            (folder / "main.py").touch()
        for _ in range(asked.rounds):
            began = time.perf_counter()
            told = said([program(), "method", "validate", "--all", "--json"], Path(text))
            took.append(time.perf_counter() - began)
            own = [each for each in json.loads(told)["methods"] if text in each["file"]]
            if [each["valid"] for each in own] != [True] * METHODS:
                sys.exit(f"not all of the {METHODS} method files are found valid")
    return int(limited(f"validating {METHODS} method files", median(took), "s", most=MOST_S))


if __name__ == "__main__":
    sys.exit(main())
