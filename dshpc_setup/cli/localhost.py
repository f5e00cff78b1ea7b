"""`localhost` where Slurm's commands take a node: other tools call the one node so, and Slurm does not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from dshpc_setup.cli import other_tools
from dshpc_setup.documents import foreign
from dshpc_setup.engine_client import Client
from dshpc_setup.machine import Machine

WORD = "localhost"
_ASK_S = 20.0
_STATUS = "/run/dshpc/status.json"
# Command -> its options that take nodes (Slurm 24.11)
_OPTIONS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(other_tools.COMMANDS, ("-w", "--nodelist", "-x", "--exclude")),
    **dict.fromkeys(("squeue", "scancel", "sacct"), ("-w", "--nodelist")),
    "sinfo": ("-n", "--nodes"),
}
_PAIR = re.compile(
    r"(?:node|nodes|nodename|nodenames|nodelist|reqnodelist|excnodelist)=", re.IGNORECASE
)
_NO_NODE = re.compile(r"host(?:names?|list|listsorted)", re.IGNORECASE)  # of `scontrol show`


def meant(command: str, words: Sequence[str]) -> bool:
    """Whether one of the words is `localhost` where a node's name belongs."""
    return list(_named(command, words, "")) != list(words)


def with_node(command: str, words: Sequence[str], node: str) -> list[str]:
    """The words, with the node's own name where `localhost` stands for it."""
    return list(_named(command, words, node))


def node(machine: Machine, engine: Client, runtime: Mapping[str, Any]) -> str:
    """What Slurm calls the node: as the container's start says, else as it is called where nobody
    chose another name."""
    argv = engine.run_in(str(runtime["container"]), "cat", _STATUS)
    done = machine.run(argv, deadline_s=_ASK_S)
    try:
        told = foreign.value(done.stdout) if done.ok else None
    except ValueError:
        told = None
    name = told.get("node") if isinstance(told, dict) else None
    return name if isinstance(name, str) and name else str(runtime.get("prefix") or WORD)


def _named(command: str, words: Sequence[str], node: str) -> Iterator[str]:
    if command == "scontrol":
        yield from _of_scontrol(words, node)
        return
    options = _OPTIONS.get(command, ())
    rest = iter(words)
    for word in rest:
        if word == "--" or not word.startswith("-"):
            yield word
            if command in other_tools.COMMANDS:
                yield from rest  # the program's own
            continue
        yield _in_one_word(word, options, node)
        if word in options:
            yield from (node if each == WORD else each for each in islice(rest, 1))
        elif command in other_tools.COMMANDS and other_tools.takes_next(command, word):
            yield from islice(rest, 1)


def _in_one_word(word: str, options: Sequence[str], node: str) -> str:
    """`--nodelist=localhost`, also cut short as Slurm takes it (`--nodel=`), and `-wlocalhost`."""
    name, equals, value = word.partition("=")
    if equals and value == WORD and name.startswith("--"):
        long = [option for option in options if option.startswith(name) and len(name) > 4]
        return f"{name}={node}" if long else word
    short = word[:2]
    return short + node if short in options and word[2:] == WORD else word


def _of_scontrol(words: Sequence[str], node: str) -> Iterator[str]:
    before = ""
    for word in words:
        pair = _PAIR.match(word)
        if pair is not None and word[pair.end() :] == WORD:
            yield word[: pair.end()] + node
        else:
            yield node if word == WORD and not _NO_NODE.fullmatch(before) else word
        before = word
