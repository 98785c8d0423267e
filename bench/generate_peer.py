#!/usr/bin/env python3
"""Tokens a second of Hugging Face's generate with a cache, for `rubato bench serve`: generate_peer.py WEIGHTS
LAYERS HEADS WIDTH CONTEXT VOCAB THREADS. Reads lines "TEXTS TOKENS" and answers each with the rate."""
import sys
import time

import torch
import transformers
from safetensors.torch import load_file

weights, (layers, heads, width, context, vocab, threads) = sys.argv[1], map(int, sys.argv[2:])
torch.set_num_threads(threads)
transformers.logging.set_verbosity_error()
model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
    vocab_size=vocab, n_positions=context, n_embd=width, n_layer=layers, n_head=heads,
    activation_function="gelu_new", bos_token_id=None, eos_token_id=None)).eval()
turned = ("c_attn", "c_proj", "c_fc")  # linear layers stand [in, out] there
model.load_state_dict({k: v.T.contiguous() if v.dim() == 2 and k.split(".")[-2] in turned else v
                       for k, v in load_file(weights).items()}, strict=False)
model.tie_weights()
print("ready", flush=True)
for line in sys.stdin:
    texts, tokens = map(int, line.split())
    ids = torch.tensor([[(7 * k + 3 + t) % vocab for k in range(16)] for t in range(texts)])
    begin = time.perf_counter()
    with torch.inference_mode():
        model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, do_sample=False, pad_token_id=0)
    print(texts * tokens / (time.perf_counter() - begin), flush=True)
