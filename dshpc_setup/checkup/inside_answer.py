"""What a container said of itself for doctor, read."""

from __future__ import annotations

from dataclasses import replace

from dshpc_setup import codec
from dshpc_setup.container.status import printable
from dshpc_setup.documents import foreign
from dshpc_setup.engine import containers
from dshpc_setup.engine.inspecting import Answer
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.machine import CommandResult
from dshpc_setup.observed.model import Inside


def said_inside(answer: Answer, container: str) -> tuple[Inside | None, str]:
    """What a running container said of itself; or why it did not."""
    try:
        asked = containers.ran(answer.result, container)
    except DshpcError as error:
        return None, f"{error.brief}. {error.details}".strip()
    if not asked.ok:
        return None, _refusal(asked)
    inside = parse_inside(asked.stdout)
    if inside is None:
        return None, "Its answer cannot be read: the image is of another version of dshpc."
    return replace(inside, asked_at=answer.at), ""


def _refusal(asked: CommandResult) -> str:
    if asked.state == "timeout":
        return f"dshpc-node observe did not answer within {asked.ms / 1000:.0f} seconds."
    if asked.code == Exit.USAGE:
        return "Its image was built by an older version of dshpc, which cannot be asked that."
    said = printable(asked.text).splitlines()
    return f"dshpc-node observe failed: {said[-1] if said else f'exit code {asked.code}'}"


def parse_inside(text: str) -> Inside | None:
    """What `dshpc-node observe` printed, None where it is no such object; unknown fields are left."""
    try:
        value = foreign.value(text)
        if not isinstance(value, dict) or "wheel_version" not in value:
            return None
        return codec.from_json(Inside, value, halves=False)
    except (ValueError, RecursionError):
        return None
