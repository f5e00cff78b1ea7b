"""`dshpc usage`: a table, and CSV that a spreadsheet may open."""

from __future__ import annotations

import csv
import io

from dshpc_setup.cli import usage
from dshpc_setup.usage.sums import Sum

ROWS = [
    Sum("=cmd|' /C calc'!A0\x1b[2J\n", jobs=2, held_s=7200.0).to_json("user"),
    Sum("", jobs=1, held_s=3600.0, measured_s=1800.0, used_s=900.0, energy_j=7.2e6).to_json("user"),
]


def test_a_table_is_not_commanded() -> None:
    lines = usage._table(ROWS, "user").split("\n")
    assert len(lines) == 4
    assert all(line.isprintable() for line in lines)
    assert lines[0].split() == "USER JOBS GPU HOURS MEASURED USED ENERGY kWh".split()
    assert lines[1].split()[-5:] == ["2", "2.00", "0.00", "-", "-"]
    assert lines[2].split() == ["-", "1", "1.00", "0.50", "0.25", "2.00"]


def test_no_cell_of_csv_is_a_formula() -> None:
    rows = list(csv.DictReader(io.StringIO(usage._csv(ROWS, "user"))))
    assert [row["user"][:2] for row in rows] == ["'=", ""]
    assert [(row["gpu_seconds_held"], row["gpu_seconds_used"]) for row in rows] == [
        ("7200.0", ""),
        ("3600.0", "900.0"),
    ]
