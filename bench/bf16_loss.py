"""Does bf16 learn what f32 learns? Mean loss of the last steps of two runs that differ in precision.

    python3 bench/bf16_loss.py [--rubato FILE] [--dir DIR] [--steps N] [--threads N] [MODEL...]

Every model of the benchmark trains `steps` steps (200) on data that `rubato data make` draws, once in
f32 and once in bf16, from the same seed and in the same order; the mean loss of the last twentieth
must agree within 2 %. Prints a table; the exit status is 1 when a model is outside.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys

TOLERANCE = 0.02
SGD = {"sgd": {"lr": 0.02, "momentum": 0.9}}
ADAMW = {"adamw": {"lr": 3e-4}}
# model: (options of the zoo, data, batch, loss, optimizer)
MODELS = {
    "mlp": ({}, "digits", 128, "cross_entropy", SGD),
    "lenet": ({}, "digits", 64, "cross_entropy", SGD),
    "resnet18": ({}, "digits", 64, "cross_entropy", SGD),
    "gpt": ({"layers": 4, "width": 256, "context": 128}, "text", 16, "next_token", ADAMW),
    "lstm": ({"layers": 2, "width": 256, "context": 64}, "text", 32, "next_token", ADAMW),
}


def rubato(args, *words):
    done = subprocess.run([args.rubato, *words], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"bf16_loss: rubato {' '.join(words)} failed with {done.returncode}")
    return done.stdout


def make_data(args):
    """The data: sections of the two kinds of data, made once."""
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    made = {}
    for name, more in (("digits", ["--count", "13000", "--test", "0"]),
                       ("text", [os.path.join(root, "docs"), os.path.join(root, "world")])):
        folder = os.path.join(args.dir, name)
        if not os.path.exists(os.path.join(folder, "truth.json")):
            rubato(args, "data", "make", name, *more, "--out", folder)
    digits = os.path.join(args.dir, "digits")
    made["digits"] = {"format": "idx", "train": [os.path.join(digits, f) for f in (
        "train-images", "train-labels")]}
    made["text"] = {"format": "tokens", "train": [os.path.join(args.dir, "text", "train.u8")]}
    return made


def last_losses(args, model, data, precision):
    options, kind, batch, loss, optimizer = MODELS[model]
    job = {"name": f"{model}-{precision}",
           "model": {"zoo": model, **options},
           "data": data[kind],
           "train": {"loss": loss, "optimizer": optimizer, "batch": batch, "steps": args.steps,
                     "seed": 1, "precision": precision}}
    path = os.path.join(args.dir, f"{model}-{precision}.json")
    with open(path, "w") as f:
        json.dump(job, f)
    shutil.rmtree(path[:-5], ignore_errors=True)
    out = rubato(args, "train", path, "--json", "--out", path[:-5], "--threads",
                 str(args.threads))
    steps = [json.loads(line) for line in out.splitlines()]
    losses = [s["loss"] for s in steps if s["schema"].startswith("rubato.train.step")]
    tail = losses[-max(1, args.steps // 10):]
    return losses[0], sum(tail) / len(tail)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rubato", default="build/tool/rubato")
    p.add_argument("--dir", default="out/bench/bf16-loss")
    p.add_argument("--steps", type=int, default=200)
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("models", nargs="*")
    args = p.parse_args()
    os.makedirs(args.dir, exist_ok=True)
    args.dir = os.path.abspath(args.dir)
    data = make_data(args)
    outside = 0
    print("| model | first loss | f32, last steps | bf16, last steps | difference |\n"
          "|---|---|---|---|---|")
    for model in args.models or MODELS:
        first, f32 = last_losses(args, model, data, "f32")
        _, bf16 = last_losses(args, model, data, "bf16")
        apart = abs(bf16 - f32) / f32
        outside += apart > TOLERANCE
        print(f"| {model} | {first:.4f} | {f32:.4f} | {bf16:.4f} | {100 * apart:.2f} % |",
              flush=True)
    sys.exit(1 if outside else 0)


if __name__ == "__main__":
    main()
