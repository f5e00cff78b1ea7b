"""What somebody does in JupyterLab, in a real browser: run by a Python that has Playwright; prints JSON.

python lab_client.py ADDRESS FILE
"""

from __future__ import annotations

import json
import sys
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Page, sync_playwright

GPU = (
    "import os, pathlib; told = os.environ; "
    "said = ('GPU', told['CUDA_VISIBLE_DEVICES'], 'job', told['SLURM_JOB_ID']); "
    "pathlib.Path.home().joinpath('from-the-cell').write_text(' '.join(said)); print(*said)"
)
CARD = ".jp-LauncherCard[data-category='{}'][title*='{}']"


def main(address: str, file: str) -> dict[str, Any]:
    hosts: set[str] = set()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        page = browser.new_page()
        page.set_default_timeout(120_000)
        page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
        page.goto(address)
        said = cell(page)
        terminal(page, f"srun --overlap -n1 sh -c 'echo $SLURM_STEP_ID' > {file}")
        title = page.title()
        browser.close()
    return {"cell": said, "hosts": sorted(hosts), "title": title}


def cell(page: Page) -> str:
    """What the first cell of a new notebook prints; the notebook is saved."""
    page.locator(CARD.format("Notebook", "Python 3")).click()
    editor = page.locator(".jp-Notebook .jp-CodeCell .cm-content").first
    editor.click()
    page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()
    editor.click()
    page.keyboard.insert_text(GPU)
    editor.filter(has_text="SLURM_JOB_ID").wait_for()
    page.keyboard.press("Shift+Enter")
    output = page.locator(".jp-OutputArea-output", has_text="job").first
    output.wait_for()
    page.keyboard.press("Control+s")
    page.locator("dialog .jp-mod-accept").click()  # under the name that it has
    page.locator("dialog").wait_for(state="detached")
    page.wait_for_timeout(1000)
    return str(output.inner_text()).strip()


def terminal(page: Page, line: str) -> None:
    page.goto(page.url.partition("/lab")[0] + "/lab?reset")  # as it was first
    page.locator(CARD.format("Other", "terminal")).click()
    page.locator(".jp-Terminal .xterm-screen").click()
    page.wait_for_timeout(3000)  # its shell reads what it begins with
    page.keyboard.type(line)
    page.keyboard.press("Enter")
    page.wait_for_timeout(5000)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2])))
