"""The service that is meant: found, and refused where its text is not its alone. Pure."""

from __future__ import annotations

import difflib

from dshpc_setup.compose_patch.document import Document
from dshpc_setup.compose_patch.markers import Region
from dshpc_setup.compose_patch.nodes import Node, Pair, effective, own
from dshpc_setup.errors import usage_error


def services(document: Document) -> Node:
    """The mapping under `services`; raises DshpcError where there is none."""
    pair = own(document.root, "services") if document.root.kind == "mapping" else None
    if pair is None:
        raise document.refusal(
            document.root.start,
            "there is no `services` in this file.",
            "",
            "Name a compose file. One of the very first format (services at the top level):"
            " put `services:` above them.",
        )
    if pair.value.kind != "mapping" or not pair.value.pairs:
        raise document.refusal(
            pair.key.start, "there is no service under `services`.", "", "Name a compose file."
        )
    return pair.value


def names(document: Document) -> tuple[str, ...]:
    """The names of all services."""
    return tuple(pair.key.text for pair in services(document).pairs if pair.key.kind == "scalar")


def pair_of(document: Document, name: str) -> Pair:
    """The service's key and value; raises DshpcError (usage) for a name that is not there."""
    pair = own(services(document), name)
    if pair is not None:
        return pair
    there = names(document)
    near = difflib.get_close_matches(name, there, 1)
    say = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(there)}."
    included = own(document.root, "include")
    raise usage_error(
        f"There is no service {name!r} in {document.file}.",
        say,
        *(["If it is in one of the files under `include`, name that file."] if included else []),
    )


def chosen(document: Document, named: str | None, ours: tuple[str, ...]) -> str:
    """The service named, else the only one, else the only one of `ours`, which hold a part of ours.

    Raises DshpcError (usage) where that leaves several.
    """
    if named is not None:
        return pair_of(document, named).key.text
    there = names(document)
    candidates = there if len(there) == 1 else ours
    if len(candidates) == 1:
        return candidates[0]
    raise usage_error(
        f"{document.file} has {len(there)} services: which one is meant?",
        f"There are: {', '.join(there)}.",
        "Name it: --service NAME",
    )


def extent(document: Document, name: str) -> range:
    """The lines of the service, up to where the next key begins or the services end."""
    around = services(document)
    pair = pair_of(document, name)
    begins = [each.key.start for each in around.pairs if each.key.start > pair.key.start]
    end = min(begins) if begins else None
    if end is None:  # what follows in the file is no service
        after = [each.key.start for each in document.root.pairs if each.key.start > pair.key.start]
        end = min(after) if after else None
    last = len(document.lines) if end is None else document.line_of(end)
    return range(document.line_of(pair.key.start), last)


def in_service(document: Document, name: str, regions: tuple[Region, ...]) -> tuple[Region, ...]:
    """Those of the regions that stand in that service."""
    lines = extent(document, name)
    return tuple(region for region in regions if region.first in lines and region.last in lines)


def extended_by(document: Document, name: str) -> tuple[str, ...]:
    """The services of this file that extend it, directly or by another."""
    found = [name]
    for at in found:
        for pair in services(document).pairs:
            extends = effective(pair.value, "extends")[0]
            if (
                extends is not None
                and _extended(extends.value) == at
                and pair.key.text not in found
            ):
                found.append(pair.key.text)
    return tuple(found[1:])


def _extended(value: Node) -> str:
    """The service of this file that `extends` names; "" for one of another file."""
    if value.kind == "scalar":
        return value.text
    named = own(value, "service")
    return named.value.text if named is not None and own(value, "file") is None else ""


def patchable(document: Document, name: str, by_hand: str) -> Node:
    """The service's mapping, of lines of its own; raises DshpcError where it is written otherwise."""
    root = own(document.root, "services")
    pair = pair_of(document, name)
    if root is not None:
        _unshared(document, root, by_hand)
    _unshared(document, pair, by_hand)
    in_lines(document, pair, "mapping", by_hand)
    extends = effective(pair.value, "extends")[0]
    if extends is not None:
        raise document.refusal(
            extends.key.start,
            "the service extends another: what it has from there cannot be seen here.",
            by_hand,
            "Add the lines by hand, to this service or to the one that it extends.",
        )
    return pair.value


def in_lines(document: Document, pair: Pair, kind: str, by_hand: str) -> None:
    """Raises DshpcError unless the value is a mapping or a sequence of lines that are its alone."""
    key, value = pair.key.text, pair.value
    _unshared(document, pair, by_hand)
    todo = "Write it in lines of its own, one entry a line, then run this again."
    what = "a list" if kind == "sequence" else "keys with values"
    if value.tagged:
        why = f"`{key}` carries the tag {value.tag}"
    elif value.empty:
        why, todo = f"`{key}` is empty", "Take that line out, then run this again."
    elif value.kind != kind:
        why = f"`{key}` is not {what}"
    elif value.flow:
        braces = "brackets" if kind == "sequence" else "braces"
        why = f"`{key}` is written in {braces}, where no lines can be added"
    else:
        return
    raise document.refusal(pair.key.start, f"{why}.", by_hand, todo, "Or add the lines by hand.")


def _unshared(document: Document, pair: Pair, by_hand: str) -> None:
    key, value = pair.key.text, pair.value
    if value.uses < 2:
        return
    if pair.alias:
        why = f"`{key}` is only a name (*{value.anchor}) for what stands in {document.place(value.start)}"
    else:
        why = f"`{key}` has the anchor &{value.anchor}, and *{value.anchor} elsewhere would change too"
    raise document.refusal(
        pair.key.start,
        f"{why}.",
        by_hand,
        "Give this service lines of its own instead, then run this again.",
        "Or add the lines by hand.",
    )


def not_merged(document: Document, mapping: Node, key: str, by_hand: str) -> None:
    """Raises DshpcError where a merge key brings that key: one of our own would hide all of it."""
    pair = effective(mapping, key)[0]
    if pair is None:
        return
    raise document.refusal(
        pair.key.start,
        f"the service has `{key}` from here, by a merge key (<<).",
        "\n".join(("A key of its own would hide what it has from there.", by_hand)),
        f"Write `{key}` into the service itself, with what it has from there, then run this again.",
        "Or add the lines by hand.",
    )
