"""`python .../builtin_client exec|inspect|compose|...`: started as a client of an engine's is."""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    # In place of this folder, whose modules would be taken for others of the same name
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if sys.argv[1:2] == ["--cache"]:
        from dshpc_setup.builtin.cache import PLACE

        os.environ[PLACE] = sys.argv[2]
        del sys.argv[1:3]
    if sys.argv[1:2] == ["exec"]:
        from dshpc_setup.builtin_client import executing

        code = executing.quick(sys.argv[2:])
        if code is not None:
            sys.exit(code)

    from dshpc_setup.builtin_client.main import main

    sys.exit(main(sys.argv[1:]))
