"""A peer of `rubato bench`: PyTorch, ONNX Runtime or OpenVINO behind a line protocol.

    peer.py --side torch|torch-compile|ort|openvino --task train|infer|zoo --model NAME --threads N
            --precision f32|bf16 [--batch N] [--onnx FILE]

It prints one line of JSON when ready ({"ready":true,"detail":...} or {"ready":false,"why":...}), then
answers lines on standard input: "run K" -> "SECONDS LOSS"; "rss" -> peak resident bytes; "quit".
Both sides of a benchmark speak this, so that they run in turns under one clock.
"""
import argparse
import json
import os
import sys
import time


def say(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def timed(step, k):
    t0 = time.perf_counter()
    for _ in range(k):
        out = step()
    seconds = time.perf_counter() - t0
    return seconds, float(out)


def fastest(makers, tries=3):
    """Set up each way, time it shortly, keep the fastest: the peer runs at its best."""
    best = None
    for label, make in makers:
        step = make()
        timed(step, 2)
        k = max(1, int(0.15 / max(1e-5, timed(step, 1)[0])))
        seconds = min(timed(step, k)[0] / k for _ in range(tries))
        if best is None or seconds < best[0]:
            best = (seconds, label, step)
    return best[1], best[2]


def torch_step(args, fused, channels_last):
    import torch

    import models
    model, batch, data, optimizer, conv = models.make(args.model)
    batch = args.batch or batch
    x, y = data(batch)
    if channels_last and conv:
        model, x = model.to(memory_format=torch.channels_last), x.contiguous(
            memory_format=torch.channels_last)
    bf16 = args.precision == "bf16"
    if args.task == "train":
        opt = optimizer(model.parameters(), fused)
        model.train()

        def forward(x, y):
            with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                return models.loss_of(model(x), y)

        run = torch.compile(forward) if args.side == "torch-compile" else forward

        def step():
            opt.zero_grad(set_to_none=True)
            loss = run(x, y)
            loss.backward()
            opt.step()
            return loss.detach()

        return step
    model.eval()
    run = torch.compile(model) if args.side == "torch-compile" else model

    def step():
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            return run(x).flatten()[0]

    return step


def setup_torch(args):
    import torch
    torch.set_num_threads(args.threads)
    conv = args.model in ("lenet", "resnet18")
    ways = []
    for channels_last in ((False, True) if conv else (False,)):
        for fused in ((True, False) if args.task == "train" and args.side == "torch" else (True,)):
            label = ("channels_last " if channels_last else "") + (
                ("fused" if fused else "foreach") if args.task == "train" else "")
            ways.append((label, lambda f=fused, c=channels_last: torch_step(args, f, c)))
    label, step = fastest(ways)
    return step, f"torch {torch.__version__} {label}".strip()


def setup_ort(args):
    import onnxruntime
    import numpy
    opt = onnxruntime.SessionOptions()
    opt.intra_op_num_threads = args.threads
    opt.inter_op_num_threads = 1
    opt.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(args.onnx, opt, providers=["CPUExecutionProvider"])
    meta = session.get_inputs()[0]
    shape = [args.batch if i == 0 else d for i, d in enumerate(meta.shape)]
    rng = numpy.random.default_rng(1)
    x = (rng.integers(0, 256, shape) if "int64" in meta.type
         else rng.standard_normal(shape).astype(numpy.float32))

    def step():
        return session.run(None, {meta.name: x})[0].reshape(-1)[0]

    return step, f"onnxruntime {onnxruntime.__version__}"


def zoo_inputs(path, signature):
    """Arrays of the .npz beside the model, else of the declared shapes; signature: name, dims, whole."""
    import numpy
    beside = path[:-len(".onnx")] + ".npz"
    if os.path.exists(beside):
        return dict(numpy.load(beside)), True
    rng, arrays = numpy.random.default_rng(1), {}
    for name, dims, dtype in signature:
        dims = [d if isinstance(d, int) and d > 0 else 1 for d in dims]
        n = int(numpy.prod(dims))
        x = rng.standard_normal(n) if numpy.issubdtype(dtype, numpy.floating) else numpy.arange(n) % 2
        arrays[name] = x.astype(dtype).reshape(dims)
    return arrays, False


class Kept:
    """A step; after the time, float() of it is the mean size of the elements of its first output."""

    TOLD = ("float32", "float64", "float16", "int64", "uint8", "bool")

    def __init__(self, step, read, known):
        self.step, self.read, self.known, self.y = step, read, known, None

    def __call__(self):
        self.y = self.step()
        return self

    def __float__(self):
        import numpy
        y = self.read(self.y) if self.known else None
        told = y is not None and y.dtype.name in Kept.TOLD and y.size > 0
        return float(numpy.abs(y.astype(numpy.float64)).mean()) if told else float("nan")


def zoo_ort(args):
    import numpy
    import onnxruntime
    opt = onnxruntime.SessionOptions()
    opt.intra_op_num_threads, opt.inter_op_num_threads = args.threads, 1
    opt.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    opt.log_severity_level = 3
    session = onnxruntime.InferenceSession(args.onnx, opt, providers=["CPUExecutionProvider"])
    kinds = {"tensor(float)": "float32", "tensor(double)": "float64", "tensor(int64)": "int64",
             "tensor(int32)": "int32", "tensor(bool)": "bool"}
    feed, known = zoo_inputs(args.onnx, [(i.name, i.shape, numpy.dtype(kinds.get(i.type, "float32")))
                                         for i in session.get_inputs()])
    feed = {i.name: feed[i.name] for i in session.get_inputs()}

    def plain():
        return Kept(lambda: session.run(None, feed), lambda y: numpy.asarray(y[0]), known)

    def bound():
        io = session.io_binding()
        for name, x in feed.items():
            io.bind_cpu_input(name, x)
        for o in session.get_outputs():
            io.bind_output(o.name)

        def step():
            session.run_with_iobinding(io)
            return io

        return Kept(step, lambda y: y.copy_outputs_to_cpu()[0], known)

    label, step = fastest([("run", plain), ("binding", bound)], tries=2)
    return step, f"onnxruntime {onnxruntime.__version__} {label}"


def zoo_openvino(args):
    import openvino
    core = openvino.Core()
    model = core.read_model(args.onnx)
    sign = [(p.get_any_name(), [d.get_length() if d.is_static else 1 for d in p.get_partial_shape()],
             p.get_element_type().to_dtype()) for p in model.inputs]
    feed, known = zoo_inputs(args.onnx, sign)
    model.reshape({name: list(feed[name].shape) for name, _, _ in sign})
    request = core.compile_model(model, "CPU", {
        "INFERENCE_NUM_THREADS": args.threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32"}).create_infer_request()
    for name, _, _ in sign:
        request.set_tensor(name, openvino.Tensor(feed[name], shared_memory=True))

    def step():
        request.infer()
        return feed  # keeps the arrays that the request reads

    return (Kept(step, lambda y: request.get_output_tensor(0).data, known),
            f"openvino {openvino.__version__.split('-')[0]}")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--side", required=True)
    p.add_argument("--task", required=True)
    p.add_argument("--model", required=True)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--precision", default="f32")
    p.add_argument("--batch", type=int, default=0)
    p.add_argument("--onnx", default="")
    args = p.parse_args()
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    try:
        if args.task == "zoo":
            step, detail = (zoo_ort if args.side == "ort" else zoo_openvino)(args)
        else:
            step, detail = (setup_ort if args.side == "ort" else setup_torch)(args)
    except ImportError as e:
        say(json.dumps({"ready": False, "why": str(e)}))
        return
    except Exception as e:
        if args.task != "zoo":
            raise
        say(json.dumps({"ready": False, "why": str(e).strip().splitlines()[0][:200]}))
        return
    say(json.dumps({"ready": True, "detail": detail}))
    for line in sys.stdin:
        word = line.split()
        if word[0] == "run":
            seconds, loss = timed(step, int(word[1]))
            say(f"{seconds:.9f} {loss:.9g}")
        elif word[0] == "rss":
            with open("/proc/self/status") as f:
                say(next(str(int(x.split()[1]) * 1024) for x in f if x.startswith("VmHWM")))
        else:
            break


if __name__ == "__main__":
    main()
