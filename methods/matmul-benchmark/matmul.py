"""Multiply two square matrices, on the GPU where a library can use one: how fast, and is it right?"""

from __future__ import annotations

import random
import statistics
import sys
import time
from typing import Any

import gpu

SIZES = {"gpu": 4096, "cpu": 1024}  # where no size is given
PLAIN_SIZE = 96  # in plain Python, which is some 1000 times slower than NumPy
CHECKED = 50  # entries of the product that are computed again
PRIME = 251


def matrix(module: Any, size: int, dtype: str, salt: int) -> Any:
    """Entries -1, 0 and 1 without a visible order: every sum is a small whole number."""
    if module is None:
        return [[float(entry(i, j, salt)) for j in range(size)] for i in range(size)]
    i = module.arange(size)[:, None]
    j = module.arange(size)[None, :]
    return module.asarray(entry(i, j, salt), dtype=getattr(module, dtype))


def entry(i: Any, j: Any, salt: int) -> Any:
    return (i * i + salt * i * j + 7 * j * j) % PRIME % 3 - 1


def multiply(module: Any, a: Any, b: Any) -> tuple[Any, float]:
    """a times b, and how many seconds it took."""
    began = time.perf_counter()
    if module is None:
        columns = list(zip(*b, strict=True))
        c = [[sum(x * y for x, y in zip(row, col, strict=True)) for col in columns] for row in a]
    else:
        c = a @ b
        c[-1, -1].item()  # a GPU works on while we go on: reading a value waits for it
    return c, time.perf_counter() - began


def wrong_entries(c: Any, size: int, salts: tuple[int, int]) -> int:
    """How many of some entries differ from the sum in whole numbers.

    float16 holds whole numbers up to 2048; beyond, 1 in 1000 is its rounding.
    """
    chosen = random.Random(0)
    wrong = 0
    for _ in range(CHECKED):
        i, j = chosen.randrange(size), chosen.randrange(size)
        exact = sum(entry(i, k, salts[0]) * entry(k, j, salts[1]) for k in range(size))
        wrong += abs(float(c[i][j]) - exact) > (abs(exact) / 1000 if abs(exact) > 2048 else 0)
    return wrong


def main() -> int:
    given = gpu.parameters()
    found = gpu.find()
    if given["require_gpu"] and found.device != "gpu":
        sys.exit(f"A GPU is required, and none can be used. {found.why}")
    plain = found.module is None
    size = given["size"] or (PLAIN_SIZE if plain else SIZES[found.device])
    repeats, salts = given["repeats"], (31, 57)
    if size < 1 or repeats < 1:
        sys.exit("size and repeats must be 1 or more.")
    a, b = (matrix(found.module, size, given["dtype"], salt) for salt in salts)
    multiply(found.module, a, b)  # the first one loads libraries and does not count
    times = []
    for _ in range(repeats):
        c, seconds = multiply(found.module, a, b)
        times.append(seconds)
    wrong = wrong_entries(c, size, salts)
    gpu.write(
        {
            **found.told(),
            "size": size,
            "dtype": "float64" if plain else given["dtype"],  # plain Python knows no other
            "repeats": repeats,
            "best_s": min(times),
            "median_s": statistics.median(times),
            "gflop_per_s": 2 * size**3 / min(times) / 1e9,
            "wrong": wrong,
        }
    )
    if wrong:
        sys.exit(f"{wrong} of {CHECKED} entries of the product are wrong.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
