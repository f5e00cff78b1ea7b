"""The form of a workflow file, in the words of JSON Schema, and what Joblet's files have beside it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dshpc_setup.methods.schema import NAME, SCHEMA, Schema
from dshpc_setup.workflows.model import ENDINGS

# A line's end before the last is Python's own idea of `$`: see methods/schema.py
_NO_NUL = r"^[^\u0000]*$(?!\n)"
_WORD: Schema = {
    "description": "A word of the command line.",
    "type": ["string", "number", "boolean"],
    "pattern": _NO_NUL,
    "maxLength": 131_072,  # Linux's own limit of one argument (MAX_ARG_STRLEN)
    "examples": ["--epochs"],
}
_ENDING: Schema = {
    "description": "How that job must end.",
    "enum": list(ENDINGS),
    "examples": ["COMPLETED"],
}

_RESOURCES: Schema = SCHEMA["properties"]["resources"]["properties"]
# Joblet's name -> ours; the rest of its names are refused
RENAMED = {"max_memory": "memory_mb", "max_cpu": "cpus", "gpu_count": "gpus"}
RESOURCES: Mapping[str, Schema] = {
    **_RESOURCES,
    "max_memory": _RESOURCES["memory_mb"],
    "max_cpu": {
        "description": "CPUs in percent of one: 200 is two.",
        "type": "integer",
        "minimum": 1,
        "maximum": 6_553_300,
        "examples": [200],
    },
    "gpu_count": _RESOURCES["gpus"],
}

JOB: Mapping[str, Schema] = {
    "method": {
        "description": "The method that it runs.",
        "type": "string",
        "pattern": NAME,
        "examples": ["train"],
    },
    "parameters": {
        "description": "The method's parameters.",
        "type": "object",
        "propertyNames": {"type": "string", "pattern": NAME, "examples": ["epochs"]},
        "additionalProperties": {
            "type": ["string", "number", "boolean", "null"],
            "examples": [10],
        },
        "examples": [{"epochs": 10}],
    },
    "inputs": {
        "description": "Input files, relative to the workflow's file.",
        "type": "array",
        "items": {
            "type": "string",
            "minLength": 1,
            "pattern": _NO_NUL,
            "examples": ["data.csv"],
        },
        "maxItems": 1000,
        "examples": [["data.csv"]],
    },
    "command": {
        "description": "The program that it runs, where it runs no method.",
        "type": "string",
        "minLength": 1,
        "pattern": _NO_NUL,
        "maxLength": 4096,
        "examples": ["python3"],
    },
    "args": {
        "description": "The words behind the command; no shell reads them.",
        "type": "array",
        "items": _WORD,
        "maxItems": 10_000,
        "examples": [["train.py", "--epochs", "100"]],
    },
    "requires": {
        "description": "The jobs that it waits for.",
        "type": "array",
        "items": {
            "type": ["string", "object"],
            "propertyNames": {"type": "string", "pattern": NAME, "examples": ["prepare"]},
            "additionalProperties": _ENDING,
            "examples": ["prepare"],
        },
        "maxItems": 1000,
        "examples": [["prepare"]],
    },
    "resources": {"type": "object", "examples": [{"gpus": 1}]},
}
TOP: Mapping[str, Schema] = {
    "name": {
        "description": "The workflow's name; without it, the file's.",
        "type": "string",
        "pattern": NAME,
        "examples": ["train-model"],
    },
    "description": {
        "description": "What it is for.",
        "type": "string",
        "maxLength": 4096,
        "examples": ["Prepares data, trains a model."],
    },
    "version": {
        "description": "Its version, for people.",
        "type": ["string", "number"],
        "maxLength": 64,
        "examples": ["1.0"],
    },
    "jobs": {"type": "object", "examples": [{"prepare": {"command": "python3"}}]},
}
MOST_JOBS = 1000

# Keys of Joblet's files (its docs/WORKFLOWS.md) that mean nothing here -> what does the same
NOT_OFFERED = {
    "network": "Jobs have the network of the cluster's container: leave it out.",
    "volumes": "Jobs share the work folder, and REQUIRES_FILE names the workspaces of the jobs that "
    "a job requires: leave it out.",
    "uploads": "Files beside the workflow are seen as they are, and inputs: names others: leave it "
    "out.",
    "environment": "Write the variables into resources: env.",
    "env": "Write the variables into resources: env.",
    "secret_environment": "Jobs' files are no place for secrets: let the program read them from a "
    "file of yours.",
    "schedule": "Start it at the time you want: cron and dshpc workflow run do.",
    "depends_on": "Write requires: and under it the names.",
    "needs": "Write requires: and under it the names.",
    "script": "Write command: with the program, and args: with the script.",
    "image": "Every job has the cluster's image: leave it out.",
    "workflow_uuid": "A workflow is known by its name: leave it out.",
}
# Those that a job does as well without -> what is so instead
NOTED = {
    "runtime": "Every job has what the cluster's image has. To put packages into it: dshpc env add PACKAGE, "
    "then configure-environment",
}
TOP_NOT_OFFERED = {
    "workflows": "A file holds one workflow: write its jobs under jobs:, and others into files of "
    "their own.",
    "steps": "Write jobs: and under it each job's name.",
    "tasks": "Write jobs: and under it each job's name.",
}
RESOURCES_NOT_OFFERED = {
    "max_io_bps": "Slurm here does not bound input and output: leave it out.",
    "max_iobps": "Slurm here does not bound input and output: leave it out.",
    "cpu_cores": "Slurm chooses the cores: say how many with cpus.",
}


def ours(name: str, value: Any) -> tuple[str, Any]:
    """A resource of Joblet's in our name and unit; max_cpu is percent of a CPU."""
    if name == "max_cpu":
        return "cpus", math.ceil(value / 100)
    return RENAMED.get(name, name), value
