"""The checks of Acme's cards."""

from __future__ import annotations

from dshpc_setup.diagnose import kernel_log
from dshpc_setup.diagnose.common import none_of, of_vendor
from dshpc_setup.diagnose.model import Check, CheckInput, Verdict, fine, warning
from dshpc_setup.errors import Fix


def _stalls(known: CheckInput) -> Verdict:
    if not of_vendor(known, "acme"):
        return none_of(known, "acme")
    lines = kernel_log.lines(known.observed.kernel, r"\bacme\d+: stalled")
    if not lines:
        return fine()
    return warning("An Acme card has stalled.", *lines, fix=(Fix("Wake it", "sudo acme-smi wake"),))


CHECKS: tuple[Check, ...] = (
    Check("DSH-AC-001", "driver", "No Acme card has stalled", "An Acme card has stalled", _stalls),
)
