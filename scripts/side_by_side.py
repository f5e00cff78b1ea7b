"""All tests in two lines beside each other: those on this machine's engine, and all others.

Most of the time is waiting, and tests of one line do not meet those of the other. The output of the
second line comes after the first one's. Exit code: that of the first line that failed, else 0.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile


def main() -> int:
    pytest = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    with tempfile.TemporaryFile() as output:
        others = subprocess.Popen(
            [*pytest, "--line", "others"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            first = subprocess.run([*pytest, "--line", "engine"], check=False).returncode
            second = others.wait()
        finally:
            if others.poll() is None:
                others.kill()
                others.wait()
        output.seek(0)
        sys.stdout.flush()
        sys.stdout.buffer.write(output.read())
    return first or second


if __name__ == "__main__":
    sys.exit(main())
