"""The tests of a stage in lines beside each other.

Most of the time is waiting, and tests of one line do not meet those of another (tests/lines.py). Unit tests
do not wait: they run on what the others leave of the processor. The output of the other lines comes after
the first one's.

The first stage has the unit tests and each feature on a real engine. With --all the extended stage follows:
kills, attacks and limits, other engines and hosts; with --full both, the long tests whole. All other
arguments are handed on to pytest.

Integration tests that failed in a few files are run once more, alone, and what came of it is said at the end:
docs/decisions/0023-a-second-look.md. With --full each failure counts. Exit code: 0 where all passed, at
once or then; else that of the first line that failed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

# In the terminal's session, where sudo remembers, and not among those that its Ctrl-C reaches
_OWN_GROUP: dict[str, Any] = (
    {"process_group": 0} if sys.version_info >= (3, 11) else {"preexec_fn": os.setpgrp}
)
STAGES = (("engine", "others", "jobs", "unit"), ("kills", "attacks", "hosts"))
LINES = tuple(line for stage in STAGES for line in stage)
MOST = 5
"""In so many files tests may fail by luck; of more there is nothing to look at but the failures.

Files and not tests, for those of one share a cluster: what upsets it fails several.
"""


def main(arguments: Sequence[str]) -> int:
    stages = STAGES if {"--all", "--full"} & set(arguments) else STAGES[:1]
    rest = [argument for argument in arguments if argument != "--all"]
    codes = []
    for stage in stages:
        codes.append(_stage(stage, rest))
        if codes[-1] not in (0, 1):
            break  # it was interrupted, or could not begin
    return next((code for code in codes if code), 0)


def _stage(lines: Sequence[str], arguments: Sequence[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="dshpc-lines-") as folder:
        caches = {line: Path(folder) / line for line in lines}
        codes = _run(arguments, caches)
        code = next((code for code in codes if code), 0)
        if code == 0:
            return 0
        failed = [_failed(caches[line]) for line in lines]
    again = worth_a_second_look(codes, failed) if "--full" not in arguments else []
    if not again:
        return code
    _say("run once more, alone, after a first failure (above)", again)
    with _ended([]) as running:
        running.append(_started([*_pytest(arguments), "-p", "no:cacheprovider", *again]))
        second = running[0].wait()
    if second:
        return code
    _say("FAILED AT FIRST, PASSED ALONE: not sound, whether it is the test or what it tests", again)
    return 0


def worth_a_second_look(codes: Sequence[int], failed: Sequence[Sequence[str] | None]) -> list[str]:
    """The tests to run once more; none where the failures speak for themselves.

    `codes` are pytest's of each line, `failed` the ids of what failed there, None where it left no word.
    """
    if any(code not in (0, 1) for code in codes):
        return []  # it was interrupted, or could not collect them
    found: list[str] = []
    for code, ids in zip(codes, failed, strict=True):
        if code and not ids:
            return []
        found += ids or ()
    if not all(name.startswith("tests/integration/") and "::" in name for name in found):
        return []
    return found if len({name.partition("::")[0] for name in found}) <= MOST else []


def _run(arguments: Sequence[str], caches: dict[str, Path]) -> list[int]:
    """The exit codes of all lines; each leaves what failed in its cache."""

    def argv(line: str) -> list[str]:
        behind = ["nice", "-n", "10"] if line == "unit" else []
        own = ["-o", f"cache_dir={caches[line]}", "--line", line]
        return [*behind, *_pytest(arguments), *own]

    first, *beside = caches
    with ExitStack() as stack:
        started: list[IO[bytes]] = []
        with _ended([]) as running:
            for line in beside:
                output: IO[bytes] = stack.enter_context(tempfile.TemporaryFile())
                running.append(_started(argv(line), output))
                started.append(output)
            running.insert(0, _started(argv(first)))
            codes = [process.wait() for process in running]
        sys.stdout.flush()
        for printed in started:
            printed.seek(0)
            sys.stdout.buffer.write(printed.read())
        sys.stdout.flush()
    return codes


def _pytest(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "pytest", *arguments]


def _started(argv: list[str], output: IO[bytes] | None = None) -> subprocess.Popen[bytes]:
    """Away from the terminal: its Ctrl-C comes to us, and one goes on to each (`_ended`)."""
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT if output else None,
        **_OWN_GROUP,
    )


@contextmanager
def _ended(running: list[subprocess.Popen[bytes]]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Whatever happens, each has ended behind it, and has removed what its tests had made on the engine.

    SIGTERM is what Ctrl-C is. A second one of either is not waited for: then all are killed.
    """
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield running
    except BaseException:
        for process in running:
            _signal(process, signal.SIGINT)
        for process in running:
            process.wait()
        raise
    finally:
        for process in running:
            _signal(process, signal.SIGKILL)
            process.wait()
        signal.signal(signal.SIGTERM, before)


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    """To it and all that it has started, as a terminal does."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)


def _failed(cache: Path) -> list[str] | None:
    """What `--last-failed` would run."""
    try:
        return list(json.loads((cache / "v" / "cache" / "lastfailed").read_text()))
    except (OSError, ValueError):
        return None


def _say(what: str, tests: Sequence[str]) -> None:
    print(f"\nrun-tests: {what}:", *(f"  {name}" for name in tests), sep="\n", flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
