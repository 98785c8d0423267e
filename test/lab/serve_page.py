#!/usr/bin/env python3
"""The page of a server in a browser: serve_page.py PATH_OF_RUBATO [FOLDER]

Needs Chromium and the Python package playwright; ends with 77 where they are missing. A model is
tried by a drawing; the page asks for nothing from elsewhere, reports
no error, and shows rate, quantiles, batches and the decision; with a token it asks for it; a language
model goes on with a text.
FOLDER: pictures of it are written there.
"""
import json
import os
import subprocess
import sys

from browser import JOB, browse

TOKEN = "0123456789abcdef"
TEXT = """name: text
model: {zoo: gpt, layers: 1, heads: 1, width: 16, context: 32}
data: {format: tokens, train: corpus/train.u8}
train: {batch: 8, steps: 10, threads: 1, optimizer: {adamw: {lr: 0.01}}}
"""


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


def look_at_text(browser, work, rubato):
    """A language model goes on with what is typed, at temperature 0 as `rubato predict` does."""
    with open(os.path.join(work, "text.yaml"), "w") as f:
        f.write(TEXT)
    for command in (["data", "make", "grammar", "--out", "made", "--count", "4000", "--test", "200"],
                    ["data", "make", "text", "made/train.txt", "--out", "corpus"],
                    ["train", "text.yaml", "--out", "text"]):
        subprocess.run([rubato, *command], cwd=work, check=True, capture_output=True)
    want = subprocess.run([rubato, "predict", "text", "--prompt", "the ", "--tokens", "9", "--temperature", "0"],
                          cwd=work, check=True, capture_output=True, text=True).stdout[4:-1]
    server = subprocess.Popen([rubato, "serve", "text", "-l", "0", "--json"], cwd=work,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        address, said = json.loads(server.stdout.readline())["address"], []
        page = browser.new_page()
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(f"http://{address}/")
        page.fill("#prompt", "the ")
        page.get_by_label("tokens").fill("9")
        page.get_by_label("temperature").fill("0")
        page.click("#send")
        page.wait_for_selector("#answer .hint:has-text('9 tokens in')")
        assert page.text_content("#answer pre") == want, (page.text_content("#answer pre"), want)
        page.get_by_label("tokens").fill("0")
        page.click("#send")
        page.wait_for_selector("#answer .hint:has-text('max_tokens 0 writes nothing')")
        assert not said, said
        if len(sys.argv) > 2:
            page.screenshot(path=os.path.join(sys.argv[2], "text.png"), full_page=True)
        page.close()
    finally:
        server.terminate()
        server.wait(20)


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
    look_at_text(browser, work, rubato)
    print("the page is as it should be")


browse(check)
