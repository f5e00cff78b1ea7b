"""One job of a workflow's file: its words, files, parameters and resources."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path as FilePath
from typing import Any

from dshpc_setup.documents.document import Document
from dshpc_setup.documents.shown import Path, path_text, shown
from dshpc_setup.errors import DshpcError
from dshpc_setup.methods import values
from dshpc_setup.methods.model import Method, Resources, Value
from dshpc_setup.methods.semantics import Parts, contradictions, words
from dshpc_setup.methods.structure import Wrong, differences
from dshpc_setup.workflows.keys import keys
from dshpc_setup.workflows.place import Place
from dshpc_setup.workflows.schema import (
    NOTED,
    RENAMED,
    RESOURCES,
    RESOURCES_NOT_OFFERED,
    ours,
)

_OF_GPUS = frozenset(("gpu_type", "gpu_memory_mb", "min_compute_capability"))  # which GPUs


@dataclass
class Reader:
    """Reads the job that stands at `path`; what is wrong is added to `wrong`."""

    text: Document
    place: Place
    path: Path
    wrong: list[Wrong] = field(default_factory=list)

    def resources(self, given: Any, method: Method | None) -> Resources | None:
        """The method's with what the workflow says in place of them; None where something is wrong."""
        path: Path = (*self.path, "resources")
        wrong = list(keys(given, RESOURCES, RESOURCES_NOT_OFFERED, path))
        given = given if isinstance(given, dict) else {}
        known = {name: value for name, value in given.items() if name in RESOURCES}
        for name, value in known.items():
            wrong += differences(value, RESOURCES[name], (*path, name))
        for name, same in RENAMED.items():
            if name in known and same in known:
                what = f"{name} and {same} say the same."
                wrong.append(Wrong((*path, name), what, "Keep one of the two."))
        self.wrong += wrong
        if wrong:
            return None
        said = dict(ours(name, value) for name, value in known.items())
        whole = {**(_inherited(method.resources, said) if method else {}), **said}
        return self._sensible(whole, known, path)

    def _sensible(
        self, whole: dict[str, Any], known: dict[str, Any], path: Path
    ) -> Resources | None:
        from dshpc_setup.methods import check

        named = {ours(name, 1)[0]: name for name in known}
        before = len(self.wrong)
        for each in contradictions(Parts({"resources": whole}, ())):
            key = str(each.path[1]) if len(each.path) > 1 else ""
            at = (*path, named[key], *each.path[2:]) if key in named else path
            if not each.note:
                self.wrong.append(Wrong(at, each.what, each.right))
        if len(self.wrong) > before:
            return None
        # A method of these resources and nothing else: what is right for one is right here
        least = {"name": "x", "command": "x", "script_path": "x", "resources": whole}
        method, problems = check.check(json.dumps(least).encode(), FilePath("/"), look=False)
        if method is None:
            self.wrong.append(Wrong(path, problems[0].what, problems[0].right))
            return None
        return method.resources

    def parts(self, given: dict[str, Any], method: Method | None) -> dict[str, Any] | None:
        """argv, parameters, inputs, files and notes of a Job; None where something is wrong."""
        before = len(self.wrong)
        inputs = self.inputs(given)
        notes = [
            f"{key}: {shown(given[key])} changes nothing. {why}"
            for key, why in NOTED.items()
            if key in given
        ]
        found: dict[str, Any] = {"inputs": inputs}
        if method is None:
            found["argv"], found["files"] = self._words(given)
            notes += self._folders(found["argv"][1:])
        else:
            found["parameters"] = self._parameters(given.get("parameters", {}), method)
            problem = values.count_fits(method, len(inputs))
            if problem is not None:
                at = (*self.path, "inputs" if inputs else "method")
                self.wrong.append(Wrong(at, problem.what, "Name its files under inputs:."))
        found["notes"] = tuple(notes)
        return found if len(self.wrong) == before else None

    def inputs(self, given: dict[str, Any]) -> tuple[str, ...]:
        """The whole paths of the inputs; "" for one that is no file that can be read."""
        return tuple(
            self._file(text, ("inputs", at)) or ""
            for at, text in enumerate(given.get("inputs", ()))
        )

    def _beside(self, text: str) -> str:
        """A path as the file means it: relative to where the file lies."""
        return os.path.abspath(os.path.join(self.place.folder, os.path.expanduser(text)))

    def _file(self, text: str, at: Path) -> str | None:
        from dshpc_setup.jobs import staging

        path = self._beside(text)
        try:
            staging.check(text, path)
        except DshpcError as error:
            right = " ".join(error.resolution[:1]) or "Name a file that you can read."
            self.wrong.append(Wrong((*self.path, *at), error.brief, right))
            return None
        return path

    def _parameters(self, given: dict[str, Any], method: Method) -> dict[str, Value]:
        files = {each.name for each in method.parameters if each.type == "file"}
        whole = {
            name: self._beside(value) if name in files and isinstance(value, str) else value
            for name, value in given.items()
        }
        sets, problems = values.table(method, json.dumps([whole]), "parameters.json")
        names = {path_text((0, name)): name for name in (*given, *_names(method))}
        for each in problems:
            at: Path = ("parameters", names[each.path]) if each.path in names else ()
            self.wrong.append(
                Wrong((*self.path, *at), _about(each.path, names, each.what), each.right)
            )
        return sets[0] if sets and not problems else {}

    def _words(self, given: dict[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The words of a command, and the files that they name.

        One that names a file beside the workflow's becomes that file's whole path, also behind the
        = of --config=c.yaml: a job runs in a folder of its own.
        """
        argv: list[str] = []
        files: list[str] = []
        try:
            command = list(words(given["command"]))
        except ValueError:
            command = []
        for at, word in enumerate([*command, *self._args(given)]):
            option, name = self._parted(word, is_program=at == 0)
            path = self._named(name, is_program=at == 0)
            if path is None or os.path.isabs(name):
                argv.append(word)
            else:
                key: Path = ("command",) if at < len(command) else ("args", at - len(command))
                argv.append(option + self._seen(path, name, key))
            files += [path] if path is not None else []
        whole = shlex.join([argv[0], *command[1:]]) if command else given["command"]
        for each in contradictions(Parts({"command": whole}, ())):
            self.wrong.append(Wrong((*self.path, *each.path), each.what, each.right))
        return tuple(argv), tuple(files)

    def _args(self, given: dict[str, Any]) -> Iterator[str]:
        """As they were written: 1e-3 and 0755 are words here, and no numbers."""
        for at, value in enumerate(given.get("args", ())):
            text = self.text.texts.get((*self.path, "args", at))
            yield value if isinstance(value, str) else text or str(value)

    def _named(self, word: str, *, is_program: bool) -> str | None:
        if not word or word.startswith("-") or (is_program and "/" not in word):
            return None
        path = os.path.abspath(os.path.join(self.place.folder, word))
        try:
            return path if os.path.isfile(path) else None
        except ValueError:
            return None

    def _parted(self, word: str, *, is_program: bool) -> tuple[str, str]:
        """ "--config=c.yaml" -> "--config=" and "c.yaml"; a file of the whole name comes first."""
        option, sign, name = word.partition("=")
        if not sign or is_program or self._named(word, is_program=False):
            return "", word
        return option + sign, name

    def _folders(self, argv: Sequence[str]) -> Iterator[str]:
        """What to say of words that name folders: results are written into folders, too, so that one
        is neither looked for nor compared."""
        work = os.path.realpath(self.place.work or self.place.folder)
        for word in argv:
            option, name = self._parted(word, is_program=False)
            path = os.path.abspath(os.path.join(self.place.folder, name))
            if name.startswith("-") or not os.path.isdir(path):
                continue
            if set(name.split("/")) <= {"", ".", ".."}:  # of the job's own folder
                continue
            if not os.path.isabs(name):
                yield (f"{shown(word)} stays as it is, though there is a folder {path}; "
                       f"where that is meant, write {option}{path}.")  # fmt: skip
            elif os.path.realpath(path).startswith(f"{work.rstrip('/')}/"):
                yield f"{path} is a folder: a change in it does not make the job run again."

    def _seen(self, path: str, word: str, key: Path) -> str:
        """The path as jobs have it; what lies outside the work folder they do not see."""
        work = self.place.work
        if work is None:
            return path
        real, under = os.path.realpath(path), os.path.realpath(work).rstrip("/")
        if real.startswith(f"{under}/"):
            return f"{work.rstrip('/')}/{real[len(under) + 1 :]}"
        what = f"{shown(word)} is {path}, and jobs see the work folder only."
        right = f"Put the workflow and its files into {work}."
        self.wrong.append(Wrong((*self.path, *key), what, right))
        return path


def _said(resources: Resources) -> dict[str, Any]:
    """What is not the default, as method.json says it."""
    found = {}
    for each in fields(Resources):
        default = each.default_factory() if each.default_factory is not MISSING else each.default
        value = getattr(resources, each.name)
        if value != default:
            found[each.name] = dict(value) if each.name == "env" else value
    return found


def _inherited(resources: Resources, said: dict[str, Any]) -> dict[str, Any]:
    """The method's own beside what the workflow says, as on the command line: who asks for GPUs gets
    them, and where there shall be none, nothing is said of which."""
    found = _said(resources)
    gpus = said.get("gpus")
    if found.get("optional_gpus") == "never" and (gpus or not _OF_GPUS.isdisjoint(said)):
        del found["optional_gpus"]
    if gpus == 0:
        gone = _OF_GPUS | {"optional_gpus"} | (set() if said.get("shards") else {"cuda"})
        found = {name: value for name, value in found.items() if name not in gone}
    return found


def _names(method: Method) -> list[str]:
    return [each.name for each in method.parameters]


def _about(path: str, names: dict[str, str], what: str) -> str:
    """With the parameter's name: where it was not given, no line of the file has it."""
    return f"{names[path]}: {what}" if path in names else what
