"""A GPU stanza put into the text of a compose file, and taken out: text in, text out. Pure.

Only whole lines are put in, between two comment lines of ours; everything else stays byte for byte.
What comes out is read again and compared with what was there, before anybody gets it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dshpc_setup.compose_patch import markers, own, service, splice
from dshpc_setup.compose_patch.additions import Addition, additions_to, unclaimed
from dshpc_setup.compose_patch.document import Document, shape
from dshpc_setup.compose_patch.nodes import Node, effective, plain
from dshpc_setup.errors import DshpcError
from dshpc_setup.passthrough.handover import GpuStanza
from dshpc_setup.render import gpu_lines
from dshpc_setup.render.gpu_lines import CAPABILITIES, ENVIRONMENT, Claim, Part

FILE = "docker-compose.yml"


@dataclass(frozen=True)
class Patched:
    """The new text, the same as the old where there was nothing to do; `notes` are for the user."""

    text: str
    notes: tuple[str, ...] = ()


@lru_cache(maxsize=4)
def _read(text: str, file: str) -> Document:
    """The document; of a large file that takes seconds, and the same text is asked for several times."""
    return Document(text, file)


def chosen_service(text: str, named: str | None, file: str = FILE, *, ours: bool = False) -> str:
    """The service named, else the only one (with `ours`, also the only one that holds our part)."""
    document = _read(text, file)
    holding: tuple[str, ...] = ()
    if ours and named is None:
        found = markers.regions(document)
        holding = tuple(
            name for name in service.names(document) if service.in_service(document, name, found)
        )
    return service.chosen(document, named, holding)


def patched(text: str, name: str, stanza: GpuStanza, file: str = FILE) -> Patched:
    """The text with the stanza in that service, instead of one that we put there earlier.

    The same text where the service says all of it already. Raises DshpcError: usage for an unknown
    service, else for what cannot be done safely, with `file`:line:column.
    """
    before = _read(text, file)
    bare = _bare(before, name)
    parts = gpu_lines.parts(stanza)
    by_hand = "\n".join(
        ["What is to be added to the service:", *_indented(gpu_lines.lines(stanza))]
    )
    mapping = service.patchable(bare, name, by_hand)
    notes = tuple(_notes(bare, mapping, name))
    theirs = _claims(bare, mapping, parts, stanza)
    left = tuple(unclaimed(parts, theirs))
    # the driver's capabilities alone are no reason to touch a service that has its GPUs already
    whole = theirs and theirs >= own.claims_of(parts) and all(p.path == ENVIRONMENT for p in left)
    additions = () if whole else tuple(additions_to(bare, name, mapping, left, by_hand))
    if not additions:
        if theirs:
            notes = (f"The service {name} has this GPU stanza already, in its own lines.", *notes)
        return Patched(bare.text, notes)
    new = _spliced(bare, additions, stanza.comment)
    after = _proven(bare, new, name, additions, by_hand)
    notes = (*_without_capabilities(after, name, parts), *notes)
    if _ours(before, name) == _ours(after, name):
        return Patched(text, (f"The service {name} has this GPU stanza already.", *notes))
    return Patched(new, notes)


def unpatched(text: str, name: str, file: str = FILE) -> Patched:
    """The text without what we put into that service: byte for byte as before where nobody edited it.

    The same text where there is nothing of ours. Raises DshpcError as `patched` does.
    """
    return _without_ours(_read(text, file), name)


def _bare(document: Document, name: str) -> Document:
    """The document without what we put into that service."""
    text = _without_ours(document, name).text
    return document if text == document.text else _read(text, document.file)


def _without_ours(document: Document, name: str) -> Patched:
    service.pair_of(document, name)
    ours = service.in_service(document, name, markers.regions(document))
    if not ours:
        return Patched(document.text, (f"There is nothing of dshpc in the service {name}.",))
    text = markers.without(document, ours)
    gone = {number for region in ours for number in region.numbers}
    try:
        same = shape(document, gone) == shape(_read(text, document.file))
    except DshpcError:
        same = False
    if not same:
        raise document.refusal(
            document.start_of(ours[0].last),
            "the part that dshpc added cannot be taken out alone.",
            "Lines behind it belong to it by their indentation.",
            "Move your own lines out of it, then run this again.",
        )
    return Patched(text)


def _claims(
    document: Document, mapping: Node, parts: tuple[Part, ...], stanza: GpuStanza
) -> frozenset[Claim]:
    """What of our claims the service makes itself; raises DshpcError where it makes others."""
    ours = own.claims_of(parts)
    raw_nodes = any(claim.kind == "node" for claim in ours)
    theirs = set()
    agreeing = own.agreeing(parts)
    for item in own.said(document, mapping, raw_nodes=raw_nodes):
        if item.claim in ours:
            theirs.add(item.claim)
        elif item.claim not in agreeing:
            raise own.foreign(document, item, stanza.comment.split("\n")[0])
    return frozenset(theirs)


def _spliced(document: Document, additions: tuple[Addition, ...], comment: str) -> str:
    remarks = [f"#   {' '.join(line.split())}" for line in _printable(comment).split("\n") if line]
    # why it is there is said once: where the GPUs are, rather than where a variable is
    main = next((item for item in additions if not item.variables), additions[0])
    blocks = []
    for addition in additions:
        place = splice.place_in(document, addition.block)
        said = remarks if addition is main else []
        lines = tuple(markers.marked([*said, *addition.lines], place.column))
        blocks.append(splice.Block(place, len(addition.path), lines))
    return splice.put_in(document, blocks)


def _proven(
    before: Document, new: str, name: str, additions: Iterable[Addition], by_hand: str
) -> Document:
    """The new text, read; raises DshpcError unless it says what was there and the additions alone."""
    wanted_there = {(item.path, key, repr(value)) for item in additions for key, value in item.says}
    after: Document | None
    try:
        after = _read(new, before.file)
        ours = service.in_service(after, name, markers.regions(after))
        gone = {number for region in ours for number in region.numbers}
        found = set(_found(after, service.pair_of(after, name).value, gone, ()))
        right = (
            markers.without(after, ours) == before.text
            and shape(after, gone) == shape(before)
            and found == wanted_there
        )
    except DshpcError:
        after, right = None, False
    if after is not None and right:
        return after
    raise before.refusal(
        service.pair_of(before, name).key.start,
        "this service is written in a way that lines cannot be added to safely.",
        f"With them the file would not say what it says now, and the GPU beside.\n{by_hand}",
        "Add the lines by hand.",
    )


def _found(
    document: Document, node: Node, gone: set[int], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """What begins on the lines of ours: the path of its block, its key and its value."""
    for pair in node.pairs:
        if document.line_of(pair.key.start) in gone:
            yield path, pair.key.text, repr(plain(pair.value))
        elif not pair.alias:
            yield from _found(document, pair.value, gone, (*path, pair.key.text))
    for item in node.items:
        if document.line_of(item.start) in gone:
            yield path, "", repr(plain(item))


def _ours(document: Document, name: str) -> tuple[list[Any], ...]:
    """Our lines in that service, and what they say in the place where they stand."""
    ours = service.in_service(document, name, markers.regions(document))
    gone = {number for region in ours for number in region.numbers}
    said = sorted(_found(document, service.pair_of(document, name).value, gone, ()))
    return sorted(markers.body_of(document, region) for region in ours), said


def _notes(document: Document, mapping: Node, name: str) -> Iterator[str]:
    """What the user would not expect."""
    others = service.extended_by(document, name)
    if others:
        yield f"It counts for what extends the service {name} as well: {', '.join(others)}."
    privileged = effective(mapping, "privileged")[0]
    if privileged is not None and privileged.value.text.lower() in ("true", "yes", "on"):
        says = "it reaches every GPU of the machine, also those that are not selected"
        yield f"The service {name} is privileged: {says}."


def _without_capabilities(document: Document, name: str, parts: tuple[Part, ...]) -> Iterator[str]:
    """That the variable of the driver's capabilities could be left out only, where it was."""
    there = {each for each, *_ in own.environment(service.pair_of(document, name).value)}
    wanted_there = {each for part in parts for each, _ in part.entries}
    if CAPABILITIES in wanted_there - there:
        why = "`environment` is shared, or no lines can be added to it"
        yield (
            f"{CAPABILITIES} was left out ({why}): the container gets the driver's parts that"
            " its image asks for, else compute and utility."
        )


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() or char == "\n" else " " for char in text)
