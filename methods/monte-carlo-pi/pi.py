"""Estimate pi from random points in a square: how many lie in its circle? One job, or one of many."""

from __future__ import annotations

import json
import os
import random
import sys


def main() -> int:
    with open(os.environ["PARAMS_FILE"], encoding="utf-8") as file:
        params = json.load(file)
    samples = params["samples"]
    if samples < 1:
        sys.exit("samples must be 1 or more.")
    number = random.Random(params["seed"]).random
    inside = sum(number() ** 2 + number() ** 2 < 1 for _ in range(samples))
    result = {**params, "inside": inside, "pi": 4 * inside / samples}
    with open(os.path.join(os.environ["JOB_WORKSPACE"], "result.json"), "w") as file:
        json.dump(result, file, indent=2)
    print(f"seed {params['seed']}: {inside} of {samples} points, so pi is about {result['pi']:.6f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
