"""How code-server is started, and how its page takes the token."""

from __future__ import annotations

import pytest

from dshpc_setup.notebooks import code_server


def test_its_words() -> None:
    words = code_server.argv("/tree", "/work", "/home/.state/code.sock", 900.0, "secret")
    assert words[:2] == ("/tree/lib/bin/node", "/tree/out/node/entry.js")
    assert words[-1] == "/work"
    settings = dict(word[2:].split("=", 1) for word in words[2:-1] if "=" in word)
    assert settings["socket"] == "/home/.state/code.sock"
    assert settings["socket-mode"] == "600"
    assert settings["auth"] == "password"
    assert settings["idle-timeout-seconds"] == "900"
    assert settings["config"].startswith("/tree/")
    # In no folder that is opened, whichever that is, and yet those of the tree
    assert settings["builtin-extensions-dir"] == "/proc/self/root/tree/lib/vscode/extensions"
    assert "--ignore-last-opened" in words
    assert not any("secret" in word for word in words)
    short = code_server.argv("/tree", "/work", "/s", 1.0, "other")
    assert "--idle-timeout-seconds=61" in short
    assert {word for word in short if "cookie" in word}.isdisjoint(words)


def test_the_token_is_no_word_and_no_part_of_a_request() -> None:
    assert code_server.variables("secret")["PASSWORD"] == "secret"
    assert code_server.address(4000, "secret") == "http://127.0.0.1:4000/login#secret"


def test_the_page_takes_it_from_its_address() -> None:
    page = '<form class="login-form"></form><script>old()</script>\n</body>\n</html>'
    found = code_server.login(page)
    assert found.index("old()") < found.index("form.submit()") < found.index("</body>")
    for other in ("", "<body></body>", '<form class="login-form">'):
        with pytest.raises(ValueError, match="another page"):
            code_server.login(other)
