"""Which configuration is in force, ours or the user's for each file; the swap into /etc/slurm."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from dshpc_setup import codec
from dshpc_setup.container import key_set
from dshpc_setup.documents import foreign
from dshpc_setup.errors import DshpcError, Fix, words_of
from dshpc_setup.files.storage import cannot_write, read_text, replace_text
from dshpc_setup.slurm.paths import Paths

_MOST_BYTES = 4 << 20
_BESIDE = {
    "plugstack.conf": "/usr/local/lib/dshpc/task-place.conf",
    "oci.conf": "/usr/local/lib/dshpc/oci.conf",
}
USERS_MAY_OWN = ("slurm.conf", "gres.conf", "cgroup.conf")


@dataclass(frozen=True)
class Candidate:
    """File name -> text; `customized`: name -> "custom" or "edited" for the user's own."""

    texts: Mapping[str, str]
    customized: Mapping[str, str]
    sha256: Mapping[str, str]  # of what was read from /config
    rendered: Mapping[str, str] = field(default_factory=dict)  # what we would have written
    extra: tuple[str, ...] = ()  # lines of the rendered slurm.conf that are slurm_conf_extra's

    def where(self, name: str) -> str:
        """Where a person finds the file."""
        return self.own(name) or f"/etc/slurm/{name} (rendered)"

    def own(self, name: str) -> str | None:
        """The file in the project folder, where it is the user's own."""
        return f"config/{name}" if name in self.customized else None


def choose(paths: Paths, rendered: Mapping[str, str]) -> Candidate:
    """Rendered texts, less those that the user made his own in the mounted `config/`."""
    from dshpc_setup.files import ownership

    recorded = _manifest(paths)
    texts, customized, hashes = dict(rendered), {}, {}
    for name in USERS_MAY_OWN:
        text = _read(paths, name)
        if text is None:
            continue
        hashes[name] = ownership.digest(text)
        owner = ownership.classify(text, recorded.get(f"config/{name}"))
        if owner in ("custom", "edited"):
            texts[name] = text.removeprefix(ownership.BOM)  # Slurm would take it for a word
            customized[name] = str(owner)
    return Candidate(texts, customized, hashes, rendered)


def read_file(path: str) -> str | None:
    """The text of a configuration file, None where there is none; OSError for what is no file."""
    if os.path.exists(path) and not os.path.isdir(path):
        if not os.path.isfile(path):
            raise OSError(errno.EINVAL, "it is not a regular file")  # a pipe would be waited for
        if os.path.getsize(path) > _MOST_BYTES:
            raise OSError(errno.EFBIG, f"it is larger than {_MOST_BYTES >> 20} MiB")
    return read_text(path)


def _read(paths: Paths, name: str) -> str | None:
    """A file of `config/`; DshpcError where it cannot be read or is no text."""
    try:
        text = read_file(f"{paths.config}/{name}")
    except OSError as error:
        raise DshpcError(
            f"config/{name} cannot be read: {error.strerror or error}.",
            "It must be a text file that the container may read.",
            (
                Fix("See what it is", f"ls -ld config/{name}", step="look", place="project"),
                "Then make it a text file, or put it aside, to have it written again: "
                f"{_aside(name)}",
            ),
            file=f"config/{name}",
        ) from None
    if text is not None and "\0" in text:
        raise _no_text(name, text)
    return text


def _no_text(name: str, text: str) -> DshpcError:
    number = text[: text.index("\0")].count("\n") + 1
    return DshpcError(
        f"config/{name}, line {number}: it holds a NUL character, so the file is no plain text.",
        "A text that was saved as UTF-16 holds many of them; it must be UTF-8.",
        (
            f"Save config/{name} as UTF-8, without that character.",
            Fix(
                "Or put it aside, to have it written again",
                _aside(name),
                step="alternative",
                place="project",
            ),
        ),
        file=f"config/{name}",
    )


def _aside(name: str) -> str:
    return f"mv config/{name} config/{name}.old && configure-environment"


@dataclass(frozen=True)
class _Manifest:
    files: Mapping[str, str]


def _manifest(paths: Paths) -> Mapping[str, str]:
    text = _read(paths, "manifest.json")
    if text is None:
        return {}
    try:
        return codec.from_json(_Manifest, foreign.value(text)).files
    except ValueError as error:
        raise DshpcError(
            "config/manifest.json cannot be read, so it is not known which files are yours.",
            words_of(error),
            (Fix("Put it aside, to have it made again", _aside("manifest.json"), place="project"),),
        ) from None


def write_set(folder: str, texts: Mapping[str, str], key: str) -> None:
    """All files of one configuration in a new folder, and beside them links to what is no text of it.

    That of the key bears the name by which Slurm reads what the file holds: a set of keys, or one key.
    That of the plugin is read where a slurm.conf of the user's has no PlugStackConfig; oci.conf says how jobs
    get into images.
    """
    try:
        if os.path.lexists(folder):
            import shutil

            shutil.rmtree(folder)
        os.makedirs(folder, mode=0o755)
        for name, text in texts.items():
            replace_text(f"{folder}/{name}", text, sync=False)
        os.symlink(key, f"{folder}/{_key_name(key)}")
        for name, place in _BESIDE.items():
            os.symlink(place, f"{folder}/{name}")
    except OSError as error:
        raise cannot_write(folder, error) from None


def _key_name(key: str) -> str:
    try:
        with open(key, "rb") as file:
            return "slurm.jwks" if key_set.is_set(file.read(64)) else "slurm.key"
    except FileNotFoundError:
        return "slurm.key"


def activate(paths: Paths, folder: str) -> None:
    """Make /etc/slurm this folder, all files in one step."""
    target = paths.etc_slurm
    try:
        if os.path.isdir(target) and not os.path.islink(target):
            raise DshpcError(
                f"{target} is a folder of its own in this container.",
                "It must be a link that can be swapped as a whole; something is mounted there.",
                ("Mount your files as /config instead, marked with USER_CUSTOMIZED=true.",),
            )
        link = f"{target}.new"
        if os.path.lexists(link):
            os.unlink(link)
        os.symlink(folder, link)
        os.replace(link, target)
    except OSError as error:
        raise cannot_write(target, error) from None


def load_last_good(paths: Paths) -> dict[str, str] | None:
    """The texts of the last start that got ready, None before the first."""
    text = read_text(_last_good(paths))
    if text is None:
        return None
    try:
        return codec.from_json(dict[str, str], foreign.value(text))
    except ValueError:
        return None  # damaged: as good as none, and written again by the next good start


def save_last_good(paths: Paths, texts: Mapping[str, str]) -> None:
    # Not synced: a start is timed, and one that is damaged by a power cut counts as none
    replace_text(_last_good(paths), json.dumps(dict(texts), indent=1) + "\n", sync=False)


def _last_good(paths: Paths) -> str:
    return f"{paths.own}/last-good.json"
