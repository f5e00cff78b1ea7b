"""Settings and configuration files as text and as JSON."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from dshpc_setup import settings as settings_module
from dshpc_setup.cli import print_json, put
from dshpc_setup.cluster import config_files, own_files
from dshpc_setup.cluster.config_diff import Differences
from dshpc_setup.errors import DshpcError, usage_error
from dshpc_setup.files import swap
from dshpc_setup.files.atomic import read_error
from dshpc_setup.machine import Machine
from dshpc_setup.plan import wrong_settings
from dshpc_setup.project.folder import Project
from dshpc_setup.settings import BY_NAME, DECLARATIONS, Settings, Source, WrongSetting, together
from dshpc_setup.settings.edited import as_text, changed, joined, without
from dshpc_setup.settings.edited import names as names_in
from dshpc_setup.settings.overruled import Overruled
from dshpc_setup.settings.shown import settings_json as settings_json
from dshpc_setup.settings.wrong import OWN_FILE
from dshpc_setup.terminal.command_names import as_called
from dshpc_setup.terminal.sanitize import harmless

_COLOURS = {"+": "\033[32m", "-": "\033[31m", "@": "\033[36m"}


def print_settings(
    settings: Settings,
    kept_out: Sequence[Overruled] = (),
    only: str | None = None,
    *,
    in_force: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Every one, or `only` that one, and below those that a file of the user's own keeps out, what to do.

    `in_force`: what the cluster came to, for settings that nobody chose.
    """
    shown = [item for item in DECLARATIONS if only in (None, item.name)]
    kept_out = [each for each in kept_out if only in (None, each.setting)]
    width = max(len(item.name) for item in shown)
    for item in shown:
        source = settings.sources[item.name]
        where = source.where if source.origin == "default" else f"{source.origin}: {source.where}"
        first, *more = as_text(getattr(settings, item.name)).split("\n")
        value = first or in_force.get(item.name, "-")
        print(harmless(f"{item.name:<{width}} {value:<22} {where}"))
        for line in more:  # of a text with several
            print(harmless(f"{'':<{width}} {line}"))
        for each in kept_out:
            if each.setting == item.name:
                print(
                    harmless(f"{'':<{width}} (not in force: config/{each.file} is your own file)")
                )
    for each in kept_out:
        sys.stderr.write(f"dshpc: {as_called(harmless(each.sentence))}\n")


def show_file(machine: Machine, project: Project, name: str, *, json_output: bool) -> None:
    """The text and nothing else on stdout, byte for byte; what is to be known of it on stderr."""
    found = config_files.show(machine, project, name)
    if json_output:
        print_json(found.to_json())
        return
    if found.note:
        sys.stderr.write(f"dshpc: {as_called(found.note)}\n")
        sys.stderr.flush()
    put("")  # where stdout is closed, it says so
    try:
        sys.stdout.buffer.write(found.text.encode("utf-8", "surrogateescape"))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:  # a full disk
        raise DshpcError("The text could not be printed.", str(error)) from None


def print_differences(found: Differences) -> None:
    for note in found.notes:
        sys.stderr.write(f"dshpc: {as_called(note)}\n")
    terminal = sys.stdout is not None and sys.stdout.isatty()
    for item in found.found:
        text = harmless(item.text) if terminal else item.text
        put(coloured(text) if terminal and _may_colour() else text)


def _may_colour() -> bool:
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") not in (None, "", "dumb")


def coloured(diff: str) -> str:
    """The lines of a unified diff in the colours that people know; the two labels in bold."""
    said = []
    for line in diff.splitlines(keepends=True):
        label = line.startswith(("--- ", "+++ "))
        start = "\033[1m" if label else _COLOURS.get(line[:1], "")
        body = line.rstrip("\n")
        said.append(f"{start}{body}\033[0m{line[len(body) :]}" if start else line)
    return "".join(said)


def _whole(path: Path) -> str:
    """With its own line ends: what is written is compared with it."""
    with path.open(encoding="utf-8", newline="") as file:
        return file.read()


def _plain_ends(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def set_in_file(project: Project, name: str, values: list[str]) -> None:
    """Write the setting into the project's dshpc.yaml; a remembered flag would still outrank it.

    What is wrong with other settings stays as it is, and is told.
    """
    project.need_own()
    value = joined(name, values)
    path = project.folder / OWN_FILE
    try:
        text = _whole(path)
    except FileNotFoundError:
        text = None
    except (OSError, UnicodeDecodeError) as error:
        raise read_error(error, path) from None
    before = None if text is None else _plain_ends(text)
    new = changed(before, name, value)
    others = {key: flag for key, flag in project.remembered.items() if key != name}
    wrong = _wrong(new, others)
    known = {each.setting for each in _wrong(before or "", others)} - {name}
    if any(each.setting not in known for each in wrong):
        refused = _wrong(new, others, typed=name)
        raise together(each for each in refused if each.setting not in known)
    swap.write(path, new, text, owner=project.owner)
    shown = value if "\n" not in value else f"{len(value.splitlines())} lines"
    kept_out = () if wrong else _kept_out(project, new, others, name)
    print(as_called(f"{path}: {name} = {shown}.{'' if wrong or kept_out else _APPLY}"))
    for each in kept_out:
        sys.stderr.write(f"{as_called(each.sentence)}\n")
    if name in project.remembered:
        print(as_called(f"A remembered flag still outranks it: dshpc config unset {name}"))
    _tell_wrong(wrong)


_APPLY = " Run configure-environment to put it into effect."


def _wrong(
    text: str, remembered: Mapping[str, str], typed: str | None = None
) -> tuple[WrongSetting, ...]:
    """What cannot be used of dshpc.yaml with that text, in which `typed` stands nowhere yet."""
    read = settings_module.read(yaml_text=text, remembered=remembered)
    values = read.settings
    if typed is not None:
        values = replace(values, sources={**values.sources, typed: Source("flag", "")})
    return (*read.wrong, *wrong_settings(values))


def _kept_out(
    project: Project, text: str, remembered: Mapping[str, str], name: str
) -> tuple[Overruled, ...]:
    """Where a file of the user's own keeps out what that text says of a setting."""
    found = settings_module.read(yaml_text=text, remembered=remembered).settings
    return tuple(each for each in own_files.of_project(project, found) if each.setting == name)


def _tell_wrong(wrong: Sequence[WrongSetting]) -> None:
    """What is left to be corrected, on stderr."""
    for each in sorted(wrong, key=lambda item: item.place):
        sys.stderr.write(as_called(f"Still wrong: {each.brief} {each.remedy}") + "\n")


def forget(project: Project, names: list[str]) -> None:
    """Drop remembered flags, and take the others out of dshpc.yaml, also what is wrong there.

    Of one that is both remembered and wrong in the file, the file's goes: the flag is what is in force.
    Raises DshpcError for a name that is no setting, or that neither of both has: nothing is changed.
    """
    project.need_own()
    remembered, path = project.remembered, project.folder / OWN_FILE
    text = _text_of(path, needed=not set(names) <= remembered.keys())
    there = names_in(_plain_ends(text))
    wrong = {each.setting for each in _wrong(text, remembered) if each.in_own_file}
    in_file = [
        name for name in names if name in there and (name not in remembered or name in wrong)
    ]
    for name in names:
        if name not in BY_NAME and name not in there:
            near = difflib.get_close_matches(name, [*BY_NAME, *there], 1)
            raise usage_error(
                f"There is no setting {name!r}.",
                f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(BY_NAME)}.",
            )
        if name not in remembered and name not in in_file:
            raise usage_error(
                f"{name} is not set here.",
                "No flag is remembered for it, and dshpc.yaml does not have it.",
                "See: dshpc config show",
            )
    kept = _plain_ends(text)
    if in_file:
        for name in in_file:
            kept = without(kept, name)
        swap.write(path, kept, text, owner=project.owner)
        print(harmless(f"Taken out of {path}: {', '.join(in_file)}."))
    if flags := [name for name in names if name in remembered and name not in in_file]:
        project.forget(flags)
        print(f"Forgotten: {', '.join(flags)}.")
    if left := _wrong(kept, project.remembered):
        _tell_wrong(left)
    else:
        print(as_called(_APPLY.strip()))


def _text_of(path: Path, *, needed: bool) -> str:
    """ "" where there is none, or where it cannot be read and is not needed: a remembered flag can be
    forgotten all the same. Raises DshpcError where it is needed."""
    try:
        text = _whole(path)
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        if not needed:
            return ""
        raise read_error(error, path) from None
    unread = [each for each in settings_module.read(yaml_text=text).wrong if each.kind == "file"]
    if needed and unread:
        raise together(unread)
    return text
