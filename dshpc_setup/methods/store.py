"""Where methods are found: the project's `methods/` and, under it, the shipped ones."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from dshpc_setup import resources
from dshpc_setup.documents import json_text
from dshpc_setup.documents import shown as words
from dshpc_setup.documents.document import Problem
from dshpc_setup.documents.shown import one_line, shown
from dshpc_setup.errors import DshpcError, usage_error
from dshpc_setup.methods.check import check, contents, may_be_there
from dshpc_setup.methods.model import Method
from dshpc_setup.methods.schema import FILE
from dshpc_setup.methods.structure import nearest
from dshpc_setup.terminal.sanitize import counted

FOLDER = "methods"
Origin = Literal["project", "shipped"]
# In a checkout one's own methods lie beside them
SHIPPED = frozenset(
    "collect gpu-report matmul-benchmark monte-carlo-pi prepare-data torch-check train-model "
    "vector-add".split()
)


@dataclass(frozen=True)
class Entry:
    """A folder with a method.json; `method` is None where that is not valid.

    `name` is the declared one, or the folder's where none can be made out (`is_declared` false).
    Of a valid one `problems` holds notes only.
    """

    name: str
    folder: Path
    origin: Origin
    method: Method | None
    problems: tuple[Problem, ...] = ()
    is_declared: bool = True

    @property
    def file(self) -> Path:
        return self.folder / FILE


def folders(project_folder: Path | None) -> tuple[Path, ...]:
    """The folders that hold methods: the project's, then the shipped ones; each once."""
    shipped = resources.methods()
    own = project_folder / FOLDER if project_folder is not None else None
    if own is None or own.resolve() == shipped.resolve():
        return (shipped,)
    return (own, shipped)


def survey(folders: Sequence[Path]) -> tuple[Entry, ...]:
    """All methods, by name; one of an earlier folder hides its namesakes of later ones."""
    found: dict[str, Entry] = {}
    for folder in folders:
        here = _without_twins([_entry(each, _origin(each)) for each in _method_folders(folder)])
        names = {entry.name for entry in here}
        hidden = names & {entry.name for entry in found.values()}
        found |= {str(entry.folder): entry for entry in here if entry.name not in hidden}
    there = _with_their_needs(tuple(found.values()))
    return tuple(sorted(there, key=lambda each: (each.name, str(each.folder))))


def find(folders: Sequence[Path], name: str) -> Method:
    """The valid method of that name; raises DshpcError with all its problems or the nearest names."""
    for folder in folders if _is_name(name) else ():
        # The name stands in the file as it is, or with escapes, or the folder has it
        near = [each for each in _method_folders(folder) if _may_be(each, name)]
        there = _without_twins([_entry(each, _origin(each)) for each in near])
        named = [entry for entry in there if entry.name == name]
        if named:
            return valid(max(named, key=lambda each: each.is_declared))
    raise unknown(name, survey(folders), folders)


def named(folders: Sequence[Path], text: str) -> Method:
    """The valid method of a name, or of a folder where the text is a path; raises DshpcError."""
    if not is_path(text):
        return find(folders, text)
    folder = Path(text).parent if Path(text).name == FILE else Path(text)
    if not may_be_there(folder / FILE):
        what = f"There is no {FILE} in {one_line(str(folder))}."
        raise usage_error(what, "", f"Make a method there: dshpc method init {text}")
    return valid(read(folder.resolve()), called=text)


def is_path(text: str) -> bool:
    """Of what may be a method's name: those have no slash."""
    return "/" in text or text in (".", "..")


def unknown(name: str, there: Sequence[Entry], folders: Sequence[Path]) -> DshpcError:
    """That there is no such method, with the nearest name."""
    close = nearest(name, [entry.name for entry in there])
    steps = [f"Did you mean {close}?" if close else "See what there is: dshpc method list"]
    in_it = next((each.name for each in there if each.folder.name == name), None)
    if in_it is not None:
        steps = [f"In the folder {name} is the method {in_it}: {FILE} names it so."]
    elif _is_name(name):
        steps.append(f"Or make it: dshpc method init {name}")
    where = f"Looked in: {', '.join(map(str, folders))}"
    return replace(usage_error(f"There is no method {shown(name)}.", where, *steps), absent=True)


def read(folder: Path) -> Entry:
    """The method of one folder, wherever it lies; "." and ".." get their names."""
    named = folder if folder.name not in ("", "..") else folder.resolve()
    return _entry(named, _origin(named))


def valid(entry: Entry, called: str | None = None) -> Method:
    """Its method; raises DshpcError with all the problems where there is none.

    `called`: the path by which it was asked for, where its name may not lead to it.
    """
    if entry.method is not None:
        return entry.method
    count = len(entry.problems)
    raise DshpcError(
        f"The method {entry.name} has {counted(count, 'problem')}.",
        "\n".join(told(entry)),
        (f"Correct {entry.file}, then: dshpc method validate {shlex.quote(called or entry.name)}",),
    )


def told(entry: Entry) -> list[str]:
    """Its problems for people, each on a line that begins with file:line."""
    return [_line(entry.file, each) for each in entry.problems]


def _line(file: Path, each: Problem) -> str:
    where = "" if each.path == "$" else f"{each.path}: "
    note = "note: " if each.note else ""
    return f"{one_line(str(file))}:{each.line}: {note}{where}{each.what} {each.right}"


def _is_name(name: str) -> bool:
    from dshpc_setup.methods.schema import SCHEMA
    from dshpc_setup.methods.structure import differences

    return not list(differences(name, SCHEMA["properties"]["name"]))


def _method_folders(folder: Path) -> Iterator[Path]:
    """Its folders with a method.json, sorted; hidden ones are nobody's methods."""
    try:
        names = sorted(each.name for each in folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise DshpcError(
            f"Cannot read {folder}: {error.strerror}.", "", ("Make it readable for you.",)
        ) from None
    for name in names:
        if not name.startswith(".") and may_be_there(folder / name / FILE):
            yield folder / name


def _may_be(folder: Path, name: str) -> bool:
    if folder.name == name:
        return True
    data = contents(folder / FILE)
    if isinstance(data, Problem):
        return False
    return b"\\u" in data or json.dumps(name, ensure_ascii=False).encode() in data


def _origin(folder: Path) -> Origin:
    """Of a method's folder."""
    among = folder.name in SHIPPED and folder.parent.resolve() == resources.methods().resolve()
    return "shipped" if among else "project"


def _entry(folder: Path, origin: Origin) -> Entry:
    data = contents(folder / FILE)
    if isinstance(data, Problem):
        return Entry(folder.name, folder, origin, None, (data,), is_declared=False)
    method, problems = check(data, folder)
    if method is not None and (outside := _outside(folder)):
        method, problems = None, (*problems, outside)
    name = method.name if method is not None else _declared(data)
    return Entry(name or folder.name, folder, origin, method, problems, name is not None)


def _outside(folder: Path) -> Problem | None:
    """A link out of the folder of methods leads nowhere in the container."""
    if folder.is_symlink() and not folder.resolve().is_relative_to(folder.parent.resolve()):
        what = f"{folder} is a symbolic link to {folder.resolve()}, which jobs do not see."
        return Problem("$", 1, what, f"Copy the folder into {folder.parent}.")
    return None


def _declared(data: bytes) -> str | None:
    """The name in a broken file, where it can be made out."""
    value = json_text.read(data).value
    name = value.get("name") if isinstance(value, dict) else None
    return name if isinstance(name, str) and _is_name(name) else None


def _without_twins(entries: list[Entry]) -> list[Entry]:
    """Two of one name in one folder: neither is valid, and each names the other."""
    by_name: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.is_declared:
            by_name.setdefault(entry.name, []).append(entry)
    return [_twin(each, by_name[each.name]) if each.is_declared else each for each in entries]


def _twin(entry: Entry, namesakes: list[Entry]) -> Entry:
    others = [str(each.file) for each in namesakes if each is not entry]
    if not others:
        return entry
    what = f"Another method has the name {entry.name}: {', '.join(others)}"
    return _broken(entry, ("name",), what, "Each method has a name of its own.")


def _broken(entry: Entry, path: words.Path, what: str, right: str) -> Entry:
    data = contents(entry.file)
    line = json_text.read(data).line(path) if isinstance(data, bytes) else 1
    problem = Problem(words.path_text(path), line, what, right)
    return replace(entry, method=None, problems=(*entry.problems, problem))


def _with_their_needs(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """That every method in `requires` is there, and that none waits for itself in the end."""
    needs = {each.name: each.method.requires for each in entries if each.method}
    names = [each.name for each in entries]
    return tuple(_needing(each, needs, names) for each in entries)


def _needing(entry: Entry, needs: dict[str, tuple[str, ...]], names: list[str]) -> Entry:
    for index, name in enumerate(needs.get(entry.name, ()) if entry.method else ()):
        path: words.Path = ("requires", index)
        if name not in names:
            close = nearest(name, names)
            right = f"Did you mean {shown(close)}?" if close else "See: dshpc method list"
            entry = _broken(entry, path, f"There is no method {shown(name)}.", right)
        elif circle := _circle(entry.name, name, needs):
            what = f"The methods need each other in a circle: {' -> '.join(circle)}."
            entry = _broken(entry, path, what, "One of them must do without.")
    return entry


def _circle(start: str, name: str, needs: dict[str, tuple[str, ...]]) -> list[str]:
    """The way from `name` back to `start`, or nothing."""
    ways, seen = [[start, name]], {name}
    while ways:
        way = ways.pop()
        if way[-1] == start:
            return way
        for each in needs.get(way[-1], ()):
            if each not in seen:
                seen.add(each)
                ways.append([*way, each])
    return []
