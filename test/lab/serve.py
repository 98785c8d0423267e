#!/usr/bin/env python3
"""A served model beside other programs: serve.py PATH_OF_RUBATO

Trains a small model, serves the run and its ONNX export, and compares the answers with `rubato
predict`, by JSON alone. With the packages tritonclient and numpy, that client's answers as well
(JSON and binary in both directions), and with onnxruntime that library's; 77 without tritonclient.
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

JOB = """name: served
model: {zoo: mlp, hidden: [16]}
data: {format: synthetic, generator: digits, count: 400, test_count: 50}
train: {batch: 40, steps: 30, autotune: false, threads: 1, optimizer: {sgd: {lr: 0.05}}}
"""


class Server:
    def __init__(self, rubato, path, *more):
        self.process = subprocess.Popen([rubato, "serve", path, "-l", "0", "--json", *more],
                                        stdout=subprocess.PIPE, text=True)
        ready = json.loads(self.process.stdout.readline())
        self.address, self.model = ready["address"], ready["model"]

    def ask(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(f"http://{self.address}{path}", data, 300) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(300) == 0


def check_json(server, rows, classes):
    _, about = server.ask(f"/v2/models/{server.model}")
    x, y = about["inputs"][0], about["outputs"][0]
    size = 1
    for d in x["shape"][1:]:
        size *= d
    flat = [v for row in rows for v in row]
    assert len(flat) == size * len(rows), about
    shape = [len(rows)] + x["shape"][1:]
    status, answer = server.ask(f"/v2/models/{server.model}/infer", {
        "inputs": [{"name": x["name"], "shape": shape, "datatype": "FP32", "data": flat}]})
    assert status == 200, answer
    out = answer["outputs"][0]
    n = out["shape"][1]
    got = [max(range(n), key=lambda c: out["data"][r * n + c]) for r in range(len(rows))]
    assert got == classes, (got, classes)
    status, answer = server.ask(f"/v2/models/{server.model}/infer", {"inputs": []})
    assert status == 400 and x["name"] in answer["error"], answer


def check_triton(server, rows, onnx):
    import numpy as np
    import tritonclient.http as triton
    client = triton.InferenceServerClient(server.address)
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready(server.model)
    about = client.get_model_metadata(server.model)
    config = client.get_model_config(server.model)
    assert config["max_batch_size"] == 32 and config["input"][0]["data_type"] == "TYPE_FP32"
    x, y = about["inputs"][0], about["outputs"][0]
    data = np.array(rows, dtype=np.float32).reshape([len(rows)] + x["shape"][1:])
    want = None
    try:
        import onnxruntime
        want = onnxruntime.InferenceSession(onnx).run(None, {x["name"]: data})[0]
    except ImportError:
        pass
    for binary_in in (True, False):
        for binary_out in (True, False, None):
            given = triton.InferInput(x["name"], list(data.shape), "FP32")
            given.set_data_from_numpy(data, binary_data=binary_in)
            asked = None if binary_out is None else [
                triton.InferRequestedOutput(y["name"], binary_data=binary_out)]
            answer = client.infer(server.model, [given], outputs=asked, request_id="7")
            assert answer.get_response()["id"] == "7"
            got = answer.as_numpy(y["name"])
            want = got if want is None else want
            assert got.dtype == np.float32 and np.allclose(got, want, rtol=1e-4, atol=1e-5)


def check_traces(rubato, server, log):
    """The access log and `rubato explain` tell of a request by its id, with its trace."""
    _, about = server.ask(f"/v2/models/{server.model}")
    x = about["inputs"][0]
    size = 1
    for d in x["shape"][1:]:
        size *= d
    trace, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    body = json.dumps({"id": "mine", "inputs": [{
        "name": x["name"], "shape": [1] + x["shape"][1:], "datatype": "FP32", "data": [0] * size}]})
    ask = urllib.request.Request(f"http://{server.address}/v2/models/{server.model}/infer",
                                 body.encode(), {"traceparent": f"00-{trace}-{span}-01"})
    with urllib.request.urlopen(ask, timeout=300) as answer:
        assert answer.headers["X-Request-Id"] == "mine"
        assert f"00-{trace}-" in answer.headers["Server-Timing"]
    for which in ("mine", "p100"):
        said = subprocess.run([rubato, "explain", server.address, which], check=True, timeout=300,
                              capture_output=True, text=True).stdout
        for word in ("parsed", "buffered", "queued", "computed", "left because an instance"):
            assert word in said, said
    world = json.loads(subprocess.run([rubato, "capture", "http://" + server.address], check=True,
                                      timeout=300, capture_output=True, text=True).stdout)
    assert world["facts"]["requests"][0]["model"] == server.model, world
    assert [p["policy"] for p in world["plans"]] == ["batch"], world["plans"]
    said = subprocess.run([rubato, "plan", server.address, "batch", "--method", "exact"], check=True,
                          timeout=60, capture_output=True, text=True).stdout
    assert "dispatch at" in said, said
    none = subprocess.run([rubato, "explain", server.address, "none"], timeout=300,
                          capture_output=True, text=True)
    assert none.returncode == 66 and "'none'" in none.stderr, none
    server.stop()
    with open(log) as lines:
        of = [json.loads(line) for line in lines]
    mine = [e for e in of if e["id"] == "mine"]
    assert len(mine) == 1 and mine[0]["trace"] == trace and mine[0]["parent"] == span, of
    assert mine[0]["why"] == "idle" and mine[0]["status"] == 200 and mine[0]["rows"] == 1, mine


def check_texts(rubato, work):
    """Tensors of texts in both forms, beside ONNX Runtime."""
    try:
        import numpy as np
        import onnx
        import onnxruntime
        import tritonclient.http as triton
    except ImportError:
        return
    h, text = onnx.helper, onnx.TensorProto.STRING
    ml = {"domain": "ai.onnx.ml"}
    graph = h.make_graph([
        h.make_node("LabelEncoder", ["x"], ["c"], keys_strings=["red", "green", "blue"],
                    values_int64s=[1, 2, 3], default_int64=9, **ml),
        h.make_node("LabelEncoder", ["c"], ["y"], keys_int64s=[1, 2, 3],
                    values_strings=["rot", "grün", "blau"], default_string="?", **ml),
        h.make_node("Identity", ["x"], ["z"])], "t",
        [h.make_tensor_value_info("x", text, ["N", 2])],
        [h.make_tensor_value_info(n, text, ["N", 2]) for n in "yz"])
    path = os.path.join(work, "t.onnx")
    onnx.save(h.make_model(graph, ir_version=8, opset_imports=[
        h.make_opsetid("", 17), h.make_opsetid("ai.onnx.ml", 3)]), path)
    x = np.array([["red", "blue"], ["nö", "green"], ["", 'a"b\n']], dtype=object)
    want = onnxruntime.InferenceSession(path).run(None, {"x": x})
    server = Server(rubato, path)
    client = triton.InferenceServerClient(server.address)
    for binary in (False, True):
        given = triton.InferInput("x", [3, 2], "BYTES")
        given.set_data_from_numpy(x, binary_data=binary)
        answer = client.infer("t", [given], outputs=[
            triton.InferRequestedOutput(n, binary_data=binary) for n in "yz"])
        for name, right in zip("yz", want):
            got = [[v.decode() if isinstance(v, bytes) else v for v in row]
                   for row in answer.as_numpy(name)]
            assert got == right.tolist(), (got, right)
    server.stop()


def check_types(rubato, work):
    """Rows of every type at one time, to their limits, fewer and more than a batch holds; zero rows are refused."""
    try:
        import numpy as np
        import onnx
        import tritonclient.http as triton
    except ImportError:
        return
    h, kinds = onnx.helper, {"FP16": np.float16, "FP32": np.float32, "FP64": np.float64, "BOOL": np.bool_}
    kinds.update({f"{u}INT{n}": np.dtype(f"{u.lower()}int{n}").type for u in ("", "U") for n in (8, 16, 32, 64)})
    types = {k: h.np_dtype_to_tensor_dtype(np.dtype(t)) for k, t in kinds.items()}
    graph = h.make_graph(
        [h.make_node("Identity", [k], ["of_" + k]) for k in kinds], "types",
        [h.make_tensor_value_info(k, t, ["N", 3]) for k, t in types.items()] +
        [h.make_tensor_value_info("unused", onnx.TensorProto.FLOAT, ["N"])],
        [h.make_tensor_value_info("of_" + k, t, ["N", 3]) for k, t in types.items()])
    path = os.path.join(work, "types.onnx")
    onnx.save(h.make_model(graph, ir_version=8, opset_imports=[h.make_opsetid("", 17)]), path)

    def values(t, rows):
        if t is np.bool_:
            return np.arange(3 * rows).reshape(rows, 3) % 2 == 0
        of = np.finfo(t) if np.issubdtype(t, np.floating) else np.iinfo(t)
        return np.resize(np.array([of.min, of.max, 3], dtype=t), (rows, 3))

    server = Server(rubato, path)
    client = triton.InferenceServerClient(server.address)
    for rows, binary in [(r, b) for r in (1, 3, 70) for b in (True, False)]:
        given, want = [], {}
        for name, t in kinds.items():
            want[name] = values(t, rows)
            given.append(triton.InferInput(name, [rows, 3], name))
            given[-1].set_data_from_numpy(want[name], binary_data=binary or name == "FP16")
        given.append(triton.InferInput("unused", [rows], "FP32"))
        given[-1].set_data_from_numpy(np.zeros(rows, np.float32), binary_data=binary)
        answer = client.infer("types", given[::-1], outputs=[
            triton.InferRequestedOutput("of_" + k, binary_data=binary or k == "FP16") for k in kinds])
        for name in kinds:
            got = answer.as_numpy("of_" + name)
            assert got.dtype == want[name].dtype and (got == want[name]).all(), (name, rows, binary, got)
    none = [{"name": k, "shape": [0, 3], "datatype": k, "data": []} for k in kinds]
    none.append({"name": "unused", "shape": [0], "datatype": "FP32", "data": []})
    status, answer = server.ask("/v2/models/types/infer", {"inputs": none})
    assert status == 400 and "0 rows" in answer["error"], answer
    server.stop()


def check_tls(rubato, work):
    """Other machines need a token and TLS; a request without the token is 401."""
    import ssl
    cert, key, token = (os.path.join(work, n) for n in ("cert.pem", "key.pem", "token"))
    try:
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                        "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj",
                        "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
                        "-keyout", key, "-out", cert], check=True, capture_output=True)
    except FileNotFoundError:
        return
    with open(token, "w") as f:
        f.write("0123456789abcdef")
    for path, mode in ((token, 0o600), (key, 0o600), (cert, 0o644)):
        os.chmod(path, mode)
    server = Server(rubato, os.path.join(work, "m.onnx"), "-l", "0.0.0.0:0", "--token-file", token,
                    "--cert", cert, "--key", key)
    trust = ssl.create_default_context(cafile=cert)
    url = f"https://127.0.0.1:{server.address.rsplit(':', 1)[1]}"
    for header, status in (({}, 401), ({"Authorization": "Bearer 0123456789abcdef"}, 200)):
        ask = urllib.request.Request(url + "/v2/models/m", None, header)
        try:
            got = urllib.request.urlopen(ask, timeout=300, context=trust).status
        except urllib.error.HTTPError as error:
            got = error.code
        assert got == status, (got, status)
    world = subprocess.run([rubato, "capture", url], check=True, capture_output=True, text=True,
                           timeout=300, env={**os.environ, "SSL_CERT_FILE": cert,
                                            "RUBATO_TOKEN": "0123456789abcdef"}).stdout
    assert json.loads(world)["schema"] == "rubato.world/1"
    server.stop()
    for more, word in ((["--key", key], "together"), (["--cert", key, "--key", cert], "chmod"),
                       (["--cert", token, "--key", key], "PEM")):
        refused = subprocess.run([rubato, "serve", os.path.join(work, "m.onnx"), "-l", "0", *more],
                                 capture_output=True, text=True, timeout=300)
        assert refused.returncode == 2 and word in refused.stderr, refused


def check_repository(rubato, work, rows, classes):
    """Loads, swaps under requests, refuses a damaged model, unloads."""
    import shutil
    import threading
    folder = os.path.join(work, "models")

    def put(model, version, text=None):
        place = os.path.join(folder, model, version)
        os.makedirs(place)
        shutil.copy(os.path.join(work, "m.onnx"), os.path.join(place, "model.onnx"))
        if text is not None:
            with open(os.path.join(place, "model.onnx"), "w") as f:
                f.write(text)

    put("m", "1")
    with open(os.path.join(folder, "m", "config.pbtxt"), "w") as f:
        f.write('name: "m"\nmax_batch_size: 8\ninstance_group { count: 2 }\n'
                'dynamic_batching { default_queue_policy { default_timeout_microseconds: 9000000 } }')
    server = Server(rubato, folder)
    server.model = "m"
    for _ in range(4000):
        if server.ask("/v2/models/m/ready")[0] == 200:
            break
        time.sleep(0.05)
    check_json(server, rows, classes)
    ended, wrong = [], []

    def ask_on():
        while not ended:
            try:
                check_json(server, rows, classes)
            except Exception as error:
                wrong.append(error)

    askers = [threading.Thread(target=ask_on) for _ in range(2)]
    for asker in askers:
        asker.start()
    put("m", "2")
    for _ in range(5):
        assert server.ask("/v2/repository/models/m/load", {}) == (200, {})
    ended.append(1)
    for asker in askers:
        asker.join()
    assert not wrong, wrong
    assert server.ask("/v2/models/m")[1]["versions"] == ["2"]
    put("broken", "1", "no model")
    for _ in range(2):
        status, answer = server.ask("/v2/repository/models/broken/load", {})
        assert status == 400 and "model.onnx" in answer["error"], answer
    assert server.ask("/v2/repository/models/none/load", {})[0] == 400
    index = [(m["name"], m["state"]) for m in server.ask("/v2/repository/index", {})[1]]
    assert sorted(index) == [("broken", "UNAVAILABLE"), ("m", "READY")], index
    assert server.ask("/v2/repository/models/m/unload", {})[0] == 200
    assert server.ask("/v2/models/m")[0] == 404
    server.stop()


def main():
    rubato = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as work:
        def run(*args, **more):
            return subprocess.run([rubato, *args], cwd=work, check=True, capture_output=True,
                                  text=True, **more).stdout
        with open(os.path.join(work, "job.yaml"), "w") as f:
            f.write(JOB)
        run("train", "job.yaml", "--out", "run")
        run("export", "run", "--onnx", "m.onnx")
        log = os.path.join(work, "access")
        served = Server(rubato, os.path.join(work, "run"), "--access-log", log,
                        "--slo", "p99=1s")
        _, about = served.ask("/v2/models/run")
        size = 1
        for d in about["inputs"][0]["shape"][1:]:
            size *= d
        rows = [[((r * 7919 + k * 104729) % 1000) / 1000 for k in range(size)] for r in range(5)]
        lines = "".join(",".join(str(v) for v in row) + "\n" for row in rows)
        classes = [int(c) for c in run("predict", "run", input=lines).split()]
        check_json(served, rows, classes)
        check_traces(rubato, served, log)
        served = Server(rubato, os.path.join(work, "m.onnx"))
        check_json(served, rows, classes)
        check_repository(rubato, work, rows, classes)
        for listen in (":0", "127.a.invalid:0", "127.0.0.1.invalid:0", "localhost.invalid:0"):
            refused = subprocess.run([rubato, "serve", os.path.join(work, "m.onnx"), "-l", listen],
                                     capture_output=True, text=True, timeout=300)
            assert refused.returncode == 2 and "--token-file" in refused.stderr, refused
        Server(rubato, os.path.join(work, "m.onnx"), "-l", "127.0.0.1:0").stop()
        check_tls(rubato, work)
        for path, name in (("m.onnx", "a/b"), ("models", "a")):
            refused = subprocess.run([rubato, "serve", path, "-l", "0", "--name", name], cwd=work,
                                     capture_output=True, text=True, timeout=300)
            assert refused.returncode == 2 and "--name" in refused.stderr, refused
        try:
            import tritonclient.http
        except ImportError:
            served.stop()
            print("skipped: the package tritonclient is not here; JSON was checked",
                  file=sys.stderr)
            sys.exit(77)
        check_triton(served, rows, os.path.join(work, "m.onnx"))
        check_texts(rubato, work)
        check_types(rubato, work)
        served.stop()


main()
