"""A peer of `rubato bench serve`: uvicorn and ONNX Runtime, with nothing between them.

    serve_peer.py MODEL.onnx THREADS

Prints its address. A POST has the elements of one input row after row as float32; the answer has
those of the first output.
"""
import importlib.util
import socket
import sys

import numpy as np
import onnxruntime
import uvicorn

options = onnxruntime.SessionOptions()
options.intra_op_num_threads = int(sys.argv[2])
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
given = session.get_inputs()[0]
shape = [-1] + [d for d in given.shape[1:]]
name = given.name


async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            break
    x = np.frombuffer(b"".join(parts), dtype=np.float32).reshape(shape)
    y = session.run(None, {name: x})[0].tobytes()
    await send({"type": "http.response.start", "status": 200,
                "headers": [(b"content-length", str(len(y)).encode())]})
    await send({"type": "http.response.body", "body": y})


fast = [p for p in ("uvloop", "httptools") if importlib.util.find_spec(p)]  # taken where they are
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen(1024)
print("127.0.0.1:%d" % listener.getsockname()[1], "uvicorn", uvicorn.__version__, "onnxruntime",
      onnxruntime.__version__, "+".join(fast), flush=True)
config = uvicorn.Config(app, log_level="error", lifespan="off", access_log=False)
uvicorn.Server(config).run(sockets=[listener])
