#!/usr/bin/env python3
"""The page of a server in a browser: serve_page.py PATH_OF_RUBATO [FOLDER]

Needs Chromium and the Python package playwright; ends with 77 where they are missing. A model is
tried by a drawing; the page asks for nothing from elsewhere, reports
no error, and shows rate, quantiles, batches and the decision; with a token it asks for it.
FOLDER: pictures of it are written there.
"""
import json
import os
import subprocess
import sys

from browser import JOB, browse

TOKEN = "0123456789abcdef"


def look(browser, address, token, picture, **how):
    page, said = browser.new_page(**how), []
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("console", lambda m: said.append(m.text) if m.type == "error" and "401" not in m.text
            else None)
    page.on("request", lambda r: None if r.url.startswith(f"http://{address}/")
            else said.append("asked for " + r.url))
    page.goto(f"http://{address}/")
    if token:
        page.wait_for_selector("#token", state="visible")
        page.fill("#token", TOKEN)
        page.press("#token", "Tab")
    page.wait_for_selector("#draw")
    page.locator("#draw").scroll_into_view_if_needed()
    box = page.locator("#draw").bounding_box()
    for k, (x, y) in enumerate(((0.3, 0.2), (0.7, 0.2), (0.5, 0.5), (0.45, 0.8))):
        page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"], steps=5)
        if k == 0:
            page.mouse.down()
    page.mouse.up()
    page.wait_for_selector("#answer .bar")
    assert page.locator("#answer .bar").count() == 10
    page.wait_for_selector("#slow:has-text('computed')")
    page.wait_for_selector("#sizes .bar")
    assert "A batch has at most" in page.inner_text("#decided")
    assert "idle" in page.inner_text("#why")
    assert "promise" in page.inner_text("#cards")
    if picture is not None:
        page.screenshot(path=picture, full_page=True)
    page.click("#clear")
    assert page.inner_text("#answer") == ""
    assert not said, said
    page.close()


def check(browser, work):
    rubato = os.path.realpath(sys.argv[1])
    pictures = sys.argv[2] if len(sys.argv) > 2 else None
    with open(os.path.join(work, "job.yaml"), "w") as f:
        f.write(JOB)
    subprocess.run([rubato, "train", "job.yaml", "--out", "run"], cwd=work, check=True,
                   capture_output=True)
    with open(os.path.join(work, "token"), "w") as f:
        f.write(TOKEN)
    os.chmod(os.path.join(work, "token"), 0o600)
    for token in (False, True):
        server = subprocess.Popen(
            [rubato, "serve", "run", "-l", "0", "--json", "--slo", "p99=20ms",
             *(["--token-file", "token"] if token else [])],
            cwd=work, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            address = json.loads(server.stdout.readline())["address"]
            for scheme, width in (("light", 1100), ("dark", 420)):
                picture = pictures and os.path.join(pictures, f"{scheme}-{int(token)}.png")
                look(browser, address, token, picture, color_scheme=scheme,
                     viewport={"width": width, "height": 900})
        finally:
            server.terminate()
            server.wait(20)
    print("the page is as it should be")


browse(check)
