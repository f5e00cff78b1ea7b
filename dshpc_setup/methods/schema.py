"""The form of method.json, declared once, in the words of JSON Schema (draft 2020-12).

`check.py` reads method files by it, and `published()` is what editors get: the two cannot differ.
What a schema cannot say (one key against another, files that must exist) stands in `check.py`.
"""

from __future__ import annotations

import json
from typing import Any, get_args

from dshpc_setup.methods.model import OptionalGpus, ParameterType

Schema = dict[str, Any]

FILE = "method.json"
PUBLISHED = "method.schema.json"
TYPES: tuple[str, ...] = get_args(ParameterType)

_END = (
    r"$(?!\n)"  # in Python `$` alone also stands before a last line end; elsewhere it says the same
)
NAME = rf"^[A-Za-z0-9][A-Za-z0-9._-]{{0,63}}{_END}"
_NO_NUL = rf"^[^\u0000]*{_END}"
_MOST_COUNT = 65_533  # Slurm's own limit of tasks and nodes
MOST_MB = 2**31 - 1
MOST_MINUTES = 10 * 366 * 24 * 60

# dsHPC's ways to hand files in, and the names that people give them -> the name that we use
INPUT_MODES = {
    "single_file": "single_file",
    "multi_file": "multi_file",
    "params_only": "params_only",
    "file": "single_file",
    "single": "single_file",
    "files": "multi_file",
    "multi": "multi_file",
    "multiple_files": "multi_file",
    "named_files": "multi_file",
    "file_array": "multi_file",
    "array": "multi_file",
    "parameters_only": "params_only",
    "params": "params_only",
    "none": "params_only",
}


def _whole(description: str, least: int, most: int, example: int) -> Schema:
    return {
        "description": description,
        "type": "integer",
        "minimum": least,
        "maximum": most,
        "examples": [example],
    }


def _megabytes(description: str, example: int) -> Schema:
    return _whole(f"{description} In MB of 1024 * 1024 bytes.", 1, MOST_MB, example)


def _text(description: str, example: str, **more: Any) -> Schema:
    return {"description": description, "type": "string", **more, "examples": [example]}


def _object(description: str, properties: Schema, *required: str) -> Schema:
    return {
        "description": description,
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
        "examples": [{name: properties[name]["examples"][0] for name in required or ("gpus",)}],
    }


_PARAMETER = _object(
    "A value that a run of the method takes: dshpc method run NAME -p name=value.",
    {
        "name": _text("How it is called.", "learning_rate", pattern=NAME),
        "type": {
            "description": "What its values are. A file is a path on the machine of the caller.",
            "enum": list(TYPES),
            "examples": ["number"],
        },
        "description": _text("What it means, for people.", "Step size of the optimizer."),
        "required": {
            "description": "Whether a run must give it. One with a default need not be given.",
            "type": "boolean",
            "default": False,
            "examples": [True],
        },
        "default": {
            "description": "Its value where a run does not give it; for a file a path in the "
            "method's folder. null is none.",
            "type": ["string", "number", "boolean", "null"],
            "examples": [0.001],
        },
        "allowed_values": {
            "description": "All values that it may have.",
            "type": "array",
            "items": {"type": ["string", "number", "boolean"], "examples": ["adam"]},
            "minItems": 1,
            "examples": [["adam", "sgd"]],
        },
    },
    "name",
    "type",
)

_RESOURCES = _object(
    "What a job of the method gets. What is not said is up to the cluster.",
    {
        "cpus": _whole("CPUs for each task; 0 is all of the node.", 0, _MOST_COUNT, 4),
        "min_memory_mb": _megabytes("The least memory that the method can do with.", 8192),
        "memory_mb": _megabytes("The memory that its job gets.", 16384),
        "time_limit": {
            "description": 'How long it may run: minutes, or "90s", "30m", "2h", "1d", or as Slurm '
            'writes it: "MM:SS", "HH:MM:SS", "D-HH", "D-HH:MM", "D-HH:MM:SS".',
            "type": ["integer", "string"],
            "minimum": 1,
            "maximum": MOST_MINUTES,
            "pattern": rf"^([0-9]+([smhd]|(:[0-9]{{2}}){{1,2}}|-[0-9]{{1,2}}(:[0-9]{{2}}){{0,2}})?){_END}",
            "maxLength": 20,
            "examples": ["2h"],
        },
        "gpus": _whole("GPUs for the job (per node where there are several nodes).", 0, 1024, 1),
        "gpu_type": _text(
            "Which GPUs: a model (h100), a vendor (nvidia, amd, intel), a MIG profile (1g.10gb).",
            "h100",
            pattern=rf"^[A-Za-z0-9][A-Za-z0-9._+-]{{0,63}}{_END}",
        ),
        "gpu_memory_mb": _megabytes(
            "The least memory of each GPU: chooses among the types that the cluster has.", 40000
        ),
        "min_compute_capability": {
            "description": "The least compute capability of each GPU (NVIDIA).",
            "type": ["string", "number"],
            "pattern": rf"^[1-9][0-9]?\.[0-9]{_END}",
            "minimum": 1,
            "maximum": 99,
            "examples": ["8.0"],
        },
        "cuda": _text(
            "The least CUDA version that the driver must offer.",
            "12.4",
            pattern=rf"^[1-9][0-9]?(\.[0-9]{{1,2}})?{_END}",
        ),
        "optional_gpus": {
            "description": "auto: `gpus` GPUs where the cluster has them, else none. "
            "always: not without. never: none, whatever `gpus` says.",
            "enum": list(get_args(OptionalGpus)),
            "default": "always",
            "examples": ["auto"],
        },
        "shards": _whole(
            "Shares of a GPU that jobs have in common, in place of gpus.", 0, 65535, 1
        ),
        "nodes": _whole("Nodes of the cluster.", 1, _MOST_COUNT, 1),
        "tasks": _whole("How many times it runs side by side, with srun.", 1, _MOST_COUNT, 4),
        "exclusive": {
            "description": "Whether no other job may run on the node meanwhile. It then gets all of "
            "the node's CPUs, memory and GPUs.",
            "type": "boolean",
            "default": False,
            "examples": [True],
        },
        "env": {
            "description": "Environment variables of the job; their values are texts.",
            "type": "object",
            "propertyNames": {
                "type": "string",
                "pattern": rf"^[A-Za-z_][A-Za-z0-9_]{{0,127}}{_END}",
                "examples": ["OMP_NUM_THREADS"],
            },
            "additionalProperties": {
                "type": "string",
                "pattern": _NO_NUL,
                "maxLength": 32768,
                "examples": ["4"],
            },
            "examples": [{"OMP_NUM_THREADS": "4"}],
        },
    },
)

SCHEMA: Schema = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "method.json of dsHPC",
    **_object(
        "A method: what it runs, its parameters, and what its job needs.",
        {
            "$schema": _text("Where this schema lies, for editors.", f"../{PUBLISHED}"),
            "name": _text(
                "How the method is called; letters, digits, and . _ - within.",
                "train-model",
                pattern=NAME,
            ),
            "description": _text("What it does, in a sentence.", "Trains the model."),
            "version": _text("Its version, for people.", "1.0", maxLength=64),
            "command": {
                "description": "The program that runs the script, with options of its own; "
                "split into words, with quotes as in a shell, and never given to one.",
                "type": ["string", "array"],
                "pattern": rf"^[^\u0000]*[^\s\u0000][^\u0000]*{_END}",
                "minItems": 1,
                "items": {
                    "type": "string",
                    "minLength": 1,
                    "pattern": _NO_NUL,
                    "examples": ["python3"],
                },
                "examples": ["python3"],
            },
            "script_path": _text(
                "The script, relative to the folder of this file and inside it.",
                "main.py",
                pattern=rf"^[^/\u0000][^\u0000]*{_END}",
                maxLength=1024,
            ),
            "input_modes": {
                "description": "Which inputs a run may have: single_file (one), multi_file (one "
                "or more), params_only (none). Without it: any.",
                "type": "array",
                "items": {"enum": list(INPUT_MODES), "examples": ["single_file"]},
                "minItems": 1,
                "examples": [["single_file"]],
            },
            "parameters": {
                "description": "The values that a run takes.",
                "type": "array",
                "items": _PARAMETER,
                "maxItems": 1000,
                "examples": [[{"name": "learning_rate", "type": "number", "default": 0.001}]],
            },
            "resources": _RESOURCES,
            "env": _text(
                "A folder that declares the packages it runs with, relative to the folder of this file and "
                "inside it; . is that folder. Without it: what the image has.",
                ".",
                pattern=rf"^[^/\u0000][^\u0000]*{_END}",
                maxLength=1024,
            ),
            "image": _text(
                "An image that it runs in: a file or folder (OCI archive, docker save, SIF), relative to the "
                "folder of this file or absolute, or a name that the engine has. Without it: the "
                "cluster's own.",
                "pytorch.tar",
                pattern=rf"^[^-\u0000][^\u0000]*{_END}",
                maxLength=1024,
            ),
            "requires": {
                "description": "Methods whose last good result it reads (REQUIRES_FILE).",
                "type": "array",
                "items": {"type": "string", "pattern": NAME, "examples": ["prepare-data"]},
                "maxItems": 100,
                "examples": [["prepare-data"]],
            },
        },
        "name",
        "command",
        "script_path",
    ),
}


def published() -> str:
    """The text of docs/schemas/method.schema.json."""
    return json.dumps(SCHEMA, indent=2) + "\n"
