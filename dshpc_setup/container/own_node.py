"""`NodeName=localhost` in a gres.conf of the user's own: other tools call the one node so."""

from __future__ import annotations

import re
from dataclasses import replace

from dshpc_setup.container import check
from dshpc_setup.container.config import Candidate
from dshpc_setup.errors import DshpcError

_NAME = "localhost"
# At the beginning of a word, as slurm_conf reads pairs, and not behind a "#"
_LINE = re.compile(
    rf'(?im)^(?P<before>(?:[^#\n]*\s)?NodeName\s*=\s*"?){_NAME}(?P<after>"?(?=[\s#]|$))', re.ASCII
)


def with_own_name(candidate: Candidate, wanted: str) -> tuple[Candidate, str | None]:
    """The candidate with the node's real name in those lines, and the sentence that says so.

    As it is where a slurm.conf of the user's calls the node localhost, or does not tell the node. The
    user's file is not changed: this is the text that Slurm reads.
    """
    if "gres.conf" not in candidate.customized:
        return candidate, None
    try:
        node = check.node_name(candidate, wanted)
    except DshpcError:
        return candidate, None  # another check has its words for that
    text = _LINE.sub(rf"\g<before>{node}\g<after>", candidate.texts["gres.conf"])
    if node == _NAME or text == candidate.texts["gres.conf"]:
        return candidate, None
    said = f"config/gres.conf: NodeName={_NAME} is taken as this node, {node}."
    return replace(candidate, texts={**candidate.texts, "gres.conf": text}), said
