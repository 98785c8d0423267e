#!/usr/bin/env python3
"""The page of a run in a browser: page.py PATH_OF_RUBATO

Needs Chromium and the Python package playwright; ends with 77 where they are missing. Opens the
pages of a trace without records, of a resumed run and of a simulated one, by keyboard alone: each
is ready, asks for nothing outside its file, says nothing on the console, and shows what it has.
"""
import os
import struct
import subprocess
import sys

from browser import JOB, browse


def make_pages(rubato, work):
    def run(*args):
        subprocess.run([rubato, *args], cwd=work, check=True, capture_output=True)

    with open(work + "/job.yaml", "w") as f:
        f.write(JOB)
    with open(work + "/empty.trace", "wb") as f:
        f.write(b"RUBATOTR" + struct.pack("<IIqq", 2, 0, 10**18, 10**9) + bytes(24 + 8))
    run("train", "job.yaml", "--out", "again")
    run("train", "job.yaml", "--out", "again", "--resume", "--set", "train.steps=20")
    run("sim", "again", "-w", "12", "--trace", "many", "--steps", "6")
    run("trace", "empty.trace", "--html", "empty.html")
    run("trace", "again", "--html", "again.html")
    run("trace", "many", "--html", "many.html")


def tab_to(page, name):
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == name:
            return
    raise AssertionError("the keyboard does not reach " + name)


def look(browser, path, steps, ranks, recordings):
    page, said = browser.new_page(viewport={"width": 1300, "height": 900}), []
    page.on("console", lambda m: said.append(m.text))
    page.on("pageerror", lambda e: said.append(str(e)))
    page.on("request", lambda r: r.url.startswith(("file:", "data:")) or said.append(r.url))
    page.goto("file://" + path)
    page.wait_for_selector("body[data-ready]", timeout=20000)
    assert page.inner_text("#about").startswith(f"Trace of {ranks} rank"), page.inner_text("#about")
    shown = page.evaluate("rows.filter(r => r.lane).length")
    assert shown == page.evaluate("lanes.length"), "a lane stands twice or is missing"
    assert page.evaluate("rows.filter(r => r.rank).length") == recordings
    if steps > 0:
        tab_to(page, "heat")
        for _ in range(recordings - 1):
            page.keyboard.press("ArrowDown")
        page.keyboard.press("End")
        at = page.inner_text("#heat-at")
        assert f", step {steps}:" in at, at
        tab_to(page, "line")
        page.keyboard.press("ArrowRight")
        first = page.inner_text("#line-at")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        assert first != page.inner_text("#line-at") != "Nothing is selected."
        page.keyboard.press("Escape")
    assert page.inner_text("#line-at") == "Nothing is selected."
    assert not said, said
    page.close()


def check(browser, work):
    make_pages(os.path.realpath(sys.argv[1]), work)
    look(browser, work + "/empty.html", 0, 1, 1)
    look(browser, work + "/again.html", 20, 1, 2)
    look(browser, work + "/many.html", 6, 12, 12)
    print("3 pages are as they should be")


browse(check)
