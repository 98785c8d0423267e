"""A peer of `rubato bench serve`, on ONNX Runtime: serve_peer.py KIND MODEL.onnx THREADS

Prints its address when it answers. KIND, and what a request for one row is:

    uvicorn   nothing between it and the runtime; POST / with the elements as float32 or int64; a
              worker for each core
    mlserver  MLServer; the Open Inference Protocol in JSON, for the model named as the file
    bentoml   BentoML; POST /infer with {"x": [[elements]]}
"""
import ctypes
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import numpy as np
import onnxruntime


class Model:
    def __init__(self, path, threads):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        given = self.session.get_inputs()[0]
        self.name, self.shape = given.name, [-1] + given.shape[1:]
        self.type = np.int64 if given.type == "tensor(int64)" else np.float32

    def __call__(self, x):
        return self.session.run(None, {self.name: x.astype(self.type, copy=False).reshape(self.shape)})[0]


def free_ports(n):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def run_uvicorn(path, threads):
    import uvicorn
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    for _ in range(1, len(os.sched_getaffinity(0))):  # one worker a core: more rows/s than one alone
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # ends when its parent does
            break
    model = Model(path, threads)

    async def app(scope, receive, send):
        if scope["type"] != "http":
            return
        parts = []
        while True:
            message = await receive()
            parts.append(message.get("body", b""))
            if not message.get("more_body"):
                break
        y = model(np.frombuffer(b"".join(parts), dtype=model.type)).tobytes()
        await send({"type": "http.response.start", "status": 200,
                    "headers": [(b"content-length", str(len(y)).encode())]})
        await send({"type": "http.response.body", "body": y})

    fast = [p for p in ("uvloop", "httptools") if importlib.util.find_spec(p)]  # taken where they are
    print("127.0.0.1:%d" % listener.getsockname()[1], "uvicorn", uvicorn.__version__, "onnxruntime",
          onnxruntime.__version__, "+".join(fast), file=said, flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off", access_log=False)).run(sockets=[listener])


def run_mlserver(path, threads):
    import asyncio

    from mlserver import MLServer, ModelSettings, Settings, __version__

    http, grpc, metrics = free_ports(3)
    name = os.path.splitext(os.path.basename(path))[0]
    os.environ["RUBATO_PEER"] = f"mlserver {threads} {path}"  # it imports this file by its name
    server = MLServer(Settings(host="127.0.0.1", http_port=http, grpc_port=grpc, metrics_port=metrics,
                               parallel_workers=0, debug=False, metrics_endpoint=None))
    tell(f"127.0.0.1:{http}", f"/v2/models/{name}/ready", "MLServer " + __version__)
    asyncio.run(server.start([ModelSettings(name=name, implementation="serve_peer.Runtime")]))


def run_bentoml(path, threads):
    import bentoml
    port, = free_ports(1)
    environment = dict(os.environ, RUBATO_PEER=f"bentoml {threads} {path}", BENTOML_DO_NOT_TRACK="true")
    child = subprocess.Popen([sys.executable, "-m", "bentoml", "serve", "serve_peer:Service", "--port", str(port),
                              "--host", "127.0.0.1", "--working-dir", os.path.dirname(os.path.abspath(__file__))],
                             env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                             preexec_fn=lambda: ctypes.CDLL(None).prctl(1, signal.SIGTERM))  # ends when we do
    tell(f"127.0.0.1:{port}", "/readyz", "BentoML " + bentoml.__version__)
    child.wait()


def tell(address, path, what):
    """A thread says that the server answers, once it does."""
    def wait():
        for _ in range(600):
            try:
                with urllib.request.urlopen(f"http://{address}{path}", timeout=5):
                    print(address, what, "onnxruntime", onnxruntime.__version__, file=said, flush=True)
                    return
            except OSError:
                time.sleep(0.1)
    threading.Thread(target=wait, daemon=True).start()


kind, threads, file = os.environ.get("RUBATO_PEER", "none 1 -").split(" ", 2)
if __name__ == "__main__":
    said = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what servers say is not the address
    run = {"uvicorn": run_uvicorn, "mlserver": run_mlserver, "bentoml": run_bentoml}[sys.argv[1]]
    run(sys.argv[2], int(sys.argv[3]))
elif kind == "bentoml":
    import bentoml

    @bentoml.service(workers=1)
    class Service:
        def __init__(self):
            self.model = Model(file, int(threads))

        @bentoml.api(batchable=True, max_batch_size=32)
        def infer(self, x: np.ndarray) -> np.ndarray:
            return self.model(x)
elif kind == "mlserver":
    from mlserver import MLModel
    from mlserver.codecs import NumpyCodec
    from mlserver.types import InferenceResponse

    class Runtime(MLModel):
        async def load(self):
            self.model = Model(file, int(threads))
            return True

        async def predict(self, payload):
            y = self.model(NumpyCodec.decode_input(payload.inputs[0]))
            return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("y", y)])
