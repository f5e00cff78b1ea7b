"""Machines with an engine of each kind, opened when first asked for, in one of two states."""

from __future__ import annotations

import contextlib

from tests.integration.bench import cdi, hardware
from tests.integration.bench.engines import Bench, Kind, OpenBench


class Park:
    """`stack` closes them all. In `bare` and `whole` machines are two NVIDIA cards and their driver.

    A test may have a machine that another test has used, in the state that it asks for.
    """

    def __init__(
        self, stack: contextlib.ExitStack, open_bench: OpenBench, built: hardware.Built
    ) -> None:
        self._stack = stack
        self._open = open_bench
        self._built = built
        self._bare: dict[Kind, Bench] = {}
        self._whole: dict[Kind, Bench] = {}
        self._amd: dict[Kind, Bench] = {}

    def bare(self, kind: Kind) -> Bench:
        """A machine whose engine knows nothing of its GPUs."""
        if kind not in self._bare:
            made = self._stack.enter_context(self._open(kind))
            hardware.add_nvidia(made, self._built)
            self._bare[kind] = made
        return self._bare[kind]

    def whole(self, kind: Kind) -> Bench:
        """A machine with toolkit, registered runtime and CDI specification; a bare one becomes it."""
        if kind not in self._whole:
            made = self.bare(kind)
            del self._bare[kind]
            hardware.add_hook(made)
            hardware.add_runtime(made)
            cdi.turn_on(made)
            cdi.write_spec(made, cdi.nvidia_spec())
            made.restart()
            self._whole[kind] = made
        return self._whole[kind]

    def fix(self, kind: Kind) -> None:
        """Without the faults that a test made on the whole machine."""
        made = self._whole[kind]
        made.remove(hardware.HANG)
        hardware.break_hook(made)
        hardware.remove_other_drivers(made)
        hardware.add_nvidia(made, self._built)
        cdi.remove_spec(made, "second")
        cdi.write_spec(made, cdi.nvidia_spec())
        cdi.wait_taken_up(made)

    def amd(self, kind: Kind) -> Bench:
        """A machine with four AMD cards, whose nodes belong to a group of the number 109."""
        if kind not in self._amd:
            made = self._stack.enter_context(self._open(kind))
            hardware.add_amd(made)
            self._amd[kind] = made
        return self._amd[kind]
