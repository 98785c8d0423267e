"""Batches that adapt: adapt.py PATH_OF_RUBATO

The same network with a fixed batch and with one that adapts, whose leader is killed, and which is stopped and resumed on the way. Progress, which a job with the
rule adascale shows as its learning rate, must add up to the steps of the fixed batch, whatever the batches were; no sample may be lost;
and the loss must be that of the fixed batch.
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

BATCH, COUNT, LR = 16, 10000, 0.01


def lines(out):
    """All whole lines of the run's metrics."""
    try:
        with open(out + "/metrics.jsonl") as f:
            return [json.loads(line) for line in f if line.endswith("\n")]
    except FileNotFoundError:
        return []


def steps(out):
    """The steps among them."""
    return [x for x in lines(out) if x["schema"] == "rubato.train.step/1"]


def arena(out):
    """Bytes that a step needs beside parameters and data."""
    with open(out + "/world.json") as f:
        return json.load(f)["facts"]["steps"][0]["arena_bytes"]


def wait_epoch(run, epoch):
    """Until the job is in that epoch, or has ended."""
    for _ in range(15000):
        told = steps("adapts")
        if run.poll() is not None or (told and told[-1]["epoch"] >= epoch):
            return
        time.sleep(0.02)


def main():
    rubato, failed = os.path.realpath(sys.argv[1]), []
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        env = dict(os.environ, XDG_CACHE_HOME=work + "/cache")
        job = {"name": "adapt", "model": {"zoo": "mlp", "hidden": [64]},
               "data": {"format": "synthetic", "generator": "digits", "count": COUNT, "test_count": 2000, "seed": 3},
               "train": {"optimizer": {"sgd": {"lr": LR}}, "batch": BATCH, "epochs": 100000, "threads": 1, "autotune": False}}
        with open("job.yaml", "w") as f:
            json.dump(job, f)
        adapt = ["-w", "3", "--set", "train.adapt.batch_max=512", "--set", "train.adapt.local_max=100", "--out", "adapts"]
        train = [rubato, "train", "job.yaml"]
        run = subprocess.Popen(train + adapt, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_epoch(run, 2)
        with open(f"/proc/{run.pid}/task/{run.pid}/children") as f:  # the first worker leads
            os.kill(int(f.read().split()[0]), signal.SIGKILL)
        wait_epoch(run, 3)
        run.send_signal(signal.SIGINT)
        run.wait(timeout=300)
        first = steps("adapts")
        epochs = first[-1]["epoch"] + 3  # however far it has come
        more = ["--set", f"train.epochs={epochs}"]
        subprocess.run(train + ["--out", "fixed"] + more, env=env, check=True, capture_output=True, timeout=300)
        subprocess.run(train + adapt + ["--resume"] + more, env=env, check=True, capture_output=True, timeout=300)
        told, end = steps("adapts"), [x for x in lines("adapts") if x["schema"] == "rubato.train.summary/1"][-1]
        gains = [x["lr"] / LR for x in told]
        batches = [round(x["samples_per_s"] * x["step_s"]) for x in told]
        wanted = COUNT * epochs / BATCH
        loss = {out: [x["metric"]["loss"] for x in lines(out) if x["schema"] == "rubato.train.eval/1"] for out in ("fixed", "adapts")}
        if len(first) >= len(told) or [x["step"] for x in told] != list(range(1, len(told) + 1)):
            failed.append("the resumed run does not go on where it stopped")
        if not any(x.get("what") == "lost" for x in lines("adapts")):
            failed.append("nobody lost a leader")
        lost = next((k for k, x in enumerate(lines("adapts")) if x.get("what") == "lost"), 0)
        later = [x for x in lines("adapts")[lost:] if x["schema"] == "rubato.train.step/1"]
        later = later[next((k for k, x in enumerate(later) if x["samples_per_s"] * x["step_s"] > 1.5 * BATCH), 0):][:40]
        if not any(x.get("gradient_noise", 0) > 0 for x in later):
            failed.append("the next leader does not know the noise that its larger batch tells")
        if not wanted - 0.01 <= sum(gains) < wanted + max(gains):
            failed.append(f"progress is {sum(gains)} steps instead of {wanted}")
        if max(batches) <= BATCH or max(batches) > 512 or len(told) >= wanted:
            failed.append(f"batches from {min(batches)} to {max(batches)}, {len(told)} steps")
        if end["samples"] != sum(batches) or end["samples_lost"] + end["samples_repeated"] != 0:
            failed.append(f"samples: {end['samples']} of {sum(batches)}")
        if len(loss["adapts"]) != epochs or abs(loss["adapts"][-1] / loss["fixed"][-1] - 1) > 0.1:
            failed.append(f"losses {loss}")
        refused = subprocess.run(train + ["-w", "2", "--set", "train.adapt.batch_max=8"], env=env, capture_output=True, text=True)
        if refused.returncode != 78 or "the least batch" not in refused.stderr:
            failed.append("a largest batch below the least one: " + refused.stderr)
        refused = subprocess.run(train + ["-w", "2", "--deterministic", "--set", "train.adapt.batch_max=64"], env=env, capture_output=True, text=True)
        if refused.returncode != 2 or "measured times" not in refused.stderr:
            failed.append("batches by time beside --deterministic: " + refused.stderr)
        large = train + ["-w", "1", "--set", "train.epochs=0", "--set", "train.steps=3", "--set", "train.batch=2000", "--set", "train.adapt.batch_max=2000"]
        for local in (0, 100):
            subprocess.run(large + ["--set", f"train.adapt.local_max={local}", "--out", f"local-{local}"], env=env, check=True, capture_output=True, timeout=300)
        if not arena("local-100") < arena("local-0") / 2:
            failed.append(f"parts of 100 samples need {arena('local-100')} bytes, 2000 samples {arena('local-0')}")
        print(f"{len(told)} steps instead of {wanted:.0f}, batches up to {max(batches)}, loss {loss['adapts'][-1]:.4f} beside "
              f"{loss['fixed'][-1]:.4f}")
    for why in failed:
        print("FAIL:", why)
    sys.exit(1 if failed else 0)


main()
