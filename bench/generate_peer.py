#!/usr/bin/env python3
"""Tokens a second of another generator with a cache, for `rubato bench serve`: generate_peer.py KIND WEIGHTS
LAYERS HEADS WIDTH CONTEXT VOCAB THREADS. KIND: transformers (generate of Hugging Face), ctranslate2 or llama.cpp
(by llama-cpp-python; f32 weights and caches). Reads lines "TEXTS TOKENS" and answers each with the rate."""
import json
import os
import sys
import tempfile
import time

kind, weights, (layers, heads, width, context, vocab, threads) = sys.argv[1], sys.argv[2], map(int, sys.argv[3:])


def hugging_face():
    import torch
    import transformers
    from safetensors.torch import load_file
    torch.set_num_threads(threads)
    transformers.logging.set_verbosity_error()
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=vocab, n_positions=context, n_embd=width, n_layer=layers, n_head=heads,
        activation_function="gelu_new", bos_token_id=None, eos_token_id=None)).eval()
    turned = ("c_attn", "c_proj", "c_fc")  # linear layers stand [in, out] there
    model.load_state_dict({k: v.T.contiguous() if v.dim() == 2 and k.split(".")[-2] in turned else v
                           for k, v in load_file(weights).items()}, strict=False)
    model.tie_weights()
    return model


def with_transformers():
    import torch
    model = hugging_face()

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
        hugging_face().save_pretrained(given)
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


GGUF_NAMES = {"wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm", "ln_1": "attn_norm",
              "c_attn": "attn_qkv", "attn.c_proj": "attn_output", "ln_2": "ffn_norm", "c_fc": "ffn_up",
              "mlp.c_proj": "ffn_down"}


def gguf_file(path):
    """The weights in the format of llama.cpp, f32, without a tokenizer."""
    import gguf
    from safetensors.numpy import load_file
    out = gguf.GGUFWriter(path, "gpt2")
    out.add_block_count(layers)
    out.add_context_length(context)
    out.add_embedding_length(width)
    out.add_feed_forward_length(4 * width)
    out.add_head_count(heads)
    out.add_layer_norm_eps(1e-5)
    out.add_vocab_size(vocab)
    out.add_file_type(gguf.LlamaFileType.ALL_F32)
    out.add_tokenizer_model("none")
    for name, value in load_file(weights).items():
        parts = name.removeprefix("transformer.").split(".")
        block = f"blk.{parts[1]}." if parts[0] == "h" else ""
        own = ".".join(parts[2:-1]) if block else parts[0]
        short = own if own in GGUF_NAMES else own.split(".")[-1]
        out.add_tensor(f"{block}{GGUF_NAMES[short]}.{parts[-1]}", value)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def with_llama_cpp():
    import ctypes

    import llama_cpp as l
    import numpy
    quiet = l.llama_log_callback(lambda level, text, data: None)
    l.llama_log_set(quiet, ctypes.c_void_p(0))
    l.llama_backend_init()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.gguf")
        gguf_file(path)
        of = l.llama_model_default_params()
        of.use_mmap = False
        model = l.llama_model_load_from_file(path.encode(), of)
    texts_max = 8
    of = l.llama_context_default_params()
    of.n_ctx, of.n_batch, of.n_ubatch, of.n_seq_max = texts_max * context, 512, 512, texts_max
    of.n_threads = of.n_threads_batch = threads
    of.type_k = of.type_v = l.GGML_TYPE_F32
    of.kv_unified = False
    run = l.llama_init_from_model(model, of)
    batch = l.llama_batch_init(512, 0, 1)

    def decode(rows):  # [(token, position, text, wanted)]; gives the most likely tokens
        batch.n_tokens = len(rows)
        for k, (token, at, text, wanted) in enumerate(rows):
            batch.token[k], batch.pos[k], batch.n_seq_id[k], batch.logits[k] = token, at, 1, wanted
            batch.seq_id[k][0] = text
        if l.llama_decode(run, batch) != 0:
            sys.exit("llama_decode failed")
        return [int(numpy.ctypeslib.as_array(l.llama_get_logits_ith(run, k), (vocab,)).argmax())
                for k, row in enumerate(rows) if row[3]]

    def write(prompts, tokens):
        l.llama_memory_clear(l.llama_get_memory(run), False)
        last = decode([(token, at, text, at == len(p) - 1) for text, p in enumerate(prompts)
                       for at, token in enumerate(p)])
        at = len(prompts[0])
        for step in range(tokens - 1):
            last = decode([(token, at + step, text, True) for text, token in enumerate(last)])
        return tokens
    write.quiet = quiet  # as long as it may be called
    return write


write = {"transformers": with_transformers, "ctranslate2": with_ctranslate2, "llama.cpp": with_llama_cpp}[kind]()
print("ready", flush=True)
for line in sys.stdin:
    texts, tokens = map(int, line.split())
    prompts = [[(7 * k + 3 + t) % vocab for k in range(16)] for t in range(texts)]
    begin = time.perf_counter()
    written = write(prompts, tokens)
    print(texts * written / (time.perf_counter() - begin), flush=True)
