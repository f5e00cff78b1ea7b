"""AMD cards that are cut into partitions: which nodes are parts of one card, and whether all came up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from dshpc_setup.facts import Because, Disagreement
from dshpc_setup.probes.amd import kfd
from dshpc_setup.probes.amd.attributes import Layers
from dshpc_setup.probes.trace import counted
from dshpc_setup.problems import PARTITIONS_MISSING

# What a compute partition mode makes of a card; CPX makes as many as it has compute dies.
_PARTS = {"SPX": 1, "DPX": 2, "TPX": 3, "QPX": 4}
_DIES = {0x74A0: 6, 0x74A1: 8, 0x74A2: 4, 0x74A5: 8, 0x74A9: 8, 0x75A0: 8, 0x75A3: 8}
_MOST = 16  # more than four bits can number
_PARTITIONED = ("gfx94", "gfx95")  # no other target can be partitioned


def by_card(nodes: Sequence[kfd.Node], layers: Layers) -> dict[str, list[kfd.Node]]:
    """The nodes of each card, by its PCI address."""
    found: dict[str, list[kfd.Node]] = defaultdict(list)
    for node in nodes:
        address = card_of(node, nodes, layers)
        if address is not None:
            found[address].append(node)
    return dict(found)


def card_of(node: kfd.Node, nodes: Sequence[kfd.Node], layers: Layers) -> str | None:
    """The address of the node's card.

    The kernel puts a partition's number where a PCI address has its function: there is no such
    function on the bus, and the card is function 0.
    """
    own = node.address
    if own is None or own.endswith(".0") or own in layers.cards or not _able(node):
        return own
    card = f"{own[:-1]}0"
    others = {pair.address and pair.address[:-1] for pair in nodes if pair is not node}
    return card if card in layers.cards or own[:-1] in others else own


def cut(nodes: Sequence[kfd.Node], layers: Layers) -> frozenset[str]:
    """The addresses of the cards whose nodes are partitions."""
    return frozenset(
        address
        for address, group in by_card(nodes, layers).items()
        if _is_cut(address, group, layers.of(address).mode)
    )


def _is_cut(address: str, group: Sequence[kfd.Node], mode: str | None) -> bool:
    """By their numbers or the card's mode; else several nodes of one card that can be cut."""
    if any(node.address != address or node.upper for node in group):
        return True
    if mode is not None and mode != "SPX":
        return True
    if len(group) == 1:
        return False
    if group[0].target is not None:
        return _able(group[0])
    return len({node.unique_id for node in group}) < len(group)


def _able(node: kfd.Node) -> bool:
    return node.target is None or node.target.startswith(_PARTITIONED)


def short(nodes: Sequence[kfd.Node], layers: Layers) -> tuple[Disagreement, ...]:
    """The cards with fewer partitions than they should have, counted by their location."""
    of_card, parts = by_card(nodes, layers), cut(nodes, layers)
    found = []
    for address, group in of_card.items():
        if address not in parts:
            continue
        expected, source, says = _expected(address, group, of_card, layers)
        if expected <= len(group):
            continue
        seen = {node.part for node in group}
        missing = [number for number in range(expected) if number not in seen]
        which = f"number {missing[0]} is missing" if len(missing) == 1 and any(seen) else ""
        count = f"lists {len(group)} of {expected} partitions"
        found.append(
            Disagreement(
                address,
                (Because("KFD", f"{count}: {which}" if which else count), Because(source, says)),
                f"{counted(expected - len(group), 'partition')} of this card did not come up; the "
                "others are used",
                PARTITIONS_MISSING,
            )
        )
    return tuple(found)


def _expected(
    address: str, group: list[kfd.Node], of_card: Mapping[str, list[kfd.Node]], layers: Layers
) -> tuple[int, str, str]:
    mode = layers.of(address).mode
    device = group[0].device_id
    if mode in _PARTS:
        return (
            _PARTS[mode],
            "DRM",
            f"the card is in {mode} mode: {counted(_PARTS[mode], 'partition')}",
        )
    if mode == "CPX" and device in _DIES:
        return _DIES[device], "DRM", f"the card is in CPX mode and has {_DIES[device]} compute dies"
    # Without a mode: another card of the same make has more SIMDs in all.
    like = [other for other in of_card.values() if other[0].device_id == device]
    most = max(sum(node.properties.get("simd_count", 0) for node in other) for other in like)
    each = group[0].properties.get("simd_count", 0)
    expected = most // each if each else len(group)
    expected = expected if expected <= _MOST else len(group)
    return expected, "the other cards", f"each has {most} SIMDs, this one {each * len(group)}"
