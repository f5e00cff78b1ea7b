"""Signals that are answered otherwise for a while."""

from __future__ import annotations

import signal
from threading import Thread

import pytest

from dshpc_setup import signals


@pytest.fixture
def came() -> list[str]:
    return []


def test_what_has_a_handler_counts_once_it_is_over(came: list[str]) -> None:
    with signals.handled([signal.SIGTERM], lambda *_: came.append("term")):
        with signals.held_back():
            signal.raise_signal(signal.SIGTERM)
            came.append("over")
        assert came == ["over", "term"]
        signal.raise_signal(signal.SIGTERM)
    assert came == ["over", "term", "term"]


def test_ctrl_c_interrupts_once_it_is_over(came: list[str]) -> None:
    def hold() -> None:
        with signals.held_back():
            signal.raise_signal(signal.SIGINT)
            came.append("over")

    with pytest.raises(KeyboardInterrupt):
        hold()
    assert came == ["over"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_it_is_not_lost_where_what_it_held_up_fails() -> None:
    def fail() -> None:
        with signals.held_back():
            signal.raise_signal(signal.SIGINT)
            raise FileNotFoundError

    with pytest.raises(KeyboardInterrupt) as caught:
        fail()
    assert isinstance(caught.value.__context__, FileNotFoundError)


def test_what_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # nohup
    try:
        with signals.held_back():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_in_another_thread_there_is_nothing_to_hold(came: list[str]) -> None:
    def work() -> None:
        with signals.held_back():
            came.append("done")

    thread = Thread(target=work)
    thread.start()
    thread.join()
    assert came == ["done"]
