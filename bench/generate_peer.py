#!/usr/bin/env python3
"""Tokens a second of another generator with a cache, for `rubato bench serve`: generate_peer.py KIND WEIGHTS
LAYERS HEADS WIDTH CONTEXT VOCAB THREADS. KIND: transformers (generate of Hugging Face) or ctranslate2. Reads lines
"TEXTS TOKENS" and answers each with the rate."""
import json
import os
import sys
import tempfile
import time

import torch
import transformers
from safetensors.torch import load_file

kind, weights, (layers, heads, width, context, vocab, threads) = sys.argv[1], sys.argv[2], map(int, sys.argv[3:])
torch.set_num_threads(threads)
transformers.logging.set_verbosity_error()
model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
    vocab_size=vocab, n_positions=context, n_embd=width, n_layer=layers, n_head=heads,
    activation_function="gelu_new", bos_token_id=None, eos_token_id=None)).eval()
turned = ("c_attn", "c_proj", "c_fc")  # linear layers stand [in, out] there
model.load_state_dict({k: v.T.contiguous() if v.dim() == 2 and k.split(".")[-2] in turned else v
                       for k, v in load_file(weights).items()}, strict=False)
model.tie_weights()


def with_transformers():
    def write(prompts, tokens):
        ids = torch.tensor(prompts)
        with torch.inference_mode():
            out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, do_sample=False,
                                 pad_token_id=0)
        return out.shape[1] - ids.shape[1]
    return write


def with_ctranslate2():
    import ctranslate2
    with tempfile.TemporaryDirectory() as folder:
        names = [f"t{k}" for k in range(vocab - 1)] + ["<|endoftext|>"]
        given, made = os.path.join(folder, "given"), os.path.join(folder, "made")
        model.save_pretrained(given)
        with open(os.path.join(given, "vocab.json"), "w") as f:
            json.dump({name: k for k, name in enumerate(names)}, f)
        with open(os.path.join(given, "merges.txt"), "w") as f:
            f.write("#version: 0.2\n")
        with open(os.path.join(given, "tokenizer_config.json"), "w") as f:
            json.dump({"tokenizer_class": "GPT2Tokenizer", "unk_token": "<|endoftext|>"}, f)
        ctranslate2.converters.TransformersConverter(given).convert(made)
        generator = ctranslate2.Generator(made, device="cpu", compute_type="float32", intra_threads=threads,
                                          inter_threads=1)

    def write(prompts, tokens):
        out = generator.generate_batch([[names[t] for t in p] for p in prompts], max_length=tokens, min_length=tokens,
                                       sampling_topk=1, include_prompt_in_result=False)
        return min(len(r.sequences_ids[0]) for r in out)
    return write


write = with_transformers() if kind == "transformers" else with_ctranslate2()
print("ready", flush=True)
for line in sys.stdin:
    texts, tokens = map(int, line.split())
    prompts = [[(7 * k + 3 + t) % vocab for k in range(16)] for t in range(texts)]
    begin = time.perf_counter()
    written = write(prompts, tokens)
    print(texts * written / (time.perf_counter() - begin), flush=True)
