"""What a service of the user's own says about GPUs already: the same as ours, or something else. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from dshpc_setup import gpu_vendors
from dshpc_setup.compose_patch.document import Document
from dshpc_setup.compose_patch.nodes import Node, meant, plain, reached
from dshpc_setup.errors import DshpcError
from dshpc_setup.passthrough.handover import USUAL_DRIVER
from dshpc_setup.render import gpu_lines
from dshpc_setup.render.gpu_lines import RESERVATIONS, Claim, Part, read

_READ = {
    ("runtime",): "runtime",
    ("gpus",): "gpus",
    RESERVATIONS: "a reservation",
    ("devices",): "devices",
}
_VARIABLE = re.compile(r"(?<!\$)(?:\$\$)*\$(?!\$)")


@dataclass(frozen=True, eq=False)
class Said:
    """A claim of the user's, and the lines that make it: those of `first` to those of `last`."""

    claim: Claim
    words: str  # "a reservation of GPUs"
    node: Node  # where it stands
    by_merge: bool


def claims_of(parts: Iterable[Part]) -> frozenset[Claim]:
    """What a stanza of ours says, in the same terms."""
    found = (claim for part in parts for claim in read(part.below(part.path)))
    return frozenset(
        _in_any_order(claim)
        for claim in found
        if claim.kind != "group" and (claim.kind != "variable" or claim.name in gpu_lines.VISIBLE)
    )


def said(document: Document, service: Node, *, raw_nodes: bool) -> Iterator[Said]:
    """Every claim of the service on GPUs; with `raw_nodes` also on nodes of AMD, Intel and WSL.

    Raises DshpcError where a variable stands in the place of one.
    """
    for path, what in _READ.items():
        _no_variable(document, service, path, what)
    for claim in read(meant(service)):
        words = _words(claim, raw_nodes)
        if words and (found := reached(service, claim.place)):
            yield Said(_in_any_order(claim), words, found.place, found.shared)


def _words(claim: Claim, raw_nodes: bool) -> str:
    """What of GPUs is asked for; "" where it is of something else."""
    if claim.kind == "request" or (claim.kind == "cdi" and not claim.written):
        return "the key gpus" if claim.place == ("gpus",) else "a reservation of GPUs"
    if claim.kind == "runtime" and claim.name in gpu_lines.RUNTIMES:
        return f"the runtime {claim.name}"
    if claim.kind == "variable" and claim.name in gpu_lines.VISIBLE:
        return f"the variable {claim.name}"
    nodes = (gpu_lines.NODE, gpu_lines.RAW_NODE) if raw_nodes else (gpu_lines.NODE,)
    is_node = claim.kind == "node" and any(node.match(claim.name) for node in nodes)
    return f"the device {claim.written}" if claim.kind == "cdi" or is_node else ""


def _in_any_order(claim: Claim) -> Claim:
    return replace(claim, value=tuple(sorted(claim.value)))


def environment(service: Node) -> Iterator[tuple[str, str | None, Node, bool]]:
    """Name, value (None: taken from the shell), where it stands, and whether a merge key brings it."""
    for claim in read(meant(service)):
        if claim.kind == "variable" and (found := reached(service, claim.place)):
            yield claim.name, next(iter(claim.value), None), found.place, found.shared


def agreeing(parts: Iterable[Part]) -> frozenset[Claim]:
    """What may stand beside a stanza of ours: the variable that says what its device request says.

    The engine's NVIDIA driver sets it to that value by itself.
    """
    claims = (claim for part in parts for claim in read(part.below(part.path)))
    usual = gpu_vendors.of(USUAL_DRIVER).runtime_variable
    return frozenset(
        Claim("variable", usual, (",".join(claim.value),))
        for claim in claims
        if claim.kind == "request" and claim.name == USUAL_DRIVER
    )


def foreign(document: Document, item: Said, wanted: str) -> DshpcError:
    """The refusal for a claim that is not ours."""
    last = document.line_of(max(item.node.start, _last_offset(document, item.node))) + 1
    first = document.line_of(item.node.start) + 1
    where = f"line {first}" if first == last else f"lines {first} to {last}"
    todo = f"Take out {where}, and what else hands over GPUs there, then run this again."
    if item.by_merge:
        todo = (
            f"Other services may share {where}: give this service a stanza of its own by hand,"
            " or take the GPU out of what they share."
        )
    return document.refusal(
        item.node.start,
        f"the service has a GPU stanza of its own: {item.words}.",
        f"It is not what would be added: {wanted}",
        todo,
        "Or keep yours: then there is nothing to add.",
    )


def _no_variable(document: Document, service: Node, path: tuple[str, ...], what: str) -> None:
    found = reached(service, path)
    for node in (found.value.items or [found.value]) if found else ():
        if _VARIABLE.search(str(plain(node))):
            raise document.refusal(
                node.start,
                f"a variable is in {what}: whether that is a GPU already cannot be seen.",
                "",
                "Write the value itself there, then run this again.",
            )


def _last_offset(document: Document, node: Node) -> int:
    """Where the last text of the node begins; of a key, of its value."""
    ends = [token.start for token in document.tokens if node.start <= token.start < node.end]
    return ends[-1] if ends else node.start
