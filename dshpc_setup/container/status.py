"""How the start is going: /run/dshpc/status.json (schema dshpc.start/1), and the log of it.

Keys: `phase` ("starting: <step>", "ready", "failed"), `ready`, `failure` {brief, details, resolution,
fixes, file} or null, `kept_last_good` (the same, where the last good configuration is in force instead
of one that does not pass), `notes` (sentences for people), `note_keys` (for each of them what it is
true with alone: "node NAME", which was left out of use, or "kept_last_good"; "interrupted": what the key
of that name has as ids; else null), `notes_about` (the same by key, for a dshpc on the host that knows no
`note_keys`), `steps`
[{name, ms}], `node`, `gres`, `simulated`, `image_gpu_type`, `drift` [{what, was, is, done}] since the
last start that got ready and `changes` (the same as sentences), `customized` {file: custom|edited},
`config_sha256` {file of /config: hash of what was read}; these two are of the files that were tried,
also where they were refused: by them the host tells whether they are others now. `interrupted`: {requeued,
concluded, ended} with the ids of jobs that ran when the container stopped (container/interrupted.py),
null where nobody knows and at a first start. `rest`: {socket, address,
version} of slurmrestd, null where the setting does not ask for it or it is not up. `reconfigured`: when
`dshpc-node reconfigure` last did something (RFC 3339), null where it did not since the start.
`container_began`: when the container's first process did, in clock ticks since the machine's boot. What
an earlier start left behind has another one and is not believed: it lies there until `init` removes it,
and who asks in the moments before would take the cluster for ready. /run/dshpc/phase, for shell scripts,
has the phase on its first line and that number on its second.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from dshpc_setup.documents import foreign
from dshpc_setup.errors import DshpcError
from dshpc_setup.files.storage import read_text, replace_text
from dshpc_setup.slurm.paths import Paths

SCHEMA = "dshpc.start/1"


def log(text: str) -> None:
    """A readable line (or several) for `dshpc logs`."""
    for line in printable(text).splitlines() or [""]:
        print(f"dshpc: {line}", flush=True)


def printable(text: str) -> str:
    """Without what no terminal and no JSON reader takes: parts of a file may stand in it."""
    whole = text.encode("utf-8", "replace").decode()
    return "".join(char if char.isprintable() or char in "\n\t" else "\ufffd" for char in whole)


def as_failure(error: DshpcError) -> dict[str, object]:
    return {
        "brief": printable(error.brief),
        "details": printable(error.details),
        "resolution": [printable(step) for step in error.resolution],
        "fixes": [fix.edited(printable).to_json() for fix in error.fixes],
        "file": error.file,
    }


class Status:
    """Written anew at every step, in one piece: whoever reads it sees the old one or the new.

    With `live` false the steps are not told: a cluster that runs stays "ready" meanwhile. `say` takes
    what people are told.
    """

    def __init__(
        self, paths: Paths, say: Callable[[str], None] = log, *, live: bool = True
    ) -> None:
        self._paths = paths
        self._live = live
        self.say = say
        self._began = time.monotonic()
        self.values: dict[str, Any] = {
            "schema": SCHEMA,
            "container_began": _container_began(paths),
            "phase": "starting",
            "ready": False,
            "failure": None,
            "kept_last_good": None,
            "rest": None,
            "accounting": None,
            "notes": [],
            "note_keys": [],
            "notes_about": {},
            "steps": [],
            "node": None,
            "gres": "",
            "simulated": False,
            "image_gpu_type": None,
            "changes": [],
            "drift": [],
            "customized": {},
            "config_sha256": {},
            "interrupted": None,
            "reconfigured": None,
        }

    @property
    def elapsed_ms(self) -> float:
        return round((time.monotonic() - self._began) * 1000, 1)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        if self._live:
            self.values["phase"] = f"starting: {name}"
            self.write()
        yield
        ms = round((time.monotonic() - began) * 1000, 1)
        self.values["steps"].append({"name": name, "ms": ms})

    def note(self, text: str, about: str | None = None) -> None:
        """Something that people should know, in the log and in the status; `about`: see above."""
        self.say(text)
        self.values["notes"].append(printable(text))
        self.values["note_keys"].append(about)
        if about is not None:
            self.values["notes_about"][about] = printable(text)

    def ready(self) -> None:
        self.values.update(phase="ready", ready=True)
        self.write()

    def failed(self, error: DshpcError) -> None:
        self.values.update(phase="failed", ready=False, failure=as_failure(error))
        self.write()

    def write(self, values: Mapping[str, Any] | None = None) -> None:
        """`values` in the place of its own."""
        told = self.values if values is None else values
        os.makedirs(self._paths.run, exist_ok=True)
        text = json.dumps(told, indent=1, ensure_ascii=False)
        # No sync: /run does not outlive a power cut anyway
        replace_text(self._paths.status, f"{text}\n", sync=False)
        # For the health check, which is a shell script
        phase = f"{told['phase']}\n{told['container_began']}\n"
        replace_text(f"{self._paths.run}/phase", phase, sync=False)


def read(paths: Paths) -> dict[str, Any] | None:
    """The status as last written; None before this start's first one."""
    try:
        with open(paths.status, encoding="utf-8") as file:
            found = foreign.of_file(file)
    except FileNotFoundError:
        return None
    if not isinstance(found, dict) or found.get("container_began") != _container_began(paths):
        return None
    return found


def _container_began(paths: Paths) -> str:
    """Field 22 of proc_pid_stat(5), the 20th behind the name, which may hold blanks and brackets."""
    fields = (read_text(paths.at("/proc/1/stat")) or "").rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 else ""


def wait(paths: Paths, timeout_s: float) -> dict[str, Any] | None:
    """The status once it is ready or failed, or as it is when the time is up."""
    until = time.monotonic() + timeout_s
    while True:
        found = read(paths)
        if found is not None and found["phase"] in ("ready", "failed"):
            return found
        if time.monotonic() >= until:
            return found
        time.sleep(0.01)
