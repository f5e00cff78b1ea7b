"""`dshpc --version` against `python -c pass`, in the environment of the Python that runs this.

python benchmarks/version.py
"""

from __future__ import annotations

import sys
from pathlib import Path

from side_by_side import arguments, compare

MOST = 8.0


def main() -> int:
    parser = arguments(__doc__, 30)
    options = parser.parse_args()
    program = Path(sys.executable).with_name("dshpc")
    if not program.exists():
        parser.error(f"{program} is not there: run this with the Python of dshpc's environment")
    return compare(
        "dshpc --version",
        [str(program), "--version"],
        [sys.executable, "-c", "pass"],
        most=MOST,
        rounds=options.rounds,
    )


if __name__ == "__main__":
    sys.exit(main())
