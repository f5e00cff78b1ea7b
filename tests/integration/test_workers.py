"""Questions asked apart, with real processes: whatever one does, the others and the deadline stand."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dshpc_setup.machine import Ended, Say, workers

# How late the end may come on a busy machine: all that hangs here hangs longer. Figures: benchmarks/detect.py
LATE_S = 20.0
LONG_S = 60.0
Question = Callable[[Say], None]


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """After each test: no descriptor more than before, and no child, running or dead."""
    before = len(os.listdir("/proc/self/fd"))
    yield
    assert len(os.listdir("/proc/self/fd")) == before
    until = time.monotonic() + LATE_S
    while _has_children() and time.monotonic() < until:
        time.sleep(0.01)
        workers.ask({}, 1)  # reaps one that was killed before, where its end took a moment
    assert not _has_children()


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def is_gone(pid: int) -> bool:
    """Whether the process ends within a moment: one that is not our child is reaped by another."""
    until = time.monotonic() + LATE_S
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False


def fine(say: Say) -> None:
    say("fine")


def ask_beside(
    question: Question,
    deadline_s: float = 40.0,
    meanwhile: Callable[[], object] | None = None,
) -> Ended:
    """How the question ended; one beside it must come to its own end, and the deadline must hold."""
    started = time.monotonic()
    found = workers.ask({"it": question, "other": fine}, deadline_s, meanwhile)
    took = time.monotonic() - started
    assert took < deadline_s + LATE_S
    if found["it"].state != "timeout":
        assert took < LATE_S, "nothing but a deadline is worth waiting for"
    assert (found["other"].state, found["other"].items) == ("present", ("fine",))
    return found["it"]


def one_has_ended() -> None:
    """Until one of the children has; it is not reaped."""
    until = time.monotonic() + LONG_S
    while os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        assert time.monotonic() < until
        time.sleep(0.01)


def ask_to_the_deadline(question: Question, words: int = 1, deadline_s: float = 0.5) -> Ended:
    """As `ask_beside`, of one that hangs. It has said so many words and the other one all that it says
    before anybody listens, however late that is.
    """
    hears, tells = os.pipe()

    def telling(say: Say) -> None:
        def say_and_tell(item: object) -> None:
            say(item)
            os.write(tells, b".")

        question(say_and_tell)

    def wait() -> None:
        for _ in range(words):
            assert select.select([hears], [], [], LONG_S)[0], "it has said nothing"
            os.read(hears, 1)
        one_has_ended()

    try:
        return ask_beside(telling, deadline_s, wait)
    finally:
        os.close(hears)
        os.close(tells)


# Meanwhile


def test_what_is_done_meanwhile_is_done_here_once_all_are_asked() -> None:
    began, asked = os.pipe()

    def question(say: Say) -> None:
        os.write(asked, b".")
        say(os.getpid())

    done: list[tuple[int, bytes]] = []
    found = workers.ask(
        {"it": question}, LONG_S, lambda: done.append((os.getpid(), os.read(began, 1)))
    )
    assert done == [(os.getpid(), b".")]  # had it not been asked by then, this would hang
    assert found["it"].items != (os.getpid(),)
    for end in (began, asked):
        os.close(end)


def test_an_error_of_what_is_done_meanwhile_leaves_no_question_behind() -> None:
    began, asked = os.pipe()

    def question(_: Say) -> None:
        os.write(asked, str(os.getpid()).encode())
        time.sleep(60)

    def broken() -> None:
        raise LookupError(os.read(began, 20).decode())

    with pytest.raises(LookupError) as raised:
        workers.ask({"it": question}, 60, broken)
    assert is_gone(int(str(raised.value)))
    for end in (began, asked):
        os.close(end)


def test_what_is_asked_meanwhile_is_asked_beside() -> None:
    """Each waits for a word of the other: one after the other, they would be in vain."""
    ours, theirs = os.pipe(), os.pipe()
    inner: list[Ended] = []

    def meet(say: Say, reads: int, writes: int) -> None:
        os.write(writes, b"here")
        say(os.read(reads, 4))

    found = workers.ask(
        {"it": lambda say: meet(say, ours[0], theirs[1])},
        20,
        lambda: inner.append(
            workers.ask({"in": lambda say: meet(say, theirs[0], ours[1])}, 20)["in"]
        ),
    )
    for end in (*ours, *theirs):
        os.close(end)
    assert (found["it"].items, inner[0].items) == ((b"here",), (b"here",))


def test_what_came_while_we_were_busy_counts_after_the_deadline_too() -> None:
    hears, tells = os.pipe()

    def hangs(say: Say) -> None:
        say("some")
        os.write(tells, b".")
        time.sleep(60)

    def busy() -> None:
        os.read(hears, 1)
        one_has_ended()
        time.sleep(0.2)

    found = workers.ask({"it": fine, "hung": hangs}, 0.1, busy)
    for end in (hears, tells):
        os.close(end)
    assert (found["it"].state, found["it"].items) == ("present", ("fine",))
    assert (found["hung"].state, found["hung"].items) == ("timeout", ("some",))


def test_ctrl_c_before_what_is_asked_meanwhile_ends_all() -> None:
    inner: list[Ended] = []

    def hangs(say: Say) -> None:
        say(os.getpid())
        time.sleep(60)

    def press_and_ask() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        inner.append(workers.ask({"in": hangs}, 60)["in"])

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        workers.ask({"it": hangs}, 60, press_and_ask)
    assert time.monotonic() - started < LATE_S
    assert inner[0].state == "timeout"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


# Hangs


def test_sleeping() -> None:
    def question(say: Say) -> None:
        say({"pid": os.getpid()})
        time.sleep(60)

    ended = ask_to_the_deadline(question, deadline_s=1.0)
    assert (ended.state, ended.detail) == ("timeout", "no answer within 1 s")
    assert is_gone(ended.items[0]["pid"]), "and what it said is kept"


def test_ignoring_every_polite_signal() -> None:
    def question(say: Say) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        say(os.getpid())
        while True:
            time.sleep(1)

    ended = ask_to_the_deadline(question)
    assert ended.state == "timeout"
    assert is_gone(ended.items[0])


def test_stopped() -> None:
    def question(say: Say) -> None:
        say(os.getpid())
        os.kill(os.getpid(), signal.SIGSTOP)

    ended = ask_to_the_deadline(question)
    assert (ended.state, is_gone(ended.items[0])) == ("timeout", True)


def test_what_it_has_started_goes_with_it() -> None:
    """Tools in sessions of their own, and the questions that a question asked."""

    def question(say: Say) -> None:
        script = "trap '' TERM HUP; sleep 60 & echo $!; wait"
        tool = subprocess.Popen(
            ["sh", "-c", script], stdout=subprocess.PIPE, start_new_session=True, text=True
        )
        assert tool.stdout is not None
        say([tool.pid, int(tool.stdout.readline())])

        def inner(_: Say) -> None:
            say(os.getpid())
            time.sleep(60)

        workers.ask({"inner": inner}, 60)

    ended = ask_to_the_deadline(question, words=2)
    (tool, grandchild), inner = ended.items
    assert [is_gone(pid) for pid in (tool, grandchild, inner)] == [True, True, True]


# Ends of other kinds


def test_raising() -> None:
    def question(say: Say) -> None:
        say(1)
        raise ValueError("a register was odd")

    ended = ask_beside(question)
    assert (ended.state, ended.items) == ("error", (1,))
    assert ended.detail == "ValueError: a register was odd"


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (os.abort, "crashed (SIGABRT)"),
        (lambda: ctypes.string_at(0), "crashed (SIGSEGV)"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "crashed (SIGKILL)"),
        (lambda: os._exit(3), "ended early with code 3"),
        (lambda: sys.exit(3), "ended early with code 3"),
    ],
)
def test_dying(end: Callable[[], object], said: str) -> None:
    def question(say: Say) -> None:
        faulthandler.disable()  # pytest's own
        say("before")
        end()

    ended = ask_beside(question)
    assert (ended.state, ended.items) == ("error", ("before",))
    assert said in (ended.detail or "")


def test_its_last_words_are_told() -> None:
    def question(say: Say) -> None:
        faulthandler.disable()
        os.write(2, b"something\n*** corrupted size vs. prev_size ***\n")
        os.abort()

    ended = ask_beside(question)
    assert ended.detail == (
        "the asking process crashed (SIGABRT): *** corrupted size vs. prev_size ***"
    )


def test_an_answer_that_cannot_be_pickled() -> None:
    ended = ask_beside(lambda say: say(lambda: None))
    assert ended.state == "error"
    assert "pickle" in (ended.detail or "").lower()


# Much, and long


def test_printing_megabytes(capfd: pytest.CaptureFixture[str]) -> None:
    def question(say: Say) -> None:
        for _ in range(200):
            os.write(1, b"x" * 65536)
            os.write(2, b"y" * 65536)
        say("done")

    ended = ask_beside(question)
    assert (ended.state, ended.items) == ("present", ("done",))
    assert capfd.readouterr() == ("", "")


def test_printing_for_ever() -> None:
    def question(say: Say) -> None:
        while True:
            os.write(1, b"x" * 65536)

    assert ask_to_the_deadline(question, words=0).state == "timeout"


def test_an_answer_larger_than_a_pipe() -> None:
    answer = [os.urandom(1 << 20) for _ in range(20)]

    def question(say: Say) -> None:
        for part in answer:
            say(part)

    ended = ask_beside(question)
    assert ended.state == "present"
    assert list(ended.items) == answer


def test_an_answer_without_an_end() -> None:
    def question(say: Say) -> None:
        while True:
            say(b"x" * (1 << 20))

    ended = ask_beside(question)
    assert (ended.state, ended.detail) == ("error", "the answer is longer than 64 MiB")


# Grandchildren


def _leave_one_behind(say: Say) -> None:
    pid = os.fork()
    if pid == 0:
        time.sleep(60)
        os._exit(0)
    say(pid)


def test_a_grandchild_that_holds_pipe_and_stdout() -> None:
    ended = ask_beside(_leave_one_behind)
    assert ended.state == "present"
    assert is_gone(ended.items[0])


def test_a_grandchild_of_one_that_crashed() -> None:
    def question(say: Say) -> None:
        faulthandler.disable()
        _leave_one_behind(say)
        os.abort()

    ended = ask_beside(question)
    assert ended.state == "error"
    assert "SIGABRT" in (ended.detail or "")
    assert is_gone(ended.items[0])


# Many, and the asking process


def test_the_number_of_one_that_is_gone_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds later it may be another process's: a signal to it must not be ours."""
    gone: set[int] = set()
    last = [0]  # what the last call of waitpid has found
    late: list[int] = []
    killpg, waitpid = os.killpg, os.waitpid

    def reaped(pid: int, options: int) -> tuple[int, int]:
        found = waitpid(pid, options)
        last[0] = found[0]
        gone.add(found[0])
        return found

    def signalled(pid: int, number: int) -> None:
        if pid in gone and last[0] != pid:  # not at once
            late.append(pid)
        last[0] = 0
        killpg(pid, number)

    def dying(_: Say) -> None:
        if os.fork() == 0:
            time.sleep(60)  # and holds the pipes
        os._exit(1)

    monkeypatch.setattr(os, "killpg", signalled)
    monkeypatch.setattr(os, "waitpid", reaped)
    found = workers.ask({"it": dying, "other": lambda _: time.sleep(60)}, 1, one_has_ended)
    assert (found["it"].state, found["other"].state) == ("error", "timeout")
    assert late == []


def test_threads_of_a_question_do_not_mix_what_they_say() -> None:
    def question(say: Say) -> None:
        def five(letter: str) -> None:
            for _ in range(5):
                say(letter * 200_000)

        threads = [threading.Thread(target=five, args=(letter,)) for letter in "abcdefgh"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    ended = ask_beside(question)
    assert ended.state == "present"
    assert sorted(ended.items) == sorted(
        letter * 200_000 for letter in "abcdefgh" for _ in range(5)
    )


def test_fifty_at_once() -> None:
    """None comes to its end before all have begun: one after the other, they would be in vain."""
    (comes, here), (waits, go) = os.pipe(), os.pipe()

    def question(number: int) -> Question:
        def wait_and_say(say: Say) -> None:
            os.write(here, b".")
            os.read(waits, 1)
            say(number)

        return wait_and_say

    def let_go() -> None:
        for _ in range(50):
            os.read(comes, 1)
        os.write(go, b"." * 50)

    found = workers.ask({str(number): question(number) for number in range(50)}, LONG_S, let_go)
    for end in (comes, here, waits, go):
        os.close(end)
    assert [end.items for end in found.values()] == [(number,) for number in range(50)]


def test_stdin_is_not_theirs() -> None:
    ended = ask_beside(lambda say: say(os.read(0, 10)))
    assert ended.items == (b"",)


def test_no_process_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    def fork() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(workers, "fork", fork)
    found = workers.ask({"it": fine}, 1)["it"]
    assert found.state == "error"
    assert "Resource temporarily unavailable" in (found.detail or "")


def test_other_threads_may_run() -> None:
    stop = threading.Event()
    threads = [threading.Thread(target=stop.wait) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        assert ask_beside(fine).state == "present"
        found: list[Ended] = []
        asking = threading.Thread(
            target=lambda: found.append(workers.ask({"it": fine}, LONG_S)["it"])
        )
        asking.start()
        asking.join(LONG_S)
        assert found[0].items == ("fine",)
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_ctrl_c_while_waiting_ends_them(tmp_path: Path) -> None:
    note = tmp_path / "pid"

    def question(say: Say) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        note.write_text(str(os.getpid()))
        time.sleep(60)

    def press() -> None:
        while not (note.exists() and note.read_text()):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    presser = threading.Thread(target=press)
    presser.start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        workers.ask({"it": question, "other": fine}, 60)
    presser.join()
    assert time.monotonic() - started < LATE_S
    assert is_gone(int(note.read_text()))


def test_ctrl_c_at_any_moment(tmp_path: Path) -> None:
    """Whenever it comes, the asking code goes on once, in one process, and nothing stays."""
    # In a function: Python may raise it at the jump of a loop, which lies outside of a `try` around
    # the loop. SIGINT is ignored in what a shell starts in the background.
    script = (
        "import os, signal\n"
        "from dshpc_setup.machine import workers\n"
        "def asking():\n"
        "    print('ready', flush=True)\n"
        "    while True: workers.ask({str(n): lambda say: say(1) for n in range(5)}, 5)\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "try:\n"
        "    asking()\n"
        "except KeyboardInterrupt:\n"
        "    os.write(1, b'%d ended\\n' % os.getpid())\n"
    )
    for round_ in range(12):
        child = subprocess.Popen(
            [sys.executable, "-c", script],
            stdout=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        time.sleep(0.02 + round_ * 0.0037)
        os.killpg(child.pid, signal.SIGINT)  # as a terminal does
        try:
            out, _ = child.communicate(timeout=LONG_S)
        finally:
            child.kill()
        assert out == b"%d ended\n" % child.pid
        assert child.returncode == 0


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&- 2>&-"])
def test_closed_standard_streams(tmp_path: Path, closed: str) -> None:
    note = tmp_path / "found"
    script = (
        "import sys\n"
        "from dshpc_setup.machine import workers\n"
        "found = workers.ask({'a': lambda say: say(1), 'b': lambda say: say(2)}, 40)\n"
        "open(sys.argv[1], 'w').write(repr([end.items for end in found.values()]))\n"
    )
    subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", script, str(note)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=LONG_S,
        check=True,
    )
    assert note.read_text() == "[(1,), (2,)]"


def test_an_item_is_told_as_it_comes(tmp_path: Path) -> None:
    """Before the question is over: this one waits until the first is heard."""
    heard: list[str] = []

    def on_item(item: str) -> None:
        heard.append(item)
        (tmp_path / item).touch()

    def asked(say: Say) -> None:
        say("first")
        until = time.monotonic() + LONG_S
        while not (tmp_path / "first").exists() and time.monotonic() < until:
            time.sleep(0.01)
        say("second" if (tmp_path / "first").exists() else "never")

    ended = workers.ask({"it": asked}, LONG_S + LATE_S, on_item=on_item)["it"]
    assert (ended.state, ended.items) == ("present", ("first", "second"))
    assert heard == ["first", "second"]


def test_who_cannot_hear_ends_the_question() -> None:
    def on_item(_: str) -> None:
        raise ZeroDivisionError

    def asked(say: Say) -> None:
        say("first")
        time.sleep(LONG_S)

    started = time.monotonic()
    with pytest.raises(ZeroDivisionError):
        workers.ask({"it": asked}, LONG_S, on_item=on_item)
    assert time.monotonic() - started < LATE_S
