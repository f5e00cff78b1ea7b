"""What Acme's programs say, and the findings that it is a sign of."""

from __future__ import annotations

SIGNS = ((("DSH-AC-001",), r"\bACME_ERROR_STALLED\b"),)
