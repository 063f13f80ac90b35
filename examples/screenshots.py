"""Take the screenshots of the documentation: `python examples/screenshots.py`. Needs chromium, extras dev and ui.

docs/contrast_page.png   the page of `vcsd contrast world --tiles 6`, with the details of a token
docs/precheck_page.png   the page of `vcsd precheck world --num 64`
docs/run_report.png      a report of the base and two runs of `vcsd demo --fast`
docs/run_samples.png     its samples
docs/ui.png              `vcsd ui`; docs/ui_phone.png: the same on a phone

With --demo-report FOLDER, where FOLDER is that of a finished `vcsd demo`, it takes only docs/demo.png: the top of its
report. The other pictures come from `vcsd demo --fast`, which takes less time and shows other numbers.
With --looks FOLDER, it writes whole pages instead: light and dark, 1200 and 390 pixels wide, to be looked at.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from argparse import ArgumentParser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from playwright.sync_api import sync_playwright

from vcsd.inspect import open_model
from vcsd.inspect.ui.ui_app import Desk, build, serve

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from playwright.sync_api import Page as Tab

DESK, PHONE = (1200, 1000), (390, 844)


def command(*words: str | Path) -> None:
    """Run a vcsd command."""
    subprocess.run([sys.executable, "-m", "vcsd", *map(str, words)], check=True)


def write_pages(folder: Path, demo: Path) -> dict[str, Path]:
    """Write the pages with the commands that the documentation names."""
    pages = {name: folder / f"{name}.html" for name in ("contrast", "compare", "report")}
    command("contrast", "world", "--tiles", "6", "--output", pages["contrast"])
    other = "src/vcsd/bases/assets/qwen3_5-small-1"
    command("contrast", "world", "--compare", other, "--output", pages["compare"])
    command("precheck", "world", "--num", "64", "--out", folder / "precheck")
    if not (demo / "report.html").exists():
        command("demo", "--fast", "--out", demo)
    command("report", demo / "base", demo / "opsd", demo / "vcsd", "--output", pages["report"])
    return {**pages, "precheck": folder / "precheck" / "precheck.html"}


def opened(browser: Browser, address: str, size: tuple[int, int], scheme: str = "light") -> Tab:
    """Open a page as a reader with this screen and theme would."""
    tab = browser.new_page(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
    tab.set_default_timeout(120_000)
    tab.goto(address)
    return tab


def opened_ui(browser: Browser, address: str, size: tuple[int, int], scheme: str = "light") -> Tab:
    """Open `vcsd ui`, wait for its first answer, and choose a token."""
    tab = opened(browser, address, size, scheme)
    frame = tab.frame_locator("iframe[title='token contrast']")
    frame.locator(".tokens").first.wait_for()
    if size == PHONE:
        tab.locator("iframe").evaluate("frame => frame.scrollIntoView()")
    frame.locator(".t label", has_text="green").click()
    tab.wait_for_timeout(500)  # Gradio fades its parts in
    return tab


def take_documentation(browser: Browser, pages: dict[str, Path], ui: str, out: Path) -> None:
    """Take what the documentation shows."""
    tab = opened(browser, pages["contrast"].as_uri(), (1120, 900))
    tab.click(".t:nth-child(4) label")
    tab.mouse.move(5, 5)
    tab.evaluate("window.scrollTo(0, 0)")
    tab.screenshot(path=out / "contrast_page.png")
    opened(browser, pages["precheck"].as_uri(), (1120, 1150)).screenshot(path=out / "precheck_page.png")
    opened(browser, pages["report"].as_uri(), DESK).screenshot(path=out / "run_report.png")
    tab = opened(browser, pages["report"].as_uri(), (1120, 950))
    samples = tab.locator("section", has=tab.get_by_role("heading", name="Samples"))
    chosen = samples.locator("details", has=tab.locator(".tokens", has_text="answer")).last
    chosen.evaluate("one => window.scrollTo(0, one.getBoundingClientRect().bottom - 940)")
    tab.screenshot(path=out / "run_samples.png")
    opened_ui(browser, ui, DESK).screenshot(path=out / "ui.png")
    opened_ui(browser, ui, PHONE).screenshot(path=out / "ui_phone.png")


def take_looks(browser: Browser, pages: dict[str, Path], ui: str, out: Path) -> None:
    """Take every page whole, on a desk and on a phone, in light and dark."""
    for size in (DESK, PHONE):
        for scheme in ("light", "dark"):
            for name, path in pages.items():
                tab = opened(browser, path.as_uri(), size, scheme)
                tab.screenshot(path=out / f"{name}_{size[0]}_{scheme}.png", full_page=True)
            opened_ui(browser, ui, size, scheme).screenshot(path=out / f"ui_{size[0]}_{scheme}.png")


def take_demo(browser: Browser, demo: Path, out: Path) -> None:
    """Take the top of the report of `vcsd demo`."""
    opened(browser, (demo / "report.html").resolve(strict=True).as_uri(), (1180, 1060)).screenshot(
        path=out / "demo.png"
    )


def main() -> None:
    """Write the pages, open them in chromium, and take the pictures."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "docs")
    parser.add_argument("--demo", type=Path, default=Path("runs/demo"), help="a folder of vcsd demo; made if missing")
    parser.add_argument("--looks", type=Path, help="write whole pages here instead")
    parser.add_argument("--demo-report", type=Path, metavar="FOLDER", help="take only demo.png, of this vcsd demo")
    options = parser.parse_args()
    take = take_looks if options.looks else take_documentation
    out: Path = options.looks or options.out
    out.mkdir(parents=True, exist_ok=True)
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=flags)
        if options.demo_report:
            take_demo(browser, options.demo_report, out)
            browser.close()
            return
        pages = write_pages(Path(folder), options.demo)
        blocks = build(Desk(open_model("world")))
        take(browser, pages, serve(blocks, None), out)
        browser.close()
        blocks.close(verbose=False)


if __name__ == "__main__":
    main()
