"""What README and docs show of a terminal, and whether a terminal shows it.

Both sides are written with the same words for what varies (`VARIES`), numbers of jobs in the order in
which they come; what is left has to be equal, line by line.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path

from tests.integration.cluster import run

ROOT = Path(__file__).parents[2]
DOCUMENTS = tuple(
    str(path.relative_to(ROOT)) for path in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")))
)
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Block:
    """A fenced block: where it stands, the word behind its fence, its text."""

    document: str
    line: int
    language: str
    text: str

    @property
    def commands(self) -> tuple[Shown, ...]:
        """What is typed, and what stands below it; of a block without `$` each line is typed."""
        if self.language != "console":
            typed = (line for line in self.text.splitlines() if line and not line.startswith("#"))
            return tuple(Shown(self.document, line, ()) for line in typed)
        parts = re.split(r"^\$ ", self.text, flags=re.M)
        assert not parts[0], f"{self.document}:{self.line}: a console block begins with a command"
        lines = (part.splitlines() for part in parts[1:])
        return tuple(Shown(self.document, first, tuple(rest)) for first, *rest in lines)


@dataclass(frozen=True)
class Shown:
    document: str
    command: str
    lines: tuple[str, ...]

    @property
    def key(self) -> tuple[str, str]:
        return self.document, self.command


def blocks(document: str) -> tuple[Block, ...]:
    text = (ROOT / document).read_text()
    return tuple(
        Block(document, text.count("\n", 0, found.start()) + 2, found[1], found[2])
        for found in _FENCED.finditer(text)
    )


def shown() -> Iterator[Shown]:
    """All that is typed in the console blocks, in the order of the documents."""
    for document in DOCUMENTS:
        for block in blocks(document):
            if block.language == "console":
                yield from block.commands


def documented(document: str, command: str) -> Shown:
    (found,) = (item for item in shown() if item.key == (document, command))
    return found


# Lines that some runs print and others do not: of a slow step, of a machine without a registry, of a job
# that was seen to wait or to run. The tests of jobs and of the image look for them.
SOMETIMES: tuple[str, ...] = (
    r" {6}\.\.\. .*",
    r" {6}The image \S+ could not be pulled \(.*\): it is made from Debian's packages\.",
    r"dshpc: job \d+(?: is (?:queued|running)\b.*| ran on .*|: \d+ [a-z]+(?:, \d+ [a-z]+)*)",
    r"srun: job \d+ (?:queued and waiting for|has been allocated) resources",
)
# What varies from run to run and from machine to machine, and what is read in its place.
VARIES: tuple[tuple[str, str], ...] = (
    # Of the machine
    (r"\b[A-Z][\w ./]*, \d+ CPUs?, [\d.]+ GiB; Docker [\w.+~-]+, compose [\w.+~-]+", "MACHINE"),
    (r"(?<=: )\d+ CPUs?, [\d.]+ GiB(?=, SIMULATED)", "SIZES"),
    (r"\bcpu=\d+,mem=[\d.]+[MG],node=1,billing=\d+", "TRES"),
    (r"\b(?:docker-compose|docker compose) v?\d+\.[\w.+~-]+(?= takes it)", "COMPOSE"),
    (r"-base:trixie-\w+, (?:made here|here already|pulled)", "-base:ARCH, HOW"),
    (r"(?<=-slurm:nvidia, )\d+ MB", "SIZE"),
    (r"(?<=^dshpc )\d+ \d+(?= gpu:)", "SIZES"),
    # Of the run
    (r"(?<=\S) +\d+\.\d s(?=  |$)", "  SECONDS"),
    (r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d\b", "TIME"),
    (r"(?<= until )(?:[A-Z][a-z]{2} )?\d\d:\d\d\b", "CLOCK"),  # tomorrow's with its day
    (r"(?:(?<=  )|(?<=after )|(?<=Ran:  ))\d+:\d\d(?=  |$)", "DURATION"),
    (r"\b\d+ MiB$", "MIB"),
    (r"(?<=dsHPC setup )\d+\.\d+\.\d+\b", "VERSION"),
    (r"(/jobs/)\d+/([\w.-]+)-\d{8}-\d{6}-[0-9a-f]{6}\b", r"\1UID/\2-WHEN"),
    (r"\bGPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID"),
)
_SOMETIMES = re.compile("|".join(SOMETIMES))
_VARIES = tuple((re.compile(pattern), word) for pattern, word in VARIES)
# Columns are as wide as what stands in them; indentation counts
_COLUMNS = re.compile(r"(?<=\S) {2,}(?=\S)")
_ROW = re.compile(r"(\d+)(?:_\S+)? +[\w.-]+ +[a-z]+")  # of a list of jobs
# A job's number: in a sentence or a command, in the list, among those that wait
_NUMBER = re.compile(
    r"(\b[Jj]ob (?:show |logs |cancel )?|\brelease |\brequeue |\bJobId=|\bjob logs |"
    r"^(?=\d+(?:_\S+)? +[\w.-]+ +[a-z]+)|^ {11}(?=\d+ \())(\d+)(?!\d)"
)


@dataclass
class Jobs:
    """The numbers of jobs on one side, in the order in which they came."""

    seen: list[str] = field(default_factory=list)

    def mask(self, line: str) -> str:
        return _NUMBER.sub(lambda found: f"{found[1]}JOB{self._place(found[2])}", line)

    def _place(self, number: str) -> int:
        if number not in self.seen:
            self.seen.append(number)
        return self.seen.index(number)


def plain(lines: Sequence[str], jobs: Jobs) -> list[str]:
    """The lines, with one word for each thing that varies."""
    found = []
    for line in lines:
        if _SOMETIMES.fullmatch(line):
            continue
        text = line.rstrip()
        for pattern, word in _VARIES:
            text = pattern.sub(word, text)
        found.append(_COLUMNS.sub("  ", jobs.mask(text)))
    return found


def woven(wanted: Sequence[str], out: Sequence[str], err: Sequence[str]) -> bool:
    """Whether the lines are those of both streams, each in its order; `...` is one of them or more."""

    @cache
    def fits(at: int, o: int, e: int) -> bool:
        if at == len(wanted):
            return (o, e) == (len(out), len(err))
        if wanted[at].strip() == "...":
            places = product(range(o, len(out) + 1), range(e, len(err) + 1))
            return any(fits(at + 1, *place) for place in places if place != (o, e))
        if o < len(out) and out[o] == wanted[at] and fits(at + 1, o + 1, e):
            return True
        return e < len(err) and err[e] == wanted[at] and fits(at + 1, o, e + 1)

    return fits(0, 0, 0)


@dataclass
class Terminal:
    """Types what a document shows, and compares what comes."""

    folder: Path
    env: Mapping[str, str]  # beside the tests' own
    ours: Sequence[tuple[str, str]] = ()  # in what is typed: a pattern, and what it is here
    theirs: Sequence[tuple[str, str]] = ()  # in what is printed: a pattern, and the document's word
    since: int = 0  # jobs up to this one are nobody's business here
    wanted: Jobs = field(default_factory=Jobs)
    printed: Jobs = field(default_factory=Jobs)

    def type(self, item: Shown) -> None:
        argv = ["bash", "-c", self.command(item.command)]
        done = run(argv, cwd=self.folder, env=self.env)
        if not item.lines:  # nothing is shown of it
            assert done.code == 0, f"{item.key}: {done.stdout}\n{done.stderr}"
            return
        self.compare(item, done.stdout, done.stderr)

    def command(self, text: str) -> str:
        """What is typed here: with our names, and with the numbers that the jobs have here."""
        for pattern, word in self.ours:
            text = re.sub(pattern, word, text)
        return _NUMBER.sub(lambda found: found[1] + self._here(found[2]), text)

    def _here(self, number: str) -> str:
        if number not in self.wanted.seen:
            return number
        return self.printed.seen[self.wanted.seen.index(number)]

    def compare(self, item: Shown, stdout: str, stderr: str) -> None:
        wanted = plain(item.lines, self.wanted)
        err = plain(self._named(stderr), self.printed)
        out = plain(self._named(stdout), self.printed)
        if not woven(wanted, out, err):
            lines = difflib.unified_diff(
                wanted, [*err, *out], item.document, "printed", lineterm=""
            )
            whole = f"{stderr}{stdout}"
            raise AssertionError("\n".join([f"$ {item.command}", *lines, "", "As printed:", whole]))

    def _named(self, text: str) -> list[str]:
        for pattern, word in self.theirs:
            text = re.sub(pattern, word, text)
        rows = ((line, _ROW.match(line)) for line in text.splitlines())
        return [line for line, row in rows if row is None or int(row[1]) > self.since]
