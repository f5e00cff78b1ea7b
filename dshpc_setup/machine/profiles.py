"""The made-up machines that `--simulate` knows: `<model>:<count>`, a few by name, and sums of these.

In a sum, such as `h100:2+t4:1`, the cards lie in the order in which they are written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from dshpc_setup.errors import DshpcError, usage_error

_MOST = 16


@dataclass(frozen=True)
class MigPart:
    profile: str
    memory_mib: int
    gi: int  # GPU instance id, as the driver would number it


@dataclass(frozen=True)
class Model:
    key: str
    name: str
    device: int  # PCI device id
    memory_mib: int | None
    compute: tuple[int, int] = (0, 0)
    gfx: int = 0  # AMD: gfx_target_version
    mig_capable: bool = False
    mig: tuple[MigPart, ...] = ()


@dataclass(frozen=True)
class Card:
    """One card of a profile: `index` among its vendor's, `minor` of its device node."""

    model: Model
    index: int

    @property
    def vendor(self) -> Literal["nvidia", "amd"]:
        return "amd" if self.model.gfx else "nvidia"

    @property
    def driver(self) -> str:
        return "amdgpu" if self.model.gfx else "nvidia"

    @property
    def minor(self) -> int:
        return 128 + self.index if self.model.gfx else self.index

    @property
    def address(self) -> str:
        return f"0000:{(0x80 if self.model.gfx else 0x10) + self.index:02x}:00.0"


@dataclass(frozen=True)
class Profile:
    text: str
    cards: tuple[Card, ...]

    def of(self, vendor: str) -> tuple[Card, ...]:
        return tuple(card for card in self.cards if card.vendor == vendor)


_MODELS = (
    Model("t4", "Tesla T4", 0x1EB8, 15360, (7, 5)),
    Model("v100", "Tesla V100-SXM2-32GB", 0x1DB5, 32768, (7, 0)),
    Model("a100", "NVIDIA A100-SXM4-80GB", 0x20B2, 81920, (8, 0), mig_capable=True),
    Model("a100-40", "NVIDIA A100-SXM4-40GB", 0x20B0, 40960, (8, 0), mig_capable=True),
    Model("a10", "NVIDIA A10", 0x2236, 23028, (8, 6)),
    Model("a40", "NVIDIA A40", 0x2235, 46068, (8, 6)),
    Model("l4", "NVIDIA L4", 0x27B8, 23034, (8, 9)),
    Model("l40s", "NVIDIA L40S", 0x26B9, 46068, (8, 9)),
    Model("h100", "NVIDIA H100 80GB HBM3", 0x2330, 81559, (9, 0), mig_capable=True),
    Model("h200", "NVIDIA H200", 0x2335, 143771, (9, 0), mig_capable=True),
    Model("b200", "NVIDIA B200", 0x2901, 183359, (10, 0), mig_capable=True),
    Model("gb10", "NVIDIA GB10", 0x2E12, None, (12, 1)),
    Model("rtx2080ti", "NVIDIA GeForce RTX 2080 Ti", 0x1E07, 11264, (7, 5)),
    Model("rtx3080", "NVIDIA GeForce RTX 3080", 0x2206, 10240, (8, 6)),
    Model("rtx3090", "NVIDIA GeForce RTX 3090", 0x2204, 24576, (8, 6)),
    Model("rtx4090", "NVIDIA GeForce RTX 4090", 0x2684, 24564, (8, 9)),
    Model("rtx5090", "NVIDIA GeForce RTX 5090", 0x2B85, 32607, (12, 0)),
    Model("a6000", "NVIDIA RTX A6000", 0x2230, 49140, (8, 6)),
    Model("mi100", "AMD Instinct MI100", 0x738C, 32752, gfx=90008),
    Model("mi210", "AMD Instinct MI210", 0x740F, 65520, gfx=90010),
    Model("mi250x", "AMD Instinct MI250X", 0x7408, 65520, gfx=90010),
    Model("mi300x", "AMD Instinct MI300X", 0x74A1, 196592, gfx=90402),
    Model("mi325x", "AMD Instinct MI325X", 0x74A5, 262128, gfx=90500),
)
MODELS: Mapping[str, Model] = {model.key: model for model in _MODELS}


def _cut(key: str, whole: str, *parts: MigPart) -> Model:
    """A card of this model with MIG on, divided so."""
    return replace(MODELS[whole], key=key, mig=parts)


def _slices(profile: str, memory_mib: int, *instances: int) -> tuple[MigPart, ...]:
    return tuple(MigPart(profile, memory_mib, gi) for gi in instances)


# Cards with MIG on: sizes and numbers of the instances as the driver gives them
_CUT = (
    _cut(
        "h100-mig",
        "h100",
        *_slices("3g.40gb", 40448, 1),
        *_slices("1g.10gb", 9728, 7, 8, 9, 10),
    ),
    _cut("h100-mig7", "h100", *_slices("1g.10gb", 9728, 7, 8, 9, 10, 11, 12, 13)),
    _cut(
        "a100-mig",
        "a100",
        *_slices("2g.20gb", 19968, 3, 4, 5),
        *_slices("1g.10gb", 9728, 13),
    ),
    _cut("a100-40-mig", "a100-40", *_slices("1g.5gb", 4864, 7, 8, 9, 10, 11, 12, 13)),
)
MIG_MODELS: Mapping[str, Model] = {model.key: model for model in _CUT}
_CARDS: Mapping[str, Model] = {**MODELS, **MIG_MODELS}

_MIXTURES: Mapping[str, tuple[Model, ...]] = {
    "mig": (MIG_MODELS["h100-mig"], MODELS["h100"]),
    "mixed": (MODELS["h100"], MODELS["h100"], MODELS["t4"]),
    "none": (),
}


def parse_profile(text: str) -> Profile:
    """The profile that is meant; raises DshpcError (usage), naming what comes near."""
    terms = [_term(text, word) for word in text.strip().lower().split("+")]
    if len(terms) > 1 and any(not models for _, models in terms):
        raise usage_error(
            f"{text}: none is no GPU, and nothing can be added to it.",
            "",
            "Leave none out, or give it alone.",
        )
    models = tuple(model for _, models in terms for model in models)
    if len(models) > _MOST:
        raise _too_many(text, len(models), terms)
    return Profile("+".join(name for name, _ in terms), _numbered(models))


def _term(text: str, word: str) -> tuple[str, tuple[Model, ...]]:
    """One term of a sum: its full name and its cards; `text` is the whole, for the error."""
    name = word.strip()
    if name in _MIXTURES:
        return name, _MIXTURES[name]
    match = re.fullmatch(r"([a-z0-9-]+)(?::([0-9]{1,4}))?", name)
    if match is None or match[1] not in _CARDS:
        raise _unknown(text, match[1] if match else name.split(":")[0])
    count = int(match[2] or "1")
    term = f"{match[1]}:{count}"
    models = (_CARDS[match[1]],) * count
    if not 1 <= count <= _MOST:
        raise _too_many(text, count, [(term, models)])
    return term, models


def _numbered(models: tuple[Model, ...]) -> tuple[Card, ...]:
    """Each vendor's driver counts its own cards."""
    seen = {False: 0, True: 0}  # whether it is AMD's
    cards = []
    for model in models:
        is_amd = model.gfx > 0
        cards.append(Card(model, seen[is_amd]))
        seen[is_amd] += 1
    return tuple(cards)


def _too_many(text: str, count: int, terms: list[tuple[str, tuple[Model, ...]]]) -> DshpcError:
    """For too few as well: a count of 0."""
    what = f"{text}: a made-up machine has 1 to {_MOST} GPUs, not {count}."
    if len(terms) > 1:
        way = f"Let the counts add up to {_MOST} at most, as in h100:8+t4:8."
    else:
        way = f"Give a count of up to {_MOST}, such as {terms[0][0].split(':')[0]}:8."
    return usage_error(what, "", way)


def _unknown(text: str, model: str) -> DshpcError:
    import difflib

    near = difflib.get_close_matches(model, [*_CARDS, *_MIXTURES], 3, 0.5)
    hint = f"Did you mean {' or '.join(near)}? " if near else ""
    return usage_error(
        f"{text}: there is no such made-up machine.",
        f"{hint}There are: {', '.join(_MIXTURES)}, and with a count, as in h100:2: "
        f"{', '.join(_CARDS)}. Several at once: h100:2+t4:1.",
        "Choose one of them.",
    )
