"""Which job comes before which: an order, or the circle that allows none. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Needs = Mapping[str, Sequence[str]]


def order(needs: Needs) -> list[str]:
    """The names, each behind all that it needs, else as they come; those in circles are left out.

    Names that are needed and are none of the keys count as there already.
    """
    waits = {name: {each for each in of if each in needs} for name, of in needs.items()}
    wanted_by: dict[str, list[str]] = {name: [] for name in needs}
    for name, of in waits.items():
        for each in of:
            wanted_by[each].append(name)
    place = {name: at for at, name in enumerate(needs)}
    ready = [name for name, of in waits.items() if not of]
    found: list[str] = []
    while ready:
        # The earliest in the file: a heap would save nothing at a thousand jobs
        name = min(ready, key=place.__getitem__)
        ready.remove(name)
        found.append(name)
        for each in wanted_by[name]:
            waits[each].discard(name)
            if not waits[each]:
                ready.append(each)
    return found


def circle(needs: Needs) -> list[str]:
    """One way from a name back to itself ("a", "b", "a"), or nothing where there is none."""
    left = set(needs) - set(order(needs))
    # Each that is left needs one that is left: so the way meets itself
    at = next((name for name in needs if name in left), None)
    way: list[str] = []
    while at is not None and at not in way:
        way.append(at)
        at = next(each for each in needs[at] if each in left)
    return [] if at is None else [*way[way.index(at) :], at]
