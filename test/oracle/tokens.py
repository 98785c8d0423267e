#!/usr/bin/env python3
"""Tokens of Hugging Face's tokenizers for texts of all kinds, with small tokenizers that it trains on docs/
(store/tokenizer_test.c reads all files):

    tokens.py gpt tokenizer.json tokens.def         GPT-2's kind
    tokens.py prepend|metaspace|split JSON DEF      Llama's kind, by a normalizer or by a pre_tokenizer
"""
import glob
import json
import random
import sys

import tokenizers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers


def train(path):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=["<|endoftext|>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    t.train(sorted(glob.glob("docs/*.md")), trainer)
    t.add_tokens(["<sep>"])
    t.save(path, pretty=False)
    return t


def train_spaced(path, way):
    blank = "\u2581"
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Metaspace(split=True)
    t.train(sorted(glob.glob("docs/*.md")), trainers.BpeTrainer(vocab_size=400, show_progress=False, limit_alphabet=90))
    trained = json.loads(t.to_str())["model"]
    names = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    names += sorted(trained["vocab"], key=trained["vocab"].get)
    merges = [tuple(m) for m in trained["merges"]]
    t = Tokenizer(models.BPE(vocab={w: k for k, w in enumerate(names)}, merges=merges, unk_token="<unk>",
                             fuse_unk=True, byte_fallback=True))
    if way == "prepend":
        t.normalizer = normalizers.Sequence([normalizers.Prepend(blank), normalizers.Replace(" ", blank)])
    else:
        t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first" if way == "metaspace" else "always",
                                                   split=way == "split")
    t.decoder = decoders.Sequence([decoders.Replace(blank, " "), decoders.ByteFallback(), decoders.Fuse(),
                                   decoders.Strip(" ", 1, 0)])
    t.add_special_tokens(["<unk>", "<s>", "</s>"])
    t.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    t.save(path, pretty=False)
    return t


def texts():
    yield from ["", " ", "\n", "  \n\n a", "it's we'll they'd 'twas 'S", "a  b   c    ", "12 345 6x7", "-- !! ?a",
                "<|endoftext|>", "a<|endoftext|>b <sep> <sep", "naïve Ünïcode ß", "日本語 テキスト", "١٢٣ ½ ²",
                "\u00a0x\u2003y\u3000", "😀 a\u0301 👩‍💻", "tab\tand\r\nlines\x0b\x0c", "the the the the", "aaaaaaaaaaaaaaaaa"]
    r = random.Random(1)
    pool = "aAzZ019 '\n\t.,-_<>|sep тЖ€äß中ﬁ²Ⅷ\u00a0\u2028\u200d😀"
    for _ in range(150):
        yield "".join(r.choice(pool) for _ in range(r.randint(1, 40)))


def main(way, json_path, def_path):
    t = train(json_path) if way == "gpt" else train_spaced(json_path, way)
    with open(def_path, "w") as out:
        out.write(f"/* Tokens of tokenizers {tokenizers.__version__} by tokenizer.json: test/oracle/tokens.py. */\n")
        for text in list(texts())[:None if way == "gpt" else 50] + ["</s>a", "b</s> c<s>", " x  </s>", "\u2581a \u2581"]:
            ids = t.encode(text, add_special_tokens=False).ids
            lit = "".join(f"\\{b:03o}" if b < 32 or b > 126 or b in (34, 92, 63) else chr(b) for b in text.encode())
            out.write(f'TOKENS("{lit}", {", ".join(map(str, ids + [-1]))})\n')


main(*sys.argv[1:])
