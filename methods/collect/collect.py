"""One table of the result.json files of many jobs, and each column's mean and spread.

Results are found in the input files, in the workspace that is a parameter (of an array: in its
tasks' folders), and in those of the jobs that this one requires in a workflow.
"""

from __future__ import annotations

import csv
import glob
import json
import os
import re
import statistics
import sys
from typing import Any


def files(workspace: str) -> list[str]:
    """The results in a workspace; those of an array's tasks by number."""
    tasks = glob.glob(os.path.join(glob.escape(workspace), "task-*", "result.json"))
    tasks.sort(key=lambda path: [int(digits) for digits in re.findall(r"task-(\d+)/", path)[-1:]])
    own = os.path.join(workspace, "result.json")
    return [own, *tasks] if os.path.exists(own) else tasks


def rows(paths: list[str]) -> list[dict[str, Any]]:
    found = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
        if not isinstance(value, dict):
            sys.exit(f"{path} holds no JSON object.")
        plain = {name: each for name, each in value.items() if not isinstance(each, (dict, list))}
        found.append({**plain, "file": path})
    return found


def summary(table: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Of the columns that hold numbers."""
    found = {}
    for name in {name: None for row in table for name in row}:
        numbers = [row[name] for row in table if type(row.get(name)) in (int, float)]
        if numbers:
            found[name] = {
                "count": len(numbers),
                "mean": statistics.fmean(numbers),
                "stdev": statistics.stdev(numbers) if len(numbers) > 1 else 0.0,
                "min": min(numbers),
                "max": max(numbers),
            }
    return found


def main() -> int:
    with open(os.environ["PARAMS_FILE"], encoding="utf-8") as file:
        workspace = json.load(file)["workspace"]
    if workspace and not os.path.isdir(workspace):
        sys.exit(f"There is no folder {workspace} here. Write its whole path, as submissions do.")
    workspaces = [os.path.abspath(workspace)] if workspace else []
    if "REQUIRES_FILE" in os.environ:
        with open(os.environ["REQUIRES_FILE"], encoding="utf-8") as file:
            workspaces += json.load(file).values()
    paths = [*json.loads(os.environ["INPUT_FILES"])]
    for each in dict.fromkeys(workspaces):
        paths += files(each)
    if not paths:
        where = f"in {', '.join(workspaces)}" if workspaces else "without a workspace or an input"
        sys.exit(f"There is no result.json {where}.")
    table = rows(paths)
    os.chdir(os.environ["JOB_WORKSPACE"])
    with open("table.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list({name: None for row in table for name in row}))
        writer.writeheader()
        writer.writerows(table)
    result = {"results": len(table), "columns": summary(table)}
    with open("result.json", "w", encoding="utf-8") as file:
        json.dump(result, file, indent=2)
    print(f"{len(table)} results are in {os.path.abspath('table.csv')}")
    for name, each in result["columns"].items():
        print(f"  {name}: mean {each['mean']:.6g}, standard deviation {each['stdev']:.3g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
