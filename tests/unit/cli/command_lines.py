"""Command lines as people type them, for the readers that do without typer."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

Words = st.SearchStrategy[list[str]]


def any_words(
    switches: Sequence[str], valued: Sequence[str], values: Sequence[str], odd: Sequence[str]
) -> Words:
    """Of all kinds, in any order."""
    word = st.one_of(
        st.sampled_from([*switches, *valued]),
        st.sampled_from([*values, *odd]),
        st.builds(
            "{}={}".format, st.sampled_from([*switches, *valued]), st.sampled_from([*values, *odd])
        ),
        st.text(max_size=4),
    )
    return st.lists(word, max_size=6)


def well_formed(switches: Sequence[str], valued: Sequence[str], values: Sequence[str]) -> Words:
    """Switches, and options with a value each."""
    return st.lists(
        st.one_of(
            st.sampled_from(switches).map(lambda word: [word]),
            st.tuples(st.sampled_from(valued), st.sampled_from(values)).map(list),
            st.builds("{}={}".format, st.sampled_from(valued), st.sampled_from(values)).map(
                lambda word: [word]
            ),
        ),
        max_size=5,
    ).map(lambda parts: [word for part in parts for word in part])
