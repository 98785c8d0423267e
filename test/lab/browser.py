"""Pages in Chromium, by the Python package playwright; without one of them the test ends with 77."""
import shutil
import sys
import tempfile

JOB = """name: page
model: {zoo: mlp, hidden: [16]}
data: {format: synthetic, generator: digits, count: 400, test_count: 50}
train: {batch: 40, steps: 10, autotune: false, threads: 1, optimizer: {sgd: {lr: 0.02}}}
"""


def skip(why):
    print("skipped:", why, file=sys.stderr)
    sys.exit(77)


def browse(test):
    """test(browser, work): work is an empty folder for this test."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        skip("this Python has no playwright")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        skip("there is no chromium")
    with tempfile.TemporaryDirectory(prefix="rubato-page-") as work, sync_playwright() as p:
        browser = p.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        test(browser, work)
        browser.close()
