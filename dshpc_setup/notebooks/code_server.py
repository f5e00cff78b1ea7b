"""code-server (VS Code in a browser) as a program of a job: its words and its variables. Pure."""

from __future__ import annotations

import hashlib

NAME, TITLE = "code", "code-server"
CONFIG = "dshpc-config.yaml"  # in its folder, in place of the user's, which may say another port
PROGRAM, ENTRY = "lib/bin/node", "out/node/entry.js"
EXTENSIONS = "lib/vscode/extensions"
_ELSEWHERE = "/proc/self/root"  # another name of the same folders
_LEAST_IDLE_S = 61  # it takes more than a minute


def argv(tree: str, folder: str, socket: str, idle_s: float, token: str) -> tuple[str, ...]:
    """It opens `folder`, and ends when no page has been open for `idle_s`. `socket`: where it listens."""
    settings = {
        "auth": "password",
        "socket": socket,
        "socket-mode": "600",
        # Where `code FILE` of its terminals finds it; the usual place may be too long a path for a socket
        "session-socket": f"{socket}.ipc",
        "config": f"{tree}/{CONFIG}",
        # The work folder has the tree in it: where that is opened, they would be parts of a folder that
        # nobody trusts yet, and off
        "builtin-extensions-dir": f"{_ELSEWHERE}{tree}/{EXTENSIONS}",
        "idle-timeout-seconds": str(max(_LEAST_IDLE_S, round(idle_s))),
        # A browser sends the cookies of 127.0.0.1 to each port of it
        "cookie-suffix": hashlib.sha256(token.encode()).hexdigest()[:8],
    }
    words = (f"--{name}={value}" for name, value in settings.items())
    # It asks nobody on the internet, and opens what it is told to
    quiet = ("--disable-telemetry", "--disable-update-check", "--disable-getting-started-override")
    return (f"{tree}/{PROGRAM}", f"{tree}/{ENTRY}", *words, *quiet, "--ignore-last-opened", folder)


def variables(token: str) -> dict[str, str]:
    # By the second its terminals have the job's variables, and not those that a login shell sets anew:
    # that is how it knows that it was started from a shell
    return {"PASSWORD": token, "VSCODE_CLI": "1"}


def address(port: int, token: str) -> str:
    """Behind the `#` no server is told of it, and no log: the page of the question reads it (`login`)."""
    return f"http://127.0.0.1:{port}/login#{token}"


def login(page: str) -> str:
    """The page of the password, which takes it from its own address now; ValueError for another page."""
    before, end, after = page.rpartition("</body>")
    if not end or 'class="login-form"' not in page:
        raise ValueError("it is another page than that of the password")
    return f"{before}{_SCRIPT}{end}{after}"


_SCRIPT = """<script>
      const given = location.hash.slice(1)
      const form = document.querySelector(".login-form")
      if (given) {
        history.replaceState(null, "", location.pathname + location.search)
        form.querySelector(".password").value = given
        form.submit()
      }
    </script>
  """
