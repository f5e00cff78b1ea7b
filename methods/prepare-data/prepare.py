"""Make a table ready for training: complete rows, columns of one scale, parts to train and to test.

The table is a CSV with a header; its last column is the label, 0 or 1. Without one, it is made up.
"""

from __future__ import annotations

import csv
import json
import math
import os
import random
import statistics
import sys

Table = list[list[float]]


def read(path: str) -> tuple[list[str], Table, int]:
    """The header, the complete rows, and how many were none."""
    with open(path, encoding="utf-8-sig", newline="") as file:
        lines = list(csv.reader(file))
    if not lines or len(lines[0]) < 2:
        sys.exit(f"{path} needs a header with two columns or more.")
    table: Table = []
    for line in filter(None, lines[1:]):
        try:
            row = [float(cell) for cell in line]
        except ValueError:  # an empty cell, or a word
            continue
        if len(row) == len(lines[0]) and all(map(math.isfinite, row)) and row[-1] in (0, 1):
            table.append(row)
    return lines[0], table, len([*filter(None, lines[1:])]) - len(table)


def made_up(rows: int, chosen: random.Random) -> tuple[list[str], Table, int]:
    """Two groups of points around (-1, -1) and (1, 1) that overlap a little."""
    table: Table = []
    for _ in range(rows):
        label = chosen.randrange(2)
        table.append([chosen.gauss(2 * label - 1, 1), chosen.gauss(2 * label - 1, 1), label])
    return ["x", "y", "label"], table, 0


def scaled(table: Table, like: Table) -> Table:
    """Each column but the label with mean 0 and standard deviation 1, as in the rows of `like`."""
    columns = list(zip(*like, strict=True))[:-1]
    means = [statistics.fmean(column) for column in columns]
    spreads = [statistics.pstdev(column) or 1.0 for column in columns]
    return [
        [(x - m) / s for x, m, s in zip(row[:-1], means, spreads, strict=True)] + [row[-1]]
        for row in table
    ]


def main() -> int:
    with open(os.environ["PARAMS_FILE"], encoding="utf-8") as file:
        params = json.load(file)
    if not 0 < params["test_share"] < 1:
        sys.exit("test_share must lie between 0 and 1.")
    chosen = random.Random(params["seed"])
    if "INPUT_FILE" in os.environ:
        header, table, dropped = read(os.environ["INPUT_FILE"])
    else:
        header, table, dropped = made_up(params["rows"], chosen)
    chosen.shuffle(table)
    tested = round(len(table) * params["test_share"])
    test, train = table[:tested], table[tested:]
    if not test or not train:
        sys.exit(
            f"{len(table)} complete rows do not make parts to train and to test "
            f"at a test_share of {params['test_share']}."
        )
    os.chdir(os.environ["JOB_WORKSPACE"])
    for name, part in (("train.csv", train), ("test.csv", test)):
        with open(name, "w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([header, *scaled(part, like=train)])
    result = {"train_rows": len(train), "test_rows": len(test), "dropped_rows": dropped}
    with open("result.json", "w", encoding="utf-8") as file:
        json.dump(result, file, indent=2)
    print(f"{len(train)} rows to train, {len(test)} to test, {dropped} incomplete ones dropped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
