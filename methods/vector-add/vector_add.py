"""Add two vectors, on the GPU where a library can use one, and check every sum on the CPU."""

from __future__ import annotations

import operator
import sys
import time
from array import array
from typing import Any

import gpu


def vectors(module: Any, size: int, dtype: str) -> tuple[Any, Any]:
    """Whole numbers below 1000, whose sums are exact."""
    if module is None:
        code = {"float32": "f", "float64": "d"}[dtype]
        x = array(code, (i % 1000 for i in range(size)))
        y = array(code, (7 * i % 1000 for i in range(size)))
    else:
        i, kind = module.arange(size), getattr(module, dtype)
        x = module.asarray(i % 1000, dtype=kind)
        y = module.asarray(7 * i % 1000, dtype=kind)
    return x, y


def add(module: Any, x: Any, y: Any) -> tuple[Any, float]:
    """x + y, and how many seconds it took."""
    began = time.perf_counter()
    if module is None:
        z = array(x.typecode, map(operator.add, x, y))
    else:
        z = x + y
        z[-1].item()  # a GPU works on while we go on: reading a value waits for it
    return z, time.perf_counter() - began


def main() -> int:
    given = gpu.parameters()
    size, repeats = given["size"], given["repeats"]
    if size < 1 or repeats < 1:
        sys.exit("size and repeats must be 1 or more.")
    found = gpu.find()
    if given["require_gpu"] and found.device != "gpu":
        sys.exit(f"A GPU is required, and none can be used. {found.why}")
    x, y = vectors(found.module, size, given["dtype"])
    times = []
    for _ in range(repeats):
        z, seconds = add(found.module, x, y)
        times.append(seconds)
    wrong = sum(a + b != c for a, b, c in zip(x.tolist(), y.tolist(), z.tolist(), strict=True))
    gpu.write(
        {
            **found.told(),
            "size": size,
            "dtype": given["dtype"],
            "repeats": repeats,
            "best_s": min(times),
            "wrong": wrong,
        }
    )
    if wrong:
        sys.exit(f"{wrong} of {size} sums are wrong.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
