"""What a real browser sees of the dashboard: run by a Python that has Playwright; prints one JSON object.

python browser_client.py ADDRESS AXE.js JOB ARRAY
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def main(address: str, axe: str, job: str, array: str) -> dict[str, Any]:
    top = address.partition("/?")[0]
    paths = [
        *("/", "/jobs", f"/jobs/{job}", f"/jobs/{job}/files/", f"/jobs/{job}/cancel", "/gpus/0"),
        *("/run", "/run/monte-carlo-pi", "/health", "/health/DSH-NV-002", "/setup", "/none"),
        *(
            "/usage",
            "/workflows",
            "/workflows/pages",
            "/health/fix",
            "/nodes",
            "/joining",
            "/notebook",
            "/setup/try?name=simulate&value=t4:1",
            f"/jobs/{array}",
        ),
    ]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        found = {
            "violations": [
                each
                for scheme in ("light", "dark")
                for each in violations(
                    browser, scheme, address, [top + path for path in paths], axe
                )
            ],
            **phone(browser, address, [top + path for path in paths]),
            "live": live(browser, address),
            "keyboard": keyboard(browser, address),
        }
        browser.close()
    return found


def violations(
    browser: Browser, scheme: Any, address: str, pages: list[str], axe: str
) -> list[list[str]]:
    """Of axe-core; it has to be let past the pages' own policy."""
    context = browser.new_context(color_scheme=scheme, bypass_csp=True)
    page = context.new_page()
    page.goto(address)
    found = []
    for url in pages:
        page.goto(url)
        page.evaluate(Path(axe).read_text(encoding="utf-8"))
        told = page.evaluate("rules => axe.run({runOnly: rules})", RULES)
        found += [
            [scheme, url.partition(":8")[2] or url, each["id"], each["nodes"][0]["html"][:200]]
            for each in told["violations"]
        ]
    context.close()
    return found


def phone(browser: Browser, address: str, pages: list[str]) -> dict[str, Any]:
    """On a narrow screen: pages that are too wide, whom they ask, and what the browser complains about."""
    context = browser.new_context(viewport={"width": 375, "height": 800})
    page = context.new_page()
    hosts: set[str] = set()
    complaints: list[str] = []
    page.on("request", lambda request: hosts.add(request.url.split("/")[2]))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(address)
    shown = page.url
    wide = []
    for url in pages:
        page.goto(url)
        if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            wide.append(url)
    context.close()
    # What a page that is not there is told with is no complaint of ours
    policy = [text for text in complaints if "Failed to load resource" not in text]
    return {"address": shown, "wide": wide, "hosts": sorted(hosts), "complaints": policy}


def live(browser: Browser, address: str) -> bool:
    """Whether the overview changes without being loaded again: a job of a cancelled form's name comes."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(address)
    page.evaluate("window.stays = true")
    other = context.new_page()
    other.goto(address)
    submit(other, "sleep 300")
    until = time.monotonic() + 30
    while time.monotonic() < until:
        if "sleep-of-the-browser" in page.inner_text("main"):
            break
        time.sleep(0.2)
    there = "sleep-of-the-browser" in page.inner_text("main") and page.evaluate(
        "window.stays === true"
    )
    other.click("text=Cancel")
    other.click("text=Cancel the job")
    other.wait_for_selector("text=The job is cancelled.")
    context.close()
    return bool(there)


def submit(page: Page, command: str) -> None:
    page.click("nav >> text=Run")
    page.fill("#command-words", command)
    page.fill("#job-name", "sleep-of-the-browser")
    page.click("button:has-text('Submit')")
    page.wait_for_selector("text=The job is submitted.")


def keyboard(browser: Browser, address: str) -> list[str]:
    """What the first tabs lead to."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(address)
    seen = []
    for _ in range(3):
        page.keyboard.press("Tab")
        seen.append(str(page.evaluate("document.activeElement.textContent")))
    context.close()
    return seen


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
