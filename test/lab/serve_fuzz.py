#!/usr/bin/env python3
"""Damaged bodies at a server: serve_fuzz.py PATH_OF_RUBATO [COUNT [SEED]]

COUNT bodies (20000) of infer requests (JSON, binary), texts and the repository, with bytes changed, cut, doubled and
mixed; and damaged config.pbtxt files that the server is to load. Each is answered once with a legal status, a refusal
with a sentence; afterwards the server answers as before, its gauges are zero and its memory has not grown. The same
seed sends the same bytes: serve_fuzz.py build/tool/rubato 1000000 7
"""
import json
import os
import random
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile

from serve_hostile import JOB, Server, request, settled

TEXT = """name: text
model: {zoo: gpt, layers: 1, heads: 1, width: 16, context: 16}
data: {format: tokens, train: t.u8}
train: {batch: 1, steps: 1, threads: 1, autotune: false}
"""
PBTXT = (b'name: "m"\nplatform: "onnxruntime_onnx"\nmax_batch_size: 8\ninput [{ name: "x" data_type: TYPE_FP32 '
         b'dims: [1, 28, 28] }]\ninstance_group [{ count: 1 kind: KIND_CPU }]\nversion_policy: { latest: '
         b'{ num_versions: 1 } }\ndynamic_batching { max_queue_delay_microseconds: 100 }\n')
PIECES = [b"{", b"}", b"[", b"]", b'"', b",", b":", b"null", b"true", b"1e999", b"-1", b"9223372036854775808", b"\\u0000",
          b"\\ud800", b"\xff", b"\x00", b'"data"', b'"shape"', b'"parameters"', b"[[[[", b'"binary_data_size"', b"NaN"]
LEGAL = {200, 400, 404, 405, 413, 429, 503, 504}
ANSWER = re.compile(rb"HTTP/1\.1 (\d+) [^\r]*\r\n(.*?)\r\n\r\n", re.S)


def seeds():
    small = json.dumps({"inputs": [{"name": "x", "shape": [1, 1, 28, 28], "datatype": "FP32", "data": [0.5] * 784}],
                        "outputs": [{"name": "logits", "parameters": {"binary_data": False}}], "id": "a"}).encode()
    head = json.dumps({"inputs": [{"name": "x", "shape": [1, 1, 28, 28], "datatype": "FP32",
                                   "parameters": {"binary_data_size": 3136}}]}).encode()
    return [("/v2/models/m/infer", small, None), ("/v2/models/m/infer", b'{"inputs":[]}', None),
            ("/v2/models/m/infer", head + struct.pack("<784f", *[0.5] * 784), len(head)),
            ("/v1/completions", b'{"prompt":"ab","max_tokens":2,"temperature":0.5,"stop":["x"],"seed":1}', None),
            ("/v2/models/text/generate", b'{"text_input":"ab","parameters":{"max_tokens":2,"top_k":3}}', None),
            ("/v2/repository/index", b'{"ready":true}', None)]


def damage(r, body):
    b = bytearray(body)
    for _ in range(r.randrange(6)):
        at = r.randrange(len(b) + 1)
        how = r.randrange(5)
        if how == 0:
            b[at:at + 1] = bytes([r.randrange(256)])
        elif how == 1:
            b[at:at] = r.choice(PIECES)
        elif how == 2:
            del b[at:at + r.choice((1, 3, 30, 1000))]
        elif how == 3:
            b[at:at] = b[at:at + r.randrange(1, 60)]
        else:
            del b[at:]
    return bytes(b)


def batch(r, all_seeds, n):
    """n requests for one connection, as bytes."""
    out = []
    for _ in range(n):
        path, body, head = r.choice(all_seeds)
        body = damage(r, body)
        length = "" if head is None else f"Inference-Header-Content-Length: {head + r.choice((0, 0, 0, 1, -1, 1 << 40))}\r\n"
        out.append(f"POST {path} HTTP/1.1\r\nHost: x\r\n{length}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return b"".join(out)


def hear(s, n, counts):
    """n answers, one behind the other."""
    held = b""
    for k in range(n):
        while True:
            m = ANSWER.match(held)
            length = m and re.search(rb"(?i)content-length: (\d+)", m[2])
            assert not m or length, held[:300]
            if m and len(held) >= m.end() + int(length[1]):
                break
            more = s.recv(1 << 16)
            assert more, f"the connection ended after {k} of {n} answers: {held[:200]}"
            held += more
        status, end = int(m[1]), m.end() + int(length[1])
        assert status in LEGAL, held[:end]
        assert status == 200 or json.loads(held[m.end():end])["error"], held[:end]
        counts[status] = counts.get(status, 0) + 1
        held = held[end:]
    assert not held, held[:200]


def serve_models(rubato, work):
    def run(*args):
        subprocess.run([rubato, *args], cwd=work, check=True, capture_output=True)
    for name, text in (("job", JOB), ("text", TEXT)):
        with open(os.path.join(work, name + ".yaml"), "w") as f:
            f.write(text)
    with open(os.path.join(work, "t.u8"), "wb") as f:
        f.write(bytes(k * k % 251 for k in range(400)))
    run("train", "job.yaml", "--out", "run")
    run("export", "run", "--onnx", "m.onnx")
    run("train", "text.yaml", "--out", "text")
    folder = os.path.join(work, "models", "m", "1")
    os.makedirs(folder)
    shutil.copy(os.path.join(work, "m.onnx"), os.path.join(folder, "model.onnx"))
    return os.path.join(work, "models")


def send(server, r, count, counts, texts):
    every = [s for s in seeds() if ("/m/" in s[0]) != texts or "/repository" in s[0]]
    links = [socket.create_connection(server.at, 120) for _ in range(4)]
    done = 0
    while done < count:
        sent = []
        for s in links:
            n = min(25, count - done)
            if n > 0:
                s.sendall(batch(r, every, n))
                sent.append((s, n))
                done += n
        for s, n in sent:
            hear(s, n, counts)
    for s in links:
        s.close()


def main():
    rubato = os.path.abspath(sys.argv[1])
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 20000
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(1 << 30)
    print(f"serve_fuzz.py {sys.argv[1]} {count} {seed}", flush=True)
    r, counts = random.Random(seed), {}
    with tempfile.TemporaryDirectory() as work:
        folder = serve_models(rubato, work)
        for path, part in ((folder, 0.8), (os.path.join(work, "text"), 0.2)):
            server = Server(rubato, path)
            server.ready("m" if path == folder else "text")
            send(server, r, int(count * part / 4), counts, path != folder)
            early = settled(server)
            send(server, r, int(count * part) - int(count * part / 4), counts, path != folder)
            for k in range(count // 1000 if path == folder else 0):
                with open(os.path.join(folder, "m", "config.pbtxt"), "wb") as f:
                    f.write(damage(r, PBTXT))
                assert server.ask("POST", "/v2/repository/models/m/load", b"{}")[0] in (200, 400)
            if path == folder:
                assert server.ask("POST", "/v2/models/m/infer", request())[0] == 200
            server.at_rest()
            for _ in range(20):  # what is given back late is waited for
                late = settled(server)
                if late <= 1.05 * early + 4096:
                    break
            server.stop()
            assert late <= 1.05 * early + 4096, (early, late)
    print(f"answers by status: {dict(sorted(counts.items()))}")


main()
