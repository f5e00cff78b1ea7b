"""A new method, which works as it is: method.json and a small script."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from dshpc_setup.errors import DshpcError, usage_error
from dshpc_setup.files.atomic import make_folder, write_atomic, write_error
from dshpc_setup.methods import store
from dshpc_setup.methods.schema import FILE, PUBLISHED, SCHEMA, published
from dshpc_setup.methods.structure import differences

_PYTHON = '''\
"""Say hello: a job reads its parameters and writes its results into its workspace."""

import json
import os

with open(os.environ["PARAMS_FILE"], encoding="utf-8") as file:
    params = json.load(file)

print(f"Hello, {params['who']}!")
print("Input file:", os.environ.get("INPUT_FILE", "none"))
print("GPUs:", os.environ.get("CUDA_VISIBLE_DEVICES") or "none")

# The workspace is the current folder too: what is written there is kept.
with open(os.path.join(os.environ["JOB_WORKSPACE"], "result.json"), "w", encoding="utf-8") as file:
    json.dump({"greeted": params["who"]}, file)
'''

_SHELL = """\
# Say hello: a job reads its parameters and writes its results into its workspace.
set -eu

echo "Parameters: $(cat "$PARAMS_FILE")"
echo "Input file: ${INPUT_FILE:-none}"
echo "GPUs: ${CUDA_VISIBLE_DEVICES:-none}"

# The workspace is the current folder too: what is written there is kept.
cp "$PARAMS_FILE" "$JOB_WORKSPACE/result.json"
"""

_R = """\
# Say hello: a job reads its parameters and writes its results into its workspace.
params <- paste(readLines(Sys.getenv("PARAMS_FILE"), warn = FALSE), collapse = "\\n")

cat("Parameters:", params, "\\n")
cat("Input file:", Sys.getenv("INPUT_FILE", "none"), "\\n")
gpus <- Sys.getenv("CUDA_VISIBLE_DEVICES")
cat("GPUs:", if (nzchar(gpus)) gpus else "none", "\\n")

# The workspace is the current folder too: what is written there is kept.
writeLines(params, file.path(Sys.getenv("JOB_WORKSPACE"), "result.json"))
"""

SCRIPTS: Mapping[str, tuple[str, str]] = {
    "python3": ("main.py", _PYTHON),
    "python": ("main.py", _PYTHON),
    "bash": ("main.sh", _SHELL),
    "sh": ("main.sh", _SHELL),
    "Rscript": ("main.R", _R),
}


R_FIRST = (
    "R is not in the image by itself. Once: dshpc env add --apt r-base-core, dshpc env lock, "
    "configure-environment"
)


def declared(name: str, command: str, gpus: int) -> str:
    """The text of the new method.json."""
    value = {
        "$schema": f"../{PUBLISHED}",
        "name": name,
        "description": "Says hello; change it into what you need.",
        "version": "0.1",
        "command": command,
        "script_path": SCRIPTS[command][0],
        "parameters": [
            {
                "name": "who",
                "type": "string",
                "description": "Whom to greet.",
                "default": "world",
            }
        ],
        "resources": {"cpus": 1, "min_memory_mb": 512, "time_limit": "1h", "gpus": gpus},
    }
    return json.dumps(value, indent=2) + "\n"


def make(folder: Path, name: str, command: str = "python3", gpus: int = 0) -> tuple[Path, ...]:
    """The files made: `folder`/NAME and, for editors, the schema beside it.

    Raises DshpcError (64) for a name or command that cannot be, or where something is there.
    """
    wrong = list(differences(name, SCHEMA["properties"]["name"]))
    if wrong:
        right = "Letters, digits, and . _ - within; at most 64 characters."
        raise usage_error("That cannot be a method's name.", wrong[0].what, right)
    if command not in SCRIPTS:
        raise usage_error(
            f"There is no first script for the command {command!r}.",
            f"There is one for: {', '.join(SCRIPTS)}.",
            f"Make it for python3, then change command and script_path: dshpc method init {name}",
        )
    _refuse_second(folder, name)
    script, text = SCRIPTS[command]
    new = folder / name
    make_folder(folder)
    # Hidden, and so nobody's method, until it is whole
    unfinished = folder / f".{name}.dshpc-tmp-{os.urandom(4).hex()}"
    try:
        unfinished.mkdir()
        write_atomic(unfinished / script, text)
        write_atomic(unfinished / FILE, declared(name, command, gpus))
        unfinished.rename(new)
    except BaseException as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        if isinstance(error, OSError):
            raise write_error(error, new) from None
        raise
    made = [new / script, new / FILE]
    schema = folder / PUBLISHED
    if _refreshed(schema):
        made.append(schema)
    return tuple(made)


def _refuse_second(folder: Path, name: str) -> None:
    """Raises DshpcError (64) where the folder is there, or another one has a method of that name."""
    new = folder / name
    if os.path.lexists(new):
        raise usage_error(
            f"{new} is there already; nothing was changed.",
            "",
            "Choose another name, or remove it first.",
        )
    for entry in store.survey((folder,)):
        if entry.name == name and entry.is_declared:
            raise usage_error(
                f"There is a method {name} already, in {entry.folder}.",
                "Of two with one name, neither could be run.",
                "Choose another name.",
            )


def _refreshed(schema: Path) -> bool:
    """Whether the schema for editors was written: it is ours, and made anew where it is old."""
    try:
        if schema.read_text(encoding="utf-8") == published():
            return False
    except FileNotFoundError:
        pass
    except (OSError, UnicodeDecodeError) as error:
        raise DshpcError(
            f"{schema} cannot be read.", str(error), ("Move it away and run again.",)
        ) from None
    write_atomic(schema, published())
    return True
