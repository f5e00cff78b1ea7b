"""What can stand at the end of a command line: commands, options, and the names of things that are there.

A shell asks by `dshpc __complete -- WORD...`, of which the last word is being typed. Each answer is a line:
the word, a tab, what it is. No answer at all lets the shell offer files. Nothing here waits: the one question
to the engine, for jobs, has a fifth of a second (DSHPC_COMPLETION_S), and all else is read from files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence

from dshpc_setup.terminal.sanitize import plain

Answer = tuple[str, str]
WORD = "__complete"
_DEADLINE_S = 0.2
_MOST = 200

_ARGUMENTS: dict[tuple[str, ...], str] = {
    ("job", "show"): "jobs",
    ("job", "logs"): "jobs",
    ("job", "cancel"): "jobs",
    ("scancel",): "jobs",
    ("sattach",): "jobs",
    ("sstat",): "jobs",
    ("method", "run"): "methods",
    ("method", "show"): "methods",
    ("method", "check"): "methods",
    ("method", "validate"): "methods",
    ("config", "set"): "settings",
    ("config", "show"): "settings",
    ("config", "unset"): "settings",
    ("explain",): "findings",
    **{("node", verb): "named_nodes" for verb in ("show", "drain", "resume", "logs", "remove")},
}
_OPTIONS = {
    "--target": "nodes",
    "-t": "nodes",
    "--nodelist": "nodes",
    "--node": "named_nodes",
    "-w": "nodes",
    "--only": "findings",
    "--skip": "findings",
    "--simulate": "profiles",
}
_NOT_OF = {("detect", "--only"), ("srun", "-t"), ("sbatch", "-t"), ("salloc", "-t")}


def print_answers(words: Sequence[str]) -> int:
    """Print them; the exit code says whether there are any. A shell never gets an error."""
    try:
        lines = [f"{word}\t{' '.join(plain(about).split())}\n" for word, about in answers(words)]
    except Exception:  # noqa: BLE001 -- in the midst of somebody's typing
        return 1
    os.write(1, "".join(lines).encode(errors="replace"))
    return 0 if lines else 1


def answers(words: Sequence[str]) -> list[Answer]:
    """Those that begin with the last word."""
    *before, current = words or [""]
    kind = _kind(before, current)
    found = _KINDS[kind]() if kind is not None else _of_parser(before, current)
    return [each for each in dict(found).items() if each[0].startswith(current)][:_MOST]


def _kind(before: Sequence[str], current: str) -> str | None:
    """Of what the word is the name, where it is a thing and no part of our own language."""
    if before and before[-1] in _OPTIONS and (before[0], before[-1]) not in _NOT_OF:
        return _OPTIONS[before[-1]]
    if current.startswith("-"):
        return None
    kind = _ARGUMENTS.get(tuple(before[:2])) or _ARGUMENTS.get(tuple(before[:1]))
    if kind == "settings" and before[1] == "set" and len(before) > 2:  # the value
        return None
    return kind


def _of_parser(before: Sequence[str], current: str) -> Iterable[Answer]:
    from dshpc_setup.cli import manual

    level = manual.commands()
    command: manual.Command | None = None
    for word in before:
        deeper = next((each for each in level if each.words[-1] == word), None)
        if deeper is None:
            break
        command, level = deeper, deeper.commands
    if not current.startswith("-"):
        return [(each.words[-1], each.help) for each in level]
    if command is None:
        return [
            ("--help", "Show this message and exit."),
            ("--version", "Show the version and exit."),
        ]
    return [(name, option.help) for option in command.options for name in option.names[-1:]]


def _jobs() -> Iterator[Answer]:
    """The caller's own, from Slurm; none where it does not answer at once."""
    from dshpc_setup.cli import exec as cli_exec
    from dshpc_setup.cli import exec_caller
    from dshpc_setup.machine.local import LocalMachine

    call = cli_exec.Call("squeue", ["-h", "--me", "-o", "%i %T %j"], cli_exec.runtime(os.environ))
    call.is_slurm = False  # no waiting for a cluster that is starting
    argv = call.client(exec_caller.calling_user(os.environ), os.environ)
    deadline_s = float(os.environ.get("DSHPC_COMPLETION_S") or _DEADLINE_S)
    said = LocalMachine().run(argv, deadline_s=deadline_s)
    for line in said.stdout.splitlines() if said.code == 0 else ():
        job, _, about = line.partition(" ")
        if job[:1].isdigit():
            yield plain(job), about.lower()


def _methods() -> Iterator[Answer]:
    from pathlib import Path

    from dshpc_setup import resources
    from dshpc_setup.cli import exec as cli_exec

    own = Path(cli_exec.project_folder(os.environ)) / "methods"
    for folder in (own, resources.methods()):
        yield from ((path.parent.name, "") for path in sorted(folder.glob("*/method.json")))


def _nodes() -> Iterator[Answer]:
    yield from _named_nodes()
    yield "localhost", "the controller's node"


def _named_nodes() -> Iterator[Answer]:
    """The controller's, and those of docker-compose.yml."""
    import re
    from pathlib import Path

    from dshpc_setup.cli import exec as cli_exec

    name = str(cli_exec.runtime(os.environ)["container"]).removesuffix("-slurm")
    yield name, "the controller's node"
    try:
        text = (Path(cli_exec.project_folder(os.environ)) / "docker-compose.yml").read_text()
    except (OSError, UnicodeDecodeError):
        return
    workers = re.findall(r'(?m)^    hostname: "([A-Za-z0-9._-]+)"$', text)
    yield from ((each, "a worker") for each in workers if each != name)


def _settings() -> Iterator[Answer]:
    from dshpc_setup.settings.declarations import DECLARATIONS

    return ((each.name, each.help) for each in DECLARATIONS)


def _findings() -> Iterator[Answer]:
    from dshpc_setup import resources

    for path in sorted((resources.share() / "docs/findings").glob("DSH-*.md")):
        with path.open(encoding="utf-8") as file:
            yield path.stem, file.readline().partition(": ")[2]


def _profiles() -> Iterator[Answer]:
    from dshpc_setup.machine.profiles import MIG_MODELS, MODELS

    return ((name, each.name) for name, each in {**MODELS, **MIG_MODELS}.items())


_KINDS: dict[str, Callable[[], Iterable[Answer]]] = {
    "jobs": _jobs,
    "methods": _methods,
    "nodes": _nodes,
    "named_nodes": _named_nodes,
    "settings": _settings,
    "findings": _findings,
    "profiles": _profiles,
}

_BASH = r"""_dshpc() {
    local line program=${COMP_WORDS[0]/#\~/$HOME}
    COMPREPLY=()
    while IFS= read -r line; do
        COMPREPLY+=("${line%%$'\t'*}")
    done < <("$program" __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _dshpc dshpc
"""
_ZSH = r"""_dshpc() {
    local line
    local -a found
    while IFS= read -r line; do
        found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
    done < <(${~words[1]} __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)
    if (( $#found )); then _describe dshpc found; else _files; fi
}
if [[ $funcstack[1] = _dshpc ]]; then _dshpc "$@"; else compdef _dshpc dshpc; fi
"""
_FISH = r"""function __dshpc_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l program $words[1]
    set -e words[1]
    $program __complete -- $words "$current" 2>/dev/null; or __fish_complete_path "$current"
end
complete -c dshpc -f -a '(__dshpc_complete)'
"""


def scripts(mark: str) -> dict[str, str]:
    """What each shell reads: `bash`, `zsh`, `fish` -> text."""
    return {
        "bash": f"# {mark}\n{_BASH}",
        "zsh": f"#compdef dshpc\n# {mark}\n{_ZSH}",
        "fish": f"# {mark}\n{_FISH}",
    }
