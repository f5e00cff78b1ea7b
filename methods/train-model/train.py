"""Train a logistic regression on what prepare-data has made, and test it."""

from __future__ import annotations

import csv
import json
import math
import os
import sys

Rows = list[list[float]]


def read(path: str) -> tuple[list[str], Rows]:
    with open(path, encoding="utf-8", newline="") as file:
        header, *lines = csv.reader(file)
    return header, [[float(cell) for cell in line] for line in lines]


def probability(weights: list[float], features: list[float]) -> float:
    """That the label is 1; the first weight stands alone."""
    total = weights[0] + sum(w * x for w, x in zip(weights[1:], features, strict=True))
    return 1 / (1 + math.exp(-max(-500.0, min(500.0, total))))


def trained(rows: Rows, epochs: int, rate: float) -> list[float]:
    """Gradient descent on all rows at once."""
    weights = [0.0] * len(rows[0])
    for _ in range(epochs):
        gradient = [0.0] * len(weights)
        for *features, label in rows:
            error = probability(weights, features) - label
            for at, x in enumerate([1.0, *features]):
                gradient[at] += error * x
        weights = [w - rate * g / len(rows) for w, g in zip(weights, gradient, strict=True)]
    return weights


def accuracy(weights: list[float], rows: Rows) -> float:
    right = sum((probability(weights, row[:-1]) > 0.5) == (row[-1] == 1) for row in rows)
    return right / len(rows)


def main() -> int:
    with open(os.environ["PARAMS_FILE"], encoding="utf-8") as file:
        params = json.load(file)
    with open(os.environ["REQUIRES_FILE"], encoding="utf-8") as file:
        data = json.load(file)["prepare-data"]
    header, rows = read(os.path.join(data, "train.csv"))
    weights = trained(rows, params["epochs"], params["learning_rate"])
    _, test = read(os.path.join(data, "test.csv"))
    result = {
        "data": data,
        "weights": dict(zip(["", *header[:-1]], weights, strict=True)),
        "train_accuracy": accuracy(weights, rows),
        "test_accuracy": accuracy(weights, test),
    }
    with open(os.path.join(os.environ["JOB_WORKSPACE"], "result.json"), "w") as file:
        json.dump(result, file, indent=2)
    print(f"of {len(test)} rows that it has not seen, {result['test_accuracy']:.1%} are right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
