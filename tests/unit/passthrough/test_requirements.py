from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.passthrough.requirements import Offer, Verdict, holds, parse

# As the image of CUDA 12.4 has it, in its order, shortened.
CUDA_124 = (
    "cuda>=12.4 brand=tesla,driver>=470,driver<471 brand=geforce,driver>=470,driver<471 "
    "brand=tesla,driver>=535,driver<536"
)
H100 = Offer("12.4", "550.54.14", "9.0", frozenset(("tesla", "nvidia")))
OLD_TESLA = Offer("12.2", "535.104.05", "7.5", frozenset(("tesla",)))
OLD_GEFORCE = Offer("12.2", "535.104.05", "8.9", frozenset(("geforce",)))


@pytest.mark.parametrize(
    ("text", "offer", "verdict"),
    [
        (CUDA_124, H100, "yes"),
        (CUDA_124, OLD_TESLA, "yes"),  # by its brand and driver branch
        (CUDA_124, OLD_GEFORCE, "no"),
        (CUDA_124, Offer("12.3", "545.23.06", "7.5", frozenset(("tesla",))), "no"),
        (CUDA_124, Offer(None, "535.104.05", "7.5", frozenset(("geforce",))), "unknown"),
        (CUDA_124, Offer("12.2", "535.104.05"), "unknown"),  # whose brand is not known
        ("", H100, "yes"),
        ("  ", H100, "yes"),
        ("cuda>=12.4", Offer("12.4"), "yes"),
        ("cuda>=12.4", Offer("12.40"), "yes"),
        ("cuda>=12.4", Offer("12.3"), "no"),
        ("cuda>=12.10", Offer("12.9"), "no"),  # numbers, not text
        ("cuda>12.4", Offer("12.4"), "no"),
        ("cuda<=12.4", Offer("12.4.0"), "yes"),
        ("cuda<13", Offer("12.9"), "yes"),
        ("cuda=12", Offer("12.0"), "yes"),
        ("cuda!=12", Offer("12.1"), "yes"),
        ("cuda!12", Offer("12.0"), "no"),  # the toolkit takes "!" for "!="
        ("CUDA>=12.4", Offer("12.4"), "yes"),
        ("arch>=8.0", Offer(arch="7.5"), "no"),
        ("arch>=7.5", Offer(arch="7.5"), "yes"),
        ("brand=Tesla", OLD_TESLA, "yes"),
        ("brand!=tesla", OLD_GEFORCE, "yes"),
        ("brand=tesla", H100, "unknown"),  # tesla or nvidia, depending on the driver
        ("brand!=geforce", H100, "yes"),
        ("brand>tesla", OLD_TESLA, "malformed"),
        ("cuda>=12.4,driver>=600", H100, "no"),
        ("cuda>=12.4,driver>=535", H100, "yes"),
        (",cuda>=12.4,,", H100, "yes"),
        ("cuda>=x", H100, "malformed"),
        ("cuda==12", H100, "malformed"),
        ("cuda", H100, "malformed"),
        (">=12", H100, "malformed"),
        ("cuda>=", H100, "malformed"),
        ("memory>=8", H100, "malformed"),
        ("cuda>=.5", H100, "malformed"),
        ("cuda>=12.4 nonsense", H100, "yes"),  # never come to
        ("nonsense cuda>=12.4", H100, "malformed"),
        ("cuda>=13 nonsense", H100, "malformed"),
        ("cuda>=13,nonsense cuda>=12", H100, "yes"),  # the first ends at what does not hold
        ("arch>=8 nonsense", Offer("12.4"), "unknown"),
        ("cuda>=12.4", Offer("12.4-beta"), "unknown"),
    ],
)
def test_holds(text: str, offer: Offer, verdict: Verdict) -> None:
    assert holds(parse(text), offer) == verdict


def test_the_cuda_that_is_named_first() -> None:
    assert parse(CUDA_124).least_cuda == "12.4"
    assert parse("driver>=470 cuda>=11.8").least_cuda == "11.8"
    assert parse("cuda<13").least_cuda is None
    assert parse("cuda>=x").least_cuda is None


NUMBER = st.integers(0, 999)
VERSION = st.lists(NUMBER, min_size=1, max_size=4).map(lambda parts: ".".join(map(str, parts)))
OFFER = st.builds(
    Offer,
    st.none() | VERSION,
    st.none() | VERSION,
    st.none() | VERSION,
    st.none() | st.frozensets(st.sampled_from(("tesla", "nvidia", "geforce"))),
)


@given(st.text() | st.text("cudarivebn<>=!,. 0123456789"), OFFER)
def test_any_text_has_a_verdict(text: str, offer: Offer) -> None:
    assert holds(parse(text), offer) in ("yes", "no", "unknown", "malformed")


@given(VERSION, VERSION)
def test_a_comparison_and_its_contrary(one: str, other: str) -> None:
    offer = Offer(cuda=one)
    for sign, contrary in ((">=", "<"), ("<=", ">"), ("=", "!=")):
        told = {holds(parse(f"cuda{each}{other}"), offer) for each in (sign, contrary)}
        assert told == {"yes", "no"}


@given(VERSION, VERSION, VERSION)
def test_and_holds_where_both_do(have: str, low: str, high: str) -> None:
    offer = Offer(cuda=have)
    each = [holds(parse(text), offer) for text in (f"cuda>={low}", f"cuda<{high}")]
    both = holds(parse(f"cuda>={low},cuda<{high}"), offer)
    assert both == ("yes" if each == ["yes", "yes"] else "no")
    either = holds(parse(f"cuda>={low} cuda<{high}"), offer)
    assert either == ("yes" if "yes" in each else "no")


@given(st.integers(1, 10**30))
def test_a_number_of_any_length_is_taken(number: int) -> None:
    assert holds(parse(f"cuda>={number}"), Offer(cuda="12.4")) in ("yes", "no")


def test_more_digits_than_python_converts() -> None:
    assert holds(parse("cuda>=" + "9" * 5000), Offer(cuda="12.4")) == "no"
