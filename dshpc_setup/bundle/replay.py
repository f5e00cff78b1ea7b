"""A report read back: the machine that it holds, and what doctor had seen beside it.

`path` is everywhere what `--machine` names: the archive, the folder that it was unpacked to, or a
folder that `dshpc record` made, which holds a machine alone. `RecordedMachine.folder` will do as well.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dshpc_setup.bundle import PROOF_SCHEMA, SETTINGS_SCHEMA, archive, contents
from dshpc_setup.diagnose import CheckInput
from dshpc_setup.documents import foreign
from dshpc_setup.errors import DshpcError, usage_error
from dshpc_setup.machine.folder import REPLIES
from dshpc_setup.machine.recorded import RecordedMachine
from dshpc_setup.observed import stored
from dshpc_setup.observed.model import Observed
from dshpc_setup.passthrough import Passthrough, proof_key
from dshpc_setup.settings import Settings, load

_ANEW = "Have the report created again: dshpc doctor --bundle FILE.tar.gz"
_MACHINE = "machine"
_OF_A_MACHINE = (
    *("machine.yaml", "root.txtar", "commands.yaml"),
    *(name for name, _, _ in REPLIES.values()),
)
_BESIDE = ("observed.json", "proof.json", "settings/settings.json")


@dataclass(frozen=True)
class Stored:
    """What a report tells beside its machine; None for what it does not tell."""

    observed: Observed | None = None
    settings: Settings | None = None  # those that were in force there
    proof: Passthrough | None = None
    proof_fits: bool = False  # it was of the machine and the settings as they were

    def with_proof(self, known: CheckInput) -> CheckInput:
        """What is known with the test-run; its key is one of this report, as its names are."""
        if self.proof is None:
            return known
        fits = self.proof_fits and known.plan is not None
        key = proof_key(known.facts, known.plan, known.whole) if fits and known.plan else ""
        return replace(known, proof=replace(self.proof, key=key))


def machine_of(path: str | os.PathLike[str]) -> RecordedMachine:
    """The recorded machine, read whole. Raises DshpcError for what is none."""
    texts = _archived(path)
    if texts is None:
        inner = os.path.join(path, _MACHINE)
        is_report = os.path.isfile(os.path.join(inner, "machine.yaml"))
        return RecordedMachine(inner if is_report else os.fspath(path))
    if f"{_MACHINE}/machine.yaml" not in texts:
        raise _no_report(path, f"There is no {_MACHINE}/machine.yaml in it.")
    for name in contents.taken_out(texts):
        if name.startswith(f"{_MACHINE}/"):
            raise usage_error(
                f"{os.fspath(path)}: {name} was taken out of it.",
                "What it told of the machine would look as if it were not there.",
                _ANEW,
            )
    where = Path(path) / _MACHINE
    with tempfile.TemporaryDirectory(prefix="dshpc-report-") as folder:
        for name in _OF_A_MACHINE:
            text = texts.get(f"{_MACHINE}/{name}")
            if text is not None:
                (Path(folder) / name).write_text(text, encoding="utf-8", newline="")
        try:
            machine = RecordedMachine(folder)
        except DshpcError as error:
            raise _elsewhere(error, folder, path) from None
    machine.folder = where  # for what it says of its files; it has read them
    return machine


def stored_of(path: str | os.PathLike[str]) -> Stored:
    """All that the report tells beside its machine. Raises DshpcError for what cannot be read."""
    path = _whole(Path(path))
    archived = _archived(path)
    texts = _beside(path) if archived is None else archived
    where = {name: os.path.join(path, name) for name in _BESIDE}
    if archived is not None:  # there is no such path
        where = {name: f"{path}: {name}" for name in _BESIDE}
    found = Stored()
    if "observed.json" in texts:
        observed = stored.from_json(texts["observed.json"], where["observed.json"])
        # Without settings of its own they were the default ones, or could not be read.
        found = Stored(observed, Settings())
    if "settings/settings.json" in texts:
        name = "settings/settings.json"
        found = replace(found, settings=_settings(texts[name], where[name]))
    if "proof.json" in texts:
        value = _object(texts["proof.json"], where["proof.json"], PROOF_SCHEMA)
        proof = Passthrough.from_json(value.get("proof"))
        if proof is None:
            raise stored.unreadable(where["proof.json"], "it holds no test-run of this version")
        found = replace(found, proof=proof, proof_fits=value.get("fits") is True)
    return found


def _whole(path: Path) -> Path:
    """The report whose machine lies in that folder; where it is in none, the folder itself."""
    if path.name == _MACHINE and not (path / "observed.json").is_file():
        return path.parent
    return path


def _archived(path: str | os.PathLike[str]) -> dict[str, str] | None:
    """The files of an archive; None where `path` names something else than a file."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return None
        with open(path, "rb") as file:
            data = file.read(archive.MOST_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise DshpcError(
            f"{os.fspath(path)} cannot be read.",
            str(error),
            ("Make it readable, or name another file.",),
        ) from None
    if len(data) > archive.MOST_BYTES:
        raise _no_report(path, f"It is larger than {archive.MOST_BYTES >> 20} MiB.")
    if not data.startswith(b"\x1f\x8b"):
        raise _no_report(path, "It is a file, and no archive that gzip compressed.")
    try:
        return archive.unpack(data)
    except archive.ArchiveError as error:
        said = str(error)
        raise _no_report(path, f"{said[:1].upper()}{said[1:]}.") from None


def _beside(folder: Path) -> dict[str, str]:
    found = {}
    for name in _BESIDE:
        path = folder / name
        try:
            if not path.is_file():
                continue
            with open(path, "rb") as file:
                data = file.read(archive.MOST_BYTES + 1)
            if len(data) > archive.MOST_BYTES:
                raise stored.unreadable(
                    str(path), f"it is larger than {archive.MOST_BYTES >> 20} MiB"
                )
            found[name] = data.decode()
        except (OSError, UnicodeDecodeError) as error:
            raise stored.unreadable(str(path), str(error)) from None
    return found


def _settings(text: str, where: str) -> Settings:
    texts = _object(text, where, SETTINGS_SCHEMA).get("texts")
    if not isinstance(texts, dict) or not all(isinstance(item, str) for item in texts.values()):
        raise stored.unreadable(where, "'texts' must be an object of texts")
    try:
        return load(remembered=texts)
    except DshpcError as error:
        raise stored.unreadable(where, str(error)) from None


def _object(text: str, where: str, schema: str) -> Mapping[str, Any]:
    try:
        value = foreign.value(text)
    except (ValueError, RecursionError) as error:
        raise stored.unreadable(where, str(error)) from None
    if not isinstance(value, dict) or value.get("schema") != schema:
        raise stored.unreadable(where, f"its schema is not {schema}")
    return value


def _no_report(path: str | os.PathLike[str], why: str) -> DshpcError:
    return usage_error(
        f"{os.fspath(path)} is no report.",
        why,
        "Name a file that `dshpc doctor --bundle FILE.tar.gz` wrote, or a folder of `dshpc record`.",
    )


def _elsewhere(error: DshpcError, folder: str, path: str | os.PathLike[str]) -> DshpcError:
    """The error with the files called as they are in the archive, not as they were for a moment."""

    def named(text: str) -> str:
        text = re.sub(rf"{re.escape(folder)}/([\w.-]*\w)", rf"{_MACHINE}/\1", text)
        return text.replace(folder, _MACHINE)

    return usage_error(
        f"{os.fspath(path)}: {named(error.brief)}",
        named(error.details),
        _ANEW,
    )
