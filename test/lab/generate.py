#!/usr/bin/env python3
"""Texts from a server: generate.py PATH_OF_RUBATO

Trains a small language model and serves it. Texts at temperature 0 must be those of `rubato predict`, by
OpenAI's completions and Triton's generate, whole and streamed, alone and beside others; with the package
transformers also those of its GPT-2 with the same weights.
"""
import atexit
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

JOB = """name: text
model: {zoo: gpt, layers: 2, heads: 2, width: 32, context: 64, bias: true}
data: {format: tokens, train: corpus/train.u8}
train: {batch: 8, steps: 40, threads: 1, optimizer: {adamw: {lr: 0.01}}}
"""


class Server:
    def __init__(self, rubato, *more):
        self.process = subprocess.Popen([rubato, "serve", "run", "-l", "0", "--json", *more],
                                        stdout=subprocess.PIPE, text=True)
        atexit.register(self.process.kill)  # of a run that fails
        ready = json.loads(self.process.stdout.readline())
        self.host, self.model = ready["address"], ready["model"]

    def open(self, path, body):
        c = http.client.HTTPConnection(self.host, timeout=300)
        c.request("POST", path, json.dumps(body))
        return c, c.getresponse()

    def ask(self, path, body):
        _, r = self.open(path, body)
        return r.status, json.loads(r.read())

    def events(self, path, body):
        _, r = self.open(path, body)
        assert r.status == 200 and r.headers["Content-Type"] == "text/event-stream", r.read()
        parts = r.read().decode().split("\n\n")
        assert parts.pop() == "" and all(p.startswith("data: ") for p in parts), parts
        return [p[6:] for p in parts]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(300) == 0


def predict(rubato, prompt, tokens, *more):
    out = subprocess.run([rubato, "predict", "run", "--prompt", prompt, "--tokens", str(tokens),
                          "--temperature", "0", *more], check=True, capture_output=True).stdout
    return out[len(prompt.encode()):-1].decode(errors="replace")


def complete(server, prompt, tokens, **more):
    return server.ask("/v1/completions", {"model": server.model, "prompt": prompt, "max_tokens": tokens,
                                          "temperature": 0, **more})


def answer_usage(prompt, n):
    return {"prompt_tokens": len(prompt), "completion_tokens": n, "total_tokens": len(prompt) + n}


def check_forms(server, prompt, want):
    n = len(want)
    status, answer = complete(server, prompt, n)
    assert status == 200 and answer["choices"][0]["text"] == want, (answer, want)
    assert answer["choices"][0]["finish_reason"] == "length" and answer["usage"]["completion_tokens"] == n
    assert answer["usage"]["prompt_tokens"] == len(prompt)
    assert complete(server, [ord(c) for c in prompt], n)[1]["choices"][0]["text"] == want
    events = server.events("/v1/completions", {"model": server.model, "prompt": prompt, "max_tokens": n,
                                               "temperature": 0, "stream": True,
                                               "stream_options": {"include_usage": True}})
    assert events.pop() == "[DONE]"
    events = [json.loads(e) for e in events]
    assert events[-1]["choices"] == [] and events.pop()["usage"] == answer_usage(prompt, n), events
    assert events[-1]["choices"][0]["finish_reason"] == "length" and "usage" not in events[-1]
    assert "".join(e["choices"][0]["text"] for e in events) == want, events
    path = f"/v2/models/{server.model}/generate"
    body = {"text_input": prompt, "parameters": {"max_tokens": n, "temperature": 0}}
    status, answer = server.ask(path, body)
    assert status == 200 and answer["text_output"] == want, answer
    events = [json.loads(e) for e in server.events(path + "_stream", body)]
    assert "".join(e["text_output"] for e in events) == want, events


DRAWN = {"temperature": 1.0, "seed": 4, "top_k": 20}  # a text of many letters; the likeliest one may be of blanks


def check_stop(server, prompt):
    text = complete(server, prompt, 40, **DRAWN)[1]["choices"][0]["text"]
    stop = text[10:13]
    want = text[:text.find(stop)]
    assert want, text
    status, answer = complete(server, prompt, 40, stop=stop, **DRAWN)
    choice = answer["choices"][0]
    assert choice["text"] == want and choice["finish_reason"] == "stop", (answer, want)
    for _ in range(20):  # when tokens are looked at depends on the time
        events = server.events("/v1/completions", {"model": server.model, "prompt": prompt, "max_tokens": 40,
                                                   "stream": True, "stop": ["##", stop], **DRAWN})
        text = "".join(json.loads(e)["choices"][0]["text"] for e in events[:-1])
        assert text == want, (text, want)


def check_draws(server):
    one = [complete(server, "the ", 20, temperature=1.2, seed=s, top_k=20, top_p=0.9)[1]["choices"][0]["text"]
           for s in (7, 7, 8, 9)]
    assert one[0] == one[1] and len(set(one)) > 1, one


def numpy_logprobs(ids):
    """Log probabilities of every next token by GPT-2's formulas, in double precision: [tokens, 256]."""
    import numpy as np
    with open("weights.safetensors", "rb") as f:
        head = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        data = f.read()
    w = {k: np.frombuffer(data[slice(*v["data_offsets"])], np.float32).reshape(v["shape"]).astype(float)
         for k, v in head.items() if k != "__metadata__"}

    def norm(x, name):
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w[name + ".weight"] + w[name + ".bias"]

    def linear(x, name):
        return x @ w[name + ".weight"].T + w[name + ".bias"]

    x = w["transformer.wte.weight"][ids] + w["transformer.wpe.weight"][: len(ids)]
    for layer in range(2):
        at = f"transformer.h.{layer}."
        q, k, v = np.split(linear(norm(x, at + "ln_1"), at + "attn.c_attn"), 3, -1)
        heads = []
        for h in range(2):
            part = slice(16 * h, 16 * h + 16)
            s = q[:, part] @ k[:, part].T / 4
            s = np.where(np.tril(np.ones_like(s)) > 0, s, -np.inf)
            e = np.exp(s - s.max(-1, keepdims=True))
            heads.append(e / e.sum(-1, keepdims=True) @ v[:, part])
        x = x + linear(np.concatenate(heads, -1), at + "attn.c_proj")
        y = linear(norm(x, at + "ln_2"), at + "mlp.c_fc")
        y = 0.5 * y * (1 + np.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y**3)))
        x = x + linear(y, at + "mlp.c_proj")
    x = norm(x, "transformer.ln_f")
    x = x @ w["lm_head.weight" if "lm_head.weight" in w else "transformer.wte.weight"].T
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def check_scores(choice, ids, first, k):
    """Those of `choice` beside numpy's: of the tokens ids[first:]."""
    got, want = choice["logprobs"], numpy_logprobs(ids)
    n = len(ids) - first
    assert [len(got[x]) for x in ("tokens", "token_logprobs", "top_logprobs", "text_offset")] == [n] * 4, got
    assert got["tokens"] == [chr(t) for t in ids[first:]] and got["text_offset"] == list(range(n)), got
    for i, at in enumerate(range(first, len(ids))):
        if at == 0:
            assert got["token_logprobs"][0] is None and got["top_logprobs"][0] is None, got
            continue
        row = want[at - 1]
        assert abs(got["token_logprobs"][i] - row[ids[at]]) < 1e-4, (at, got["token_logprobs"][i], row[ids[at]])
        top = got["top_logprobs"][i]
        assert k <= len(top) <= k + 1 and top[chr(ids[at])] == got["token_logprobs"][i], top
        likely = sorted(row)[::-1][:k]
        assert all(abs(a - b) < 1e-4 for a, b in zip(sorted(top.values())[::-1], likely)), (top, likely)
        for token, score in top.items():
            code = int(token[8:], 16) if token.startswith("bytes:") else ord(token)
            assert abs(score - row[code]) < 1e-4, (token, score)


def check_logprobs(rubato, server, want):
    try:
        import numpy  # noqa: F401
    except ImportError:
        return
    subprocess.run([rubato, "export", "run", "--safetensors", "weights.safetensors"], check=True, capture_output=True)
    prompt, text = "the dog ", "the dog " + want
    n = complete(server, prompt, 20)[1]["choices"][0]["text"]
    ids = list((prompt + n).encode())
    for k in (0, 3):
        check_scores(complete(server, prompt, 20, logprobs=k)[1]["choices"][0], ids, len(prompt), k)
    choice = complete(server, prompt, 20, logprobs=2, echo=True)[1]["choices"][0]
    assert choice["text"] == prompt + n
    check_scores(choice, ids, 0, 2)
    status, answer = complete(server, text, 0, logprobs=1, echo=True)  # a prompt alone is scored
    assert answer["choices"][0]["text"] == text and answer["usage"] == answer_usage(text, 0), answer
    check_scores(answer["choices"][0], list(text.encode()), 0, 1)
    assert complete(server, prompt, 5, echo=True)[1]["choices"][0] == {
        "index": 0, "text": prompt + n[:5], "logprobs": None, "finish_reason": "length"}


def check_alike(got, want):
    """The same log probabilities, which other rows of a step may change in their last digits."""
    assert [got[x] for x in ("tokens", "text_offset")] == [want[x] for x in ("tokens", "text_offset")], (got, want)
    assert got["token_logprobs"][0] is None and got["top_logprobs"][0] is None, got
    assert all(abs(a - b) < 1e-4 for a, b in zip(got["token_logprobs"][1:], want["token_logprobs"][1:])), (got, want)
    for a, b in zip(got["top_logprobs"][1:], want["top_logprobs"][1:]):
        likely = zip(sorted(a.values())[:-3:-1], sorted(b.values())[:-3:-1])  # 2 of them
        assert all(abs(x - y) < 1e-4 for x, y in likely) and all(abs(a[t] - b[t]) < 1e-4 for t in a if t in b), (a, b)


def check_many(server):
    """n texts of one request: each is the text of its own seed; streamed the same, with their scores."""
    stop = complete(server, "the ", 24, **DRAWN)[1]["choices"][0]["text"][10:12]  # what comes behind it is not told
    c = complete(server, "the ", 24, logprobs=1, stop=[stop], **DRAWN)[1]["choices"][0]
    assert c["text"] and c["finish_reason"] == "stop" and c["logprobs"]["tokens"] == list(c["text"]) and stop not in c["text"], c
    body = {"temperature": 1.0, "seed": 40, "n": 5, "logprobs": 2, "echo": True, "stop": ["e d"]}
    status, answer = complete(server, "the ", 24, **body)
    choices = answer["choices"]
    assert status == 200 and [c["index"] for c in choices] == list(range(5)), answer
    alone = [complete(server, "the ", 24, **{**body, "n": 1, "seed": 40 + k})[1] for k in range(5)]
    assert [c["text"] for c in choices] == [a["choices"][0]["text"] for a in alone], (choices, alone)
    for c, a in zip(choices, alone):
        check_alike(c["logprobs"], a["choices"][0]["logprobs"])
    assert len({c["text"] for c in choices}) > 1
    assert answer["usage"]["completion_tokens"] == sum(a["usage"]["completion_tokens"] for a in alone)
    assert answer["usage"]["prompt_tokens"] == 4
    events = server.events("/v1/completions", {"model": server.model, "prompt": "the ", "max_tokens": 24,
                                               "stream": True, "stream_options": {"include_usage": True}, **body})
    assert events.pop() == "[DONE]"
    events = [json.loads(e) for e in events]
    assert events.pop()["usage"] == answer["usage"]
    for c in choices:
        mine = [e["choices"][0] for e in events if e["choices"][0]["index"] == c["index"]]
        assert [m["finish_reason"] for m in mine] == [None] * (len(mine) - 1) + [c["finish_reason"]], mine
        assert "".join(m["text"] for m in mine) == c["text"], (mine, c)
        for part in ("tokens", "text_offset"):
            assert sum((m["logprobs"][part] for m in mine), []) == c["logprobs"][part], (part, mine, c)
        scores = sum((m["logprobs"]["token_logprobs"] for m in mine), [])
        assert all(a == b or abs(a - b) < 1e-4 for a, b in zip(scores, c["logprobs"]["token_logprobs"])), (mine, c)


def check_prompts(server):
    """Several prompts of one request: texts and scores of each are those that it has alone; streamed too."""
    prompts = ["dog sees a ", "the ", "a"]  # none begins another one; the longest is in first
    body = {"temperature": 1.0, "seed": 9, "n": 2, "logprobs": 1, "echo": True, "stop": ["e"]}
    alone = [complete(server, p, 16, **body)[1] for p in prompts]
    wants = [c for a in alone for c in a["choices"]]
    assert any(c["finish_reason"] == "stop" for c in wants), wants
    usage = {key: sum(a["usage"][key] for a in alone) for key in alone[0]["usage"]}
    for form in (prompts, [list(p.encode()) for p in prompts]):
        status, answer = complete(server, form, 16, **body)
        assert status == 200 and answer["usage"] == usage, (answer, usage)
        assert [c["index"] for c in answer["choices"]] == list(range(6)), answer
        for c, want in zip(answer["choices"], wants):
            assert c["text"] == want["text"] and c["finish_reason"] == want["finish_reason"], (c, want)
            check_alike(c["logprobs"], want["logprobs"])
    events = server.events("/v1/completions", {"model": server.model, "prompt": prompts, "max_tokens": 16,
                                               "stream": True, "stream_options": {"include_usage": True}, **body})
    assert events.pop() == "[DONE]"
    events = [json.loads(e) for e in events]
    assert events.pop()["usage"] == usage
    for k, want in enumerate(wants):
        mine = [e["choices"][0] for e in events if e["choices"][0]["index"] == k]
        assert "".join(m["text"] for m in mine) == want["text"], (mine, want)
        assert [m["finish_reason"] for m in mine] == [None] * (len(mine) - 1) + [want["finish_reason"]], (mine, want)
        assert sum((m["logprobs"]["tokens"] for m in mine), []) == want["logprobs"]["tokens"], (mine, want)


def check_best(server):
    """Of best_of texts those with the highest mean log probability by numpy, the best first."""
    try:
        import numpy as np
    except ImportError:
        return
    prompts, body = ["the ", "a cat "], {"temperature": 1.5, "seed": 3}

    def mean(prompt, text):
        ids = list((prompt + text).encode())
        return np.mean([numpy_logprobs(ids)[at - 1][ids[at]] for at in range(len(prompt), len(ids))])

    all_, best = [complete(server, prompts, 12, n=n, best_of=7, top_k=8, **body)[1] for n in (7, 3)]
    assert [c["index"] for c in best["choices"]] == list(range(6)) and best["usage"] == all_["usage"], best
    assert best["usage"] == {"prompt_tokens": 10, "completion_tokens": 168, "total_tokens": 178}, best
    assert all(c["logprobs"] is None for c in best["choices"]), best
    for p, prompt in enumerate(prompts):
        texts = [c["text"] for c in all_["choices"][7 * p:7 * p + 7]]
        told = [c["text"] for c in best["choices"][3 * p:3 * p + 3]]
        assert set(told) <= set(texts) and len(set(told)) == 3, (told, texts)
        ranked = sorted((mean(prompt, t) for t in texts), reverse=True)
        assert ranked[0] - ranked[-1] > 0.1, ranked
        assert all(abs(mean(prompt, t) - m) < 1e-4 for t, m in zip(told, ranked)), (told, ranked)


def check_refusals(server):
    many = {"n": 65, "prompt": ["a", "b"]}
    for more, word in (({"n": 0}, "n 0"), ({"n": 129}, "n 129"), ({"best_of": 1, "n": 2}, "best_of 1 is below"),
                       ({"best_of": 2, "stream": True}, "streamed"), (many, "2 prompts with 65"),
                       ({"logprobs": 21}, "logprobs 21"), ({"colour": 1}, "colour"),
                       ({"temperature": -1}, "temperature"), ({"top_p": 1.5}, "top_p"), ({"max_tokens": 0}, "max_tokens"),
                       ({"prompt": ["a", [1]]}, "prompt"), ({"prompt": ["a", "x" * 65]}, "prompt 2"),
                       ({"prompt": "x" * 65}, "at most 64")):
        body = {"model": server.model, "prompt": "the ", **more}
        status, answer = server.ask("/v1/completions", body)
        assert status == 400 and word in answer["error"]["message"], (more, answer)
    assert server.ask("/v1/completions", {"model": "other", "prompt": "a"})[0] == 404
    assert server.ask("/v1/completions", {"prompt": "a"})[0] == 200  # the only model
    answer = urllib.request.Request(f"http://{server.host}/v2/rubato/explain/p99")
    try:
        urllib.request.urlopen(answer, timeout=300)
        raise AssertionError("no request has been answered yet")
    except urllib.error.HTTPError as e:
        assert e.code == 404 and b"no infer request has been answered" in e.read()


def check_openai(server, want):
    """OpenAI's own client, where it is installed: texts, streams, and what it says of refusals."""
    with urllib.request.urlopen(f"http://{server.host}/v1/models/{server.model}", timeout=300) as r:
        assert json.loads(r.read())["id"] == server.model
    try:
        import openai
    except ImportError:
        return
    client = openai.OpenAI(base_url=f"http://{server.host}/v1", api_key="none", max_retries=0)
    ask = {"model": server.model, "prompt": "the ", "max_tokens": len(want), "temperature": 0}
    assert client.models.retrieve(server.model).id == server.model
    assert client.completions.create(**ask).choices[0].text == want
    assert "".join(e.choices[0].text for e in client.completions.create(**ask, stream=True)) == want
    for more, kind, word in (({"suffix": "x"}, openai.BadRequestError, "suffix"),
                             ({"model": "other"}, openai.NotFoundError, "/v1/models")):
        try:
            client.completions.create(**{**ask, **more})
            raise AssertionError(more)
        except kind as e:
            assert word in str(e), e


def check_beside(server, rubato):
    """Texts of many clients at one time are those of each alone."""
    prompts = [f"the {'dog cat' * k} "[:50] for k in range(12)]
    wants = [predict(rubato, p, 12) for p in prompts]
    got = [None] * len(prompts)

    def one(k):
        got[k] = complete(server, prompts[k], 12)[1]["choices"][0]["text"]

    threads = [threading.Thread(target=one, args=(k,)) for k in range(len(prompts))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert got == wants, (got, wants)


def check_leaving(server):
    """Clients that left give their places back: later ones are answered."""
    for k in range(20):
        prompt = ["a", "the "] * 32 if k % 4 == 0 else "a"
        c, r = server.open("/v1/completions", {"model": server.model, "prompt": prompt, "max_tokens": 60,
                                               "stream": True})
        assert r.read(6) == b"data: "
        c.close()
    assert complete(server, "the ", 5)[0] == 200


def check_half(server, want):
    """A client that ends its sending still gets its text, whole or streamed."""
    for stream in (False, True):
        body = json.dumps({"prompt": "the ", "temperature": 0, "max_tokens": len(want), "stream": stream})
        host, port = server.host.rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=300) as s:
            s.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            s.shutdown(socket.SHUT_WR)
            got = b""
            while more := s.recv(65536):
                got += more
        assert b"HTTP/1.1 200" in got and (got.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n") if stream
                                           else json.dumps(want)[1:-1].encode() in got), got


def check_waits(rubato, want, options, asked):
    """Texts that wait for a place for too long are not written; the others are."""
    server, got = Server(rubato, "--streams", "1", *options), []

    def one(k):
        if k % 2:
            got.append(complete(server, "the ", len(want), **asked))
            return
        openai = k % 4 == 0
        where = "/v1/completions" if openai else f"/v2/models/{server.model}/generate_stream"
        asks = {"prompt": "the ", "stream": True} if openai else {"text_input": "the "}
        events = server.events(where, {**asks, "max_tokens": len(want), "temperature": 0, **asked})
        events = [json.loads(e) for e in events if e != "[DONE]"]
        texts = [e["choices"][0]["text"] if "choices" in e else e.get("text_output", "") for e in events]
        got.append(("".join(texts), events[-1]))

    def kinds():
        cut = [answer["error"] for text, answer in got if text == ""]
        return ([answer for status, answer in got if status == 200], [answer for status, answer in got if status == 504],
                [answer for text, answer in got if text == want], [why for why in cut if isinstance(why, str)],
                [why for why in cut if isinstance(why, dict)])

    for turn in range(400):  # who comes first gets the place; on a busy machine few meet
        if turn >= 20 and all(kinds()):
            break
        threads = [threading.Thread(target=one, args=(k + turn,)) for k in range(16)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    whole, late, streamed, cut, of_openai = kinds()
    assert sum(map(len, kinds())) == len(got), got
    assert all(kinds()), [len(x) for x in kinds()]
    assert all(a["choices"][0]["text"] == want for a in whole)
    assert all("wait is over" in a["error"]["message"] for a in late), late
    assert all("wait is over" in why for why in cut), cut
    for why in of_openai:
        assert "wait is over" in why.pop("message") and why == {"type": "server_error", "param": None, "code": None}, why
    with urllib.request.urlopen(f"http://{server.host}/metrics", timeout=300) as r:
        assert f'reason="late"}} {len(late) + len(cut) + len(of_openai)}\n' in r.read().decode()
    server.stop()


def check_infer(server, prompt, want):
    """Whole windows are computed too, from the first request for one on."""
    with urllib.request.urlopen(f"http://{server.host}/v2/models/{server.model}", timeout=300) as r:
        x = json.load(r)["inputs"][0]
    context = x["shape"][1]
    ids = [ord(c) for c in prompt] + [0] * (context - len(prompt))
    for rows in (1, 3, 3):
        status, answer = server.ask(f"/v2/models/{server.model}/infer", {"inputs": [
            {"name": x["name"], "shape": [rows, context], "datatype": x["datatype"], "data": ids * rows}]})
        assert status == 200, answer
        out = answer["outputs"][0]
        vocab = out["shape"][-1]
        for row in range(rows):
            at = (row * context + len(prompt) - 1) * vocab
            logits = out["data"][at:at + vocab]
            assert chr(max(range(vocab), key=logits.__getitem__)) == want[0], (row, want)


def check_bf16(rubato, prompt):
    """In bf16, caches too: each token is the most likely one of whole windows, as far as bf16 tells them apart."""
    server = Server(rubato, "--precision", "bf16")
    with urllib.request.urlopen(f"http://{server.host}/v2/models/{server.model}", timeout=300) as r:
        x = json.load(r)["inputs"][0]
    context = x["shape"][1]
    text = prompt + complete(server, prompt, 30)[1]["choices"][0]["text"]
    ids = [ord(c) for c in text] + [0] * (context - len(text))
    status, answer = server.ask(f"/v2/models/{server.model}/infer", {"inputs": [
        {"name": x["name"], "shape": [1, context], "datatype": x["datatype"], "data": ids}]})
    assert status == 200, answer
    out = answer["outputs"][0]
    vocab = out["shape"][-1]
    for at in range(len(prompt), len(text)):
        logits = out["data"][(at - 1) * vocab:at * vocab]
        assert logits[ids[at]] > max(logits) - 0.1, (at, text, logits[ids[at]], max(logits))
    server.stop()


def check_counts(server):
    """Texts are requests of their model."""
    with urllib.request.urlopen(f"http://{server.host}/v2/models/{server.model}/stats", timeout=300) as r:
        before = json.load(r)["model_stats"][0]["inference_stats"]
    assert complete(server, "the ", 5)[0] == 200 and complete(server, "x" * 65, 5)[0] == 400
    with urllib.request.urlopen(f"http://{server.host}/v2/models/{server.model}/stats", timeout=300) as r:
        after = json.load(r)["model_stats"][0]["inference_stats"]
    assert after["success"]["count"] > before["success"]["count"], (before, after)
    assert after["fail"]["count"] > before["fail"]["count"], (before, after)


def check_ending(rubato, want):
    """A server that is to end writes the texts that were begun, to their last byte."""
    body = {"prompt": "the ", "temperature": 0, "max_tokens": len(want), "stream": True}
    for _ in range(4):
        server = Server(rubato, "--streams", "3")
        begun = [server.open("/v1/completions", {"model": server.model, **body}) for _ in range(8)]
        server.process.send_signal(signal.SIGTERM)
        for _, r in begun:
            text = r.read().decode()
            assert r.status == 200 and text.endswith("data: [DONE]\n\n"), text
            parts = [json.loads(p[6:])["choices"][0]["text"] for p in text.split("\n\n")[:-2]]
            assert "".join(parts) == want, (parts, want)
        assert server.process.wait(300) == 0


def check_peer(rubato, prompt, want):
    try:
        import torch
        import transformers
        from safetensors.torch import load_file
    except ImportError:
        return
    subprocess.run([rubato, "export", "run", "--safetensors", "weights.safetensors"], check=True, capture_output=True)
    config = transformers.GPT2Config(vocab_size=256, n_positions=64, n_embd=32, n_layer=2, n_head=2,
                                     activation_function="gelu_new", tie_word_embeddings=True,
                                     bos_token_id=None, eos_token_id=None)
    model = transformers.GPT2LMHeadModel(config).eval()
    state = {k: v.T.contiguous() if k.split(".")[-2] in ("c_attn", "c_proj", "c_fc") and v.dim() == 2 else v
             for k, v in load_file("weights.safetensors").items()}
    missing = model.load_state_dict(state, strict=False)
    assert not missing.unexpected_keys and missing.missing_keys in ([], ["lm_head.weight"]), missing  # tied
    ids = torch.tensor([list(prompt.encode())])
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=len(want), do_sample=False,
                         pad_token_id=0)
    assert bytes(out[0, ids.shape[1]:].tolist()).decode(errors="replace") == want


def check_memory(rubato):
    """Texts have at most 512 MiB: what is too much alone is refused for ever, what others hold until they leave."""
    os.mkdir("long")
    os.chdir("long")
    with open("text.yaml", "w") as f:
        f.write(JOB.replace("context: 64", "context: 4096").replace("batch: 8, steps: 40", "batch: 1, steps: 1")
                .replace("corpus/", "../corpus/"))
    subprocess.run([rubato, "train", "text.yaml", "--out", "run"], check=True, capture_output=True)
    server = Server(rubato)
    status, answer = complete(server, "the ", 4090, n=128, logprobs=20)
    said = answer["error"]["message"]
    assert status == 400 and "may have 536870912 bytes" in said and "'max_tokens'" in said, answer
    half = {"model": server.model, "prompt": "the ", "max_tokens": 4090, "n": 64, "logprobs": 20, "stream": True}
    client, answer = server.open("/v1/completions", half)
    assert answer.status == 200
    status, answer = server.ask("/v1/completions", half)
    assert status == 503 and "of other requests" in answer["error"]["message"], answer
    for _ in range(600):
        client.close()
        client, answer = server.open("/v1/completions", half)
        if answer.status == 200:
            break
        time.sleep(0.05)
    assert answer.status == 200
    client.close()
    server.stop()
    os.chdir("..")


def main(rubato):
    rubato = os.path.abspath(rubato)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        with open("text.yaml", "w") as f:
            f.write(JOB)
        for command in (["data", "make", "grammar", "--out", "made", "--count", "40000", "--test", "2000"],
                        ["data", "make", "text", "made/train.txt", "--out", "corpus"],
                        ["train", "text.yaml", "--out", "run"]):
            subprocess.run([rubato, *command], check=True, capture_output=True)
        want = predict(rubato, "the ", 40)
        server = Server(rubato, "--streams", "3")
        check_forms(server, "the ", want)
        check_stop(server, "the ")
        check_half(server, want)
        check_draws(server)
        check_logprobs(rubato, server, want)
        check_many(server)
        check_prompts(server)
        check_best(server)
        check_refusals(server)
        check_openai(server, want)
        check_beside(server, rubato)
        check_leaving(server)
        check_counts(server)
        check_infer(server, "the ", want)
        server.stop()
        check_bf16(rubato, "the ")
        check_ending(rubato, want)
        check_waits(rubato, want, ("--wait-max", "1us"), {})
        check_waits(rubato, want, (), {"timeout": 1})
        check_memory(rubato)
        check_peer(rubato, "the ", want)


main(*sys.argv[1:])
