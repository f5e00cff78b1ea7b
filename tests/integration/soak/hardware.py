"""Random machines for one container, each with what Slurm has to say of it.

What is expected is said here in words of its own, from the list of cards and the limits alone: it
must not come from the code that is tested.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from dshpc_setup.machine.profiles import Card, Profile
from dshpc_setup.machine.simulated import device_files, parse_profile

# Of dshpc_setup/machine/profiles.py -> the type of its GRES
TYPES: Mapping[str, str] = {
    "h100": "h100",
    "a100": "a100",
    "t4": "t4",
    "l40s": "l40s",
    "rtx4090": "rtx_4090",
    "mi300x": "mi300x",
    "mi210": "mi210",
}
MODELS = tuple(TYPES)
DIVIDED: Mapping[str, Mapping[str, int]] = {
    "h100-mig": {"3g.40gb": 1, "1g.10gb": 4},
    "h100-mig7": {"1g.10gb": 7},
    "a100-mig": {"2g.20gb": 3, "1g.10gb": 1},
    "a100-40-mig": {"1g.5gb": 7},
}
MEMORY_MIB = (None, None, None, 512, 1024, 2048, 4096)
CPUS = (None, None, "cpus=1", "cpus=1.5", "cpuset-cpus=0")


@dataclass(frozen=True)
class Hardware:
    """`lost`: places of cards whose device nodes the container is not given."""

    profile: str = ""  # "" is a machine without a GPU
    lost: frozenset[int] = frozenset()
    memory_mib: int | None = None
    cpus: str | None = None  # an option of `docker run`

    @property
    def cards(self) -> tuple[Card, ...]:
        every = parse_profile(self.profile).cards if self.profile else ()
        return tuple(card for place, card in enumerate(every) if place not in self.lost)

    @property
    def devices(self) -> tuple[str, ...]:
        return device_files(Profile("", self.cards))

    @property
    def gres(self) -> Mapping[str, int]:
        """GPU type -> how many."""
        found: Counter[str] = Counter()
        for card in self.cards:
            key = card.model.key
            found.update(DIVIDED[key] if key in DIVIDED else {TYPES[key]: 1})
        return dict(found)

    @property
    def cpu_count(self) -> int:
        here = len(os.sched_getaffinity(0))
        return {None: here, "cpus=1": 1, "cpus=1.5": 1, "cpuset-cpus=0": 1}[self.cpus]

    @property
    def seen(self) -> tuple[frozenset[Card], int | None, int]:
        """What of it the container can tell from another one."""
        return frozenset(self.cards), self.memory_mib, self.cpu_count

    def options(self) -> list[str]:
        """Of `docker run`; devices are names of /dev/null."""
        found = [f"--device=/dev/null:{path}" for path in self.devices]
        found += self.limits()
        return [*found, "--env", f"DSHPC_SIMULATE={self.profile or 'none'}"]

    def limits(self) -> list[str]:
        found = []
        if self.memory_mib:
            found += [f"--memory={self.memory_mib}m", f"--memory-swap={self.memory_mib}m"]
        return found + ([f"--{self.cpus}"] if self.cpus else [])

    def __str__(self) -> str:
        words = [self.profile or "no GPU", *([f"without {sorted(self.lost)}"] if self.lost else [])]
        words += [f"{self.memory_mib} MiB"] if self.memory_mib else []
        return ", ".join([*words, *([self.cpus] if self.cpus else [])])


def random_hardware(choose: random.Random) -> Hardware:
    """0 to 16 GPUs: none, all alike, of several kinds, divided ones among them."""
    limits = Hardware(memory_mib=choose.choice(MEMORY_MIB), cpus=choose.choice(CPUS))
    kind = choose.choice(["none", "alike", "alike", "kinds", "kinds", "divided"])
    if kind == "none":
        return limits
    if kind == "alike":
        terms = [f"{choose.choice(MODELS)}:{choose.choice([1, 2, 3, 4, 8, 16])}"]
    else:
        pool = [*MODELS, *DIVIDED] if kind == "divided" else list(MODELS)
        terms = [
            f"{choose.choice(pool)}:{choose.choice([1, 1, 2, 4])}"
            for _ in range(choose.randint(2, 4))
        ]
        if kind == "divided":
            terms.append(choose.choice(list(DIVIDED)))
        terms = _at_most_sixteen(terms)
        choose.shuffle(terms)
    return _some_lost(replace(limits, profile="+".join(terms)), choose)


def _at_most_sixteen(terms: list[str]) -> list[str]:
    while sum(int(term.partition(":")[2] or 1) for term in terms) > 16:
        terms = terms[1:]
    return terms


def _some_lost(hardware: Hardware, choose: random.Random) -> Hardware:
    """One whole card of some has fallen away: its nodes are not there."""
    cards = hardware.cards
    place = choose.randrange(len(cards))
    if choose.random() < 0.75 or cards[place].model.mig:
        return hardware
    return replace(hardware, lost=frozenset({place}))


def in_place(hardware: Hardware, choose: random.Random) -> Hardware:
    """Another limit of memory and CPUs for the same cards, as `docker update` can set it."""
    cpus = hardware.cpus if hardware.cpus else choose.choice(["cpus=1", "cpus=1.5"])
    return replace(hardware, memory_mib=choose.choice([512, 1024, 2048, 4096]), cpus=cpus)
