"""Fetch the scripts of the dashboard's pages into `browser/`, which the wheel then carries.

To be run before a release is built: python scripts/browser_files.py
"""

from __future__ import annotations

import sys
from pathlib import Path

from dshpc_setup.dashboard.browser_files import FOLDER, Scripts, packages
from dshpc_setup.machine.local import LocalMachine


def main() -> int:
    scripts = Scripts(packages(), (Path(__file__).resolve().parent.parent / FOLDER,))
    if not scripts.read():
        scripts.fetch(LocalMachine())
    print("\n".join(scripts.names) or "They could not be fetched.")
    return 0 if scripts.names else 2


if __name__ == "__main__":
    sys.exit(main())
