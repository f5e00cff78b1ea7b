"""`dshpc --version` against `python -c pass`, in the environment of the Python that runs this.

python benchmarks/version.py
"""

from __future__ import annotations

import sys

from side_by_side import arguments, compare, program

MOST = 8.0


def main() -> int:
    return compare(
        "dshpc --version",
        [program(), "--version"],
        [sys.executable, "-c", "pass"],
        most=MOST,
        rounds=arguments(__doc__, 30).rounds,
    )


if __name__ == "__main__":
    sys.exit(main())
