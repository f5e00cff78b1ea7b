"""Where Acme's container kit is to be had."""

from __future__ import annotations

from dshpc_setup.remedies.of_vendors import VendorRemedies

REMEDIES = VendorRemedies(guide="https://acme.example/kit")
