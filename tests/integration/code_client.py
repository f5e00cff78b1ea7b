"""What somebody does in code-server, in a real browser: run by a Python that has Playwright; prints JSON.

python code_client.py ADDRESS FILE
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Page, sync_playwright

TEXT = "typed in the editor"


def main(address: str, file: str) -> dict[str, Any]:
    """`file`: what its terminal knows of the job goes there, and beside it what its editor saves."""
    hosts: set[str] = set()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        page = browser.new_page()
        page.set_default_timeout(120_000)
        page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
        page.goto(address)
        page.locator(".monaco-workbench .explorer-folders-view").wait_for()
        page.get_by_role("button", name="Yes, I trust").click()
        page.locator(".monaco-dialog-box").wait_for(state="detached")
        terminal(page, f'echo "$CUDA_VISIBLE_DEVICES $SLURM_JOB_ID" > {file}', Path(file))
        saved = Path(f"{file}-saved.txt")
        terminal(page, f"code {saved}; echo > {file}-asked", Path(f"{file}-asked"))
        edit(page, saved)
        url = page.url
        browser.close()
    return {"hosts": sorted(hosts), "url": url}


def terminal(page: Page, line: str, sign: Path) -> None:
    """Type a line in a terminal; `sign` is written by it."""
    screen = page.locator(".terminal-wrapper.active .xterm-screen")
    if not screen.count():
        page.keyboard.press("Control+Shift+Backquote")
    screen.click()
    page.wait_for_timeout(2000)  # its shell reads what it begins with
    page.keyboard.type(line)
    page.keyboard.press("Enter")
    for _ in range(240):
        if sign.exists():
            return
        page.wait_for_timeout(250)
    raise TimeoutError(line)


def edit(page: Page, file: Path) -> None:
    """What is typed into the editor that is open now, saved."""
    page.locator(f".tab[data-resource-name='{file.name}']").wait_for()
    page.locator(".editor-instance .view-lines").first.click()
    page.keyboard.type(TEXT)
    page.keyboard.press("Control+s")
    for _ in range(240):
        if file.exists() and file.read_text().strip() == TEXT:
            return
        page.wait_for_timeout(250)
    raise TimeoutError(file.name)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2])))
