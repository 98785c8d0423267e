#!/usr/bin/env python3
"""Batches behind a Lambda-compatible endpoint of another make: functions_offline.py RUBATO FUNCTION.md

serverless-offline (npm install serverless@3.40 serverless-offline@12, Node 20) answers Invoke with the handler that
docs/function.md shows, which hands each call to a `rubato function`. Requests are signed; each has the answer of a
server that computes itself, and they come back in batches; when the function's program dies, requests fail with a
sentence, and when it is back they do not. RUBATO_SERVERLESS names the folder with node_modules; 77 (skipped) without it.
"""
import json
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import functions

SITE = """service: rubato
frameworkVersion: '3'
provider: {name: aws, runtime: nodejs18.x, timeout: 60, environment: {RUBATO_URL: "${env:RUBATO_URL}"}}
plugins: [serverless-offline]
functions: {digits: {handler: handler.run, name: digits}}
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start_function(rubato, run, port):
    p = subprocess.Popen([rubato, "function", run, "--listen", f"127.0.0.1:{port}"], stdout=subprocess.PIPE, text=True)
    line = p.stdout.readline()
    assert "answers" in line, line
    return p, line.split()[0]


def listens(port, process):
    while process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return True
        except OSError:
            time.sleep(0.1)
    return False


def check(rubato, page, modules, folder):
    os.chdir(folder)
    with open(page) as f:
        handler = re.search(r"```\n(const http = .*?)```", f.read(), re.S).group(1)
    for name, text in (("serverless.yml", SITE), ("handler.js", handler), ("job.yaml", functions.JOB)):
        with open(name, "w") as f:
            f.write(text)
    os.symlink(os.path.join(modules, "node_modules"), "node_modules")
    subprocess.run([rubato, "train", "job.yaml", "-o", "run", "-q"], check=True, stdout=subprocess.DEVNULL)
    own, port, others = free_port(), free_port(), [free_port(), free_port()]
    program, url = start_function(rubato, "run", own)
    env = {**os.environ, "RUBATO_URL": url, "SLS_TELEMETRY_DISABLED": "1", "SLS_NOTIFICATIONS_MODE": "off", "HOME": folder,
           "NODE_OPTIONS": "--no-experimental-require-module",  # serverless 3 loads modules by import() then
           "AWS_ACCESS_KEY_ID": "someone", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "eu-west-1"}
    with open("site.log", "w") as log:
        site = subprocess.Popen(["node", "node_modules/serverless/bin/serverless.js", "offline", "--lambdaPort", str(port),
                                 "--httpPort", str(others[0]), "--albPort", str(others[1])], env=env, stdout=log, stderr=log)
    far = None
    try:
        if not listens(port, site):
            with open("site.log") as f:
                sys.exit(f"serverless-offline ended: {f.read()[-2000:]}")
        rows = [[round(random.random(), 4) for _ in range(784)] for _ in range(5)]
        here = functions.Server(rubato, "run")
        want = [here.infer(r)[1] for r in rows]
        here.stop()
        os.environ.update({k: env[k] for k in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION")})
        far = functions.Server(rubato, "run", "--slo", "p95=2s", "--functions", f"http://127.0.0.1:{port}", "--memory",
                               "1024", "--function-name", "digits", "--sign", "--batch", "8")
        asked = calls = 0
        for _ in range(10):  # until a choice is made
            for k, (status, got) in enumerate(functions.load(far, rows, 100, 0.02)):
                assert status == 200, got
                assert max(abs(a - b) for a, b in zip(got, want[k % 5])) < 1e-4
            asked += 100
            calls = int(re.search(r"for %d requests \(.* GB-s, (\d+) calls\)" % asked, far.page()).group(1))
            if calls < asked - 5:
                break
        assert calls < asked - 5, far.page()
        program.kill()
        program.wait()
        status, why = far.infer(rows[0])
        assert status == 500 and "ECONN" in why, (status, why)
        program, _ = start_function(rubato, "run", own)
        status, got = far.infer(rows[1])
        assert status == 200 and max(abs(a - b) for a, b in zip(got, want[1])) < 1e-4, got
        print(f"functions_offline: {asked} requests in {calls} calls through serverless-offline")
        far.stop()
        far = None
    finally:
        for p in (program, site) + ((far.process,) if far else ()):
            p.kill()
            p.wait()


if __name__ == "__main__":
    given = os.environ.get("RUBATO_SERVERLESS", "")
    if not os.path.exists(os.path.join(given, "node_modules/serverless-offline")):
        print("RUBATO_SERVERLESS names no folder with serverless and serverless-offline")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as place:
        check(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), os.path.abspath(given), place)
