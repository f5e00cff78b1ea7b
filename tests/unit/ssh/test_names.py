"""What the name of a host asks for: round trips, and what is refused."""

from __future__ import annotations

import itertools
import random
import re
from fnmatch import fnmatch

import pytest

from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.jobs.request_building import CommandLine, with_asked
from dshpc_setup.methods.model import Resources
from dshpc_setup.ssh import names
from dshpc_setup.ssh.names import Wanted, parse

TYPES = (None, "h100", "t4", "rtx4090", "gtx980", "mi300x", "a100", "1g.10gb", "1g.10gb.me", "l40s", "gpu0",
         "nvidia_h100_80gb_hbm3", "amd", "rtx6000")  # fmt: skip


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("gpu", Wanted("gpu")),
        ("GPU", Wanted("gpu")),
        ("gpu-x1", Wanted("gpu")),
        ("gpu-x2", Wanted("gpu", count="2")),
        ("gpu-h100x2-4h", Wanted("gpu", "h100", "2", time="4h")),
        ("gpu-4h-h100x2", Wanted("gpu", "h100", "2", time="4h")),
        ("gpu-rtx4090", Wanted("gpu", "rtx4090")),
        ("gpu-rtx4090x2", Wanted("gpu", "rtx4090", "2")),
        ("gpu-mi300x", Wanted("gpu", "mi300x")),
        ("gpu-mi300xx8", Wanted("gpu", "mi300x", "8")),
        ("gpu-1g.10gb-30m", Wanted("gpu", "1g.10gb", time="30m")),
        ("gpu-8c-64g-2d", Wanted("gpu", cpus="8", memory="64g", time="2d")),
        ("cpu", Wanted("cpu")),
        ("cpu-x16-64g", Wanted("cpu", count="16", memory="64g")),
        ("job-123", Wanted("job", job="123")),
        ("job-123_4", Wanted("job", job="123_4")),
    ],
)
def test_names_and_what_they_ask_for(name: str, wanted: Wanted) -> None:
    assert parse(name) == wanted


@pytest.mark.parametrize(
    "name",
    [
        *(
            "",
            "gpux",
            "gpu-",
            "gpu--4h",
            "gpu-4h-2h",
            "gpu-h100-t4",
            "gpu-x0",
            "gpu-h100x2-x2",
            "-gpu",
        ),
        *(
            "cpu-h100",
            "cpu-8c",
            "cpu-4h-x2-x2",
            "job",
            "job-",
            "job-0",
            "job-1-4h",
            "job-1_",
            "job-01",
        ),
        *(
            "gpu-h100;id",
            "gpu-$(id)",
            "gpu-h100 ",
            "gpu-é",
            "gpu-h100\n",
            "gpu-.h100",
            "gpu-_",
            "gpu-٣h",
        ),
        *("gpu-12", "host", "gpu-" + "a" * 60),
    ],
)
def test_what_asks_for_nothing_is_refused(name: str) -> None:
    with pytest.raises(DshpcError) as refused:
        parse(name)
    assert refused.value.exit_code == Exit.USAGE
    assert "\n" not in refused.value.brief


def some(source: random.Random) -> Wanted:
    if source.random() < 0.1:
        task = source.choice(("", f"_{source.randrange(10**9)}"))
        return Wanted("job", job=f"{source.randrange(1, 10**9)}{task}")

    def maybe(text: str) -> str | None:
        return text if source.random() < 0.5 else None

    count = maybe(str(source.randrange(2, 100)))
    time = maybe(f"{source.randrange(1, 9999)}{source.choice('mhd')}")
    memory = maybe(f"{source.randrange(1, 9999)}g")
    if source.random() < 0.3:
        return Wanted("cpu", count=count, memory=memory, time=time)
    cpus = maybe(str(source.randrange(1, 999)))
    return Wanted("gpu", source.choice(TYPES), count, cpus, memory, time)


@pytest.mark.parametrize("seed", range(20))
def test_a_name_says_all_of_what_is_wanted(seed: int) -> None:
    """In whatever order its parts stand, and whatever they are: the same is wanted, by the same name."""
    source = random.Random(seed)
    for _ in range(200):
        wanted = some(source)
        name = wanted.name
        assert parse(name) == wanted
        assert parse(name.upper()).name == name
        assert len(name) <= names.LONGEST
        assert any(fnmatch(name, pattern) for pattern in names.PATTERNS)
        kind, *parts = name.split("-")
        if wanted.job is None:
            for order in itertools.islice(itertools.permutations(parts), 6):
                assert parse("-".join((kind, *order))) == wanted


@pytest.mark.parametrize("seed", range(20))
def test_any_text_is_a_name_of_plain_letters_or_refused(seed: int) -> None:
    """What is taken can stand in a command line, a file's name and a job's name as it is, and is what
    `dshpc run` would take."""
    source = random.Random(seed)
    letters = "gpucjobx0123456789-._mhd h100$;'\"\\/%\n\x1bé"
    taken = 0
    for _ in range(3000):
        start = source.choice(("", "gpu", "gpu-", "cpu-", "job-"))
        text = start + "".join(source.choice(letters) for _ in range(source.randrange(8)))
        try:
            wanted = parse(text)
        except DshpcError as error:
            assert error.exit_code == Exit.USAGE
            continue
        taken += 1
        assert re.fullmatch(r"[a-z0-9][a-z0-9._-]*", wanted.name)
        assert parse(wanted.name) == wanted
        with_asked(
            Resources(),
            CommandLine(gpus=wanted.count, gpu_type=wanted.gpu_type, cpus=wanted.cpus,
                        memory=wanted.memory, time=wanted.time),
        )  # fmt: skip
    assert taken > 100
