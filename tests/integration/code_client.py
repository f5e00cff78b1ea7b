"""What somebody does in code-server, in a real browser: run by a Python that has Playwright; prints JSON.

python code_client.py ADDRESS FILE
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Locator, Page, sync_playwright

TEXT = "typed in the editor"
_LONGEST_S = 240  # on a machine with many other things to do
# Without the one that keeps a long command in sight, which takes no keys
_TERMINAL = ".terminal-wrapper.active .xterm:not(.terminal-sticky-scroll *)"


def main(address: str, file: str) -> dict[str, Any]:
    """`file`: what its terminal knows of the job goes there, and beside it what its editor saves."""
    hosts: set[str] = set()
    missing: set[str] = set()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        page = browser.new_page()
        page.set_default_timeout(_LONGEST_S * 1000)
        page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
        # Its workers ask for files, too
        page.context.on(
            "response", lambda answer: missing.update({answer.url} if answer.status == 404 else ())
        )
        try:
            use(page, address, file)
        except Exception:
            # What a failure is told by, as nobody sees the page
            shown = "[document.activeElement.outerHTML, document.body.innerText]"
            element, text = page.evaluate(shown)
            print(element[:400], text[-4000:], sep="\n", file=sys.stderr)
            page.screenshot(path=f"{file}.png")
            raise
        url = page.url
        browser.close()
    # What a page makes itself (blob:) has no host
    return {"hosts": sorted(hosts - {""}), "missing": sorted(missing), "url": url}


def use(page: Page, address: str, file: str) -> None:
    page.goto(address)
    page.locator(".monaco-workbench .explorer-folders-view").wait_for()
    # Whether its folder is trusted, as soon as it asks
    page.add_locator_handler(page.get_by_role("button", name="Trust Folder"), accept)
    # And whether a file may be opened that lies elsewhere
    asked = page.locator(".monaco-dialog-box").get_by_role("button", name="Open", exact=True)
    page.add_locator_handler(asked, accept)
    # What is typed is short and has no quotes: where a key is lost, the next try begins a new line
    ran = "$(srun --overlap -n1 printenv SLURM_STEP_ID)"
    said = Path(f"{file}-line")
    said.write_text(
        f'echo "$CUDA_VISIBLE_DEVICES $SLURM_JOB_ID {ran} $(command -v cowsay)" >{file}'
    )
    terminal(page, f". {said}", lambda: tells(file))
    for saved in (f"{file}-saved.txt", f"~/{Path(file).name}-in-home.txt"):
        typed = Path(f"{file}-asked-{Path(saved).name}")
        terminal(page, f"code {saved} && echo > {typed}", typed.exists)
        edit(page, Path(saved).name)


def accept(asked: Locator) -> None:
    asked.click()


def terminal(page: Page, line: str, is_done: Callable[[], bool]) -> None:
    """Type a line in a terminal, and wait until it has been carried out."""
    # Where it is slow, the key is pressed again before the first one has come: then there are two
    screen = page.locator(f"{_TERMINAL} .xterm-screen").filter(visible=True).last
    for _ in range(_LONGEST_S // 30):
        if screen.count():
            break
        page.locator(".part.statusbar").hover()
        page.keyboard.press("Control+Shift+Backquote")
        waited(page, lambda: screen.count() > 0, 30)
    for _ in range(_LONGEST_S // 30):  # what is typed before its shell is there is lost
        # What asks is answered first: `accept` waits for an action
        page.locator(".part.statusbar").hover()
        # Not by a click: what a terminal shows at the pointer takes it
        page.locator(f"{_TERMINAL} textarea.xterm-helper-textarea").last.focus()
        # What is left of an earlier try; Ctrl-C would take keys that come right behind it, too
        page.keyboard.press("Control+u")
        page.keyboard.type(line, delay=20)
        page.keyboard.press("Enter")
        if waited(page, is_done, 30):
            return
    raise TimeoutError(line)


def tells(file: str) -> bool:
    path = Path(file)
    told = r"[0-9]+ [0-9]+ [0-9]+ \S+\n"
    return path.exists() and re.fullmatch(told, path.read_text()) is not None


def waited(page: Page, is_so: Callable[[], bool], seconds: int) -> bool:
    for _ in range(seconds * 4):
        if is_so():
            return True
        page.wait_for_timeout(250)
    return False


def edit(page: Page, name: str) -> None:
    """What is typed into the editor that is open now, saved."""
    tab = page.locator(f".tab.active[data-resource-name='{name}']")
    tab.wait_for()
    lines = page.locator(".editor-instance .view-lines")
    lines.first.click()
    page.keyboard.type(TEXT)
    # It may have been saved by itself meanwhile: that it has a change may be seen for a moment alone
    lines.filter(has_text=re.compile(TEXT.replace(" ", r"\s"))).first.wait_for()
    page.keyboard.press("Control+s")
    page.locator(f".tab.active:not(.dirty)[data-resource-name='{name}']").wait_for()


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2])))
