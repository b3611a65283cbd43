#!/usr/bin/env python3
"""What Hugging Face's tokenizers library makes of hard strings.

  tokenizer_cases.py cases TOKENIZER.json OUT.jsonl [COUNT] [SEED]
      COUNT generated strings with their ids and the text decoded from them.
  tokenizer_cases.py fixtures OUT_DIR
      Trains the small tokenizers of tests/fixtures/tokenizers, on text made
      here, and writes them with their cases. The cases of the rank file and
      the SentencePiece model are written by tokenizer_parity.py fixture.

Each line: {"text", "ids" (special tokens matched), "plain_ids" (special
tokens taken as text), "decoded" (of ids)}.
"""
import base64
import json
import os
import random
import sys

import tokenizers
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models,
                        normalizers, pre_tokenizers, processors, trainers)

WORDS = """the a of and to garden wall tree branch leaf root fruit summer
winter grows slowly against an old brick frame gardener ties young shoots
it's they'll we've I'm don't HELLO World 2024 3.14159 1,000,000 x=y+1;
naïve café Straße größer мир привет Ελλάδα שלום مرحبا नमस्ते สวัสดี
こんにちは 世界 漢字 안녕하세요 ﷺ ΐ ﬁ ½ ٣٤ Ⅷ ² 👍 👩‍👩‍👧 🇫🇷 é e\u0301 ñ n\u0303
\u1100\u1161\u11a8 \u0958 \ufb1d \u212b a\u0323\u0307 a\u0307\u0323""".split()

SPACES = [" ", "  ", "   ", "\t", "\n", "\r\n", "\n\n", " \n ", "\u00a0",
          "\u2003", "\u3000", "\u200b", "\u180e", "\x0b", "\x0c", "\x85",
          "\u2028", "\ufeff", "        "]

# Assigned in Unicode 13 and before: later ones differ between libraries.
RANGES = [(0x0, 0x7F), (0x80, 0xFF), (0x100, 0x24F), (0x300, 0x36F),
          (0x370, 0x3FF), (0x400, 0x4FF), (0x531, 0x556), (0x5D0, 0x5EA),
          (0x621, 0x64A), (0x660, 0x669), (0x904, 0x939), (0x93E, 0x94D),
          (0xE01, 0xE3A), (0x10A0, 0x10C5), (0x1100, 0x11FF),
          (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x20A0, 0x20BF),
          (0x2150, 0x218B), (0x2190, 0x22FF), (0x2600, 0x27BF),
          (0x3041, 0x3096), (0x30A1, 0x30FA), (0x4E00, 0x9FA5),
          (0xAC00, 0xD7A3), (0xE000, 0xE0FF), (0xF900, 0xFAD9),
          (0xFB00, 0xFB4F), (0xFE00, 0xFE0F), (0xFF01, 0xFF5E),
          (0x10000, 0x100FA), (0x1D400, 0x1D7FF), (0x1F300, 0x1F64F),
          (0x20000, 0x20FFF), (0xE0020, 0xE007F)]


def random_char(rng):
    low, high = rng.choice(RANGES)
    return chr(rng.randint(low, high))


def random_text(rng, special):
    kind = rng.randrange(9)
    if kind == 0:
        return "".join(random_char(rng) for _ in range(rng.randint(1, 24)))
    if kind == 1:  # one script
        low, high = rng.choice(RANGES)
        return "".join(
            chr(rng.randint(low, high)) for _ in range(rng.randint(1, 30)))
    if kind == 2:
        return rng.choice(WORDS) * rng.randint(1, 40)
    if kind == 3:
        return "".join(
            rng.choice(SPACES) for _ in range(rng.randint(1, 8))) + rng.choice(
                WORDS + [""])
    if kind == 4:
        return "".join(
            rng.choice("aAbB01 .,'!?-_/\\(){}[]<>\"#$%&*+=~`^|@:;\n")
            for _ in range(rng.randint(1, 60)))
    parts = []
    for _ in range(rng.randint(1, 12)):
        parts.append(rng.choice(WORDS))
        if special and rng.random() < 0.2:
            parts.append(rng.choice(special))
        if rng.random() < 0.1:
            parts.append(random_char(rng))
        parts.append(rng.choice([" "] * 8 + SPACES))
    return "".join(parts)[:rng.choice([400, 400, 2000])]


def cases(tokenizer, count, seed):
    rng = random.Random(seed)
    special = [t.content for t in tokenizer.get_added_tokens_decoder().values()]
    texts = ["", " ", "  ", "a", " a", "\n", "\u2581", " \u2581 ", "<0x41>",
             "<unk>", "a" * 300, " " * 300, "1" * 300, "'s", "'S 'LL",
             "\u017f '\u017f"] + special[:40]
    while len(texts) < count:
        texts.append(random_text(rng, special))
    for text in texts[:count]:
        tokenizer.encode_special_tokens = False
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        decoded = tokenizer.decode(ids, skip_special_tokens=False)
        tokenizer.encode_special_tokens = True
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        tokenizer.encode_special_tokens = False
        case = {"text": text, "ids": ids, "decoded": decoded}
        if plain != ids:
            case["plain_ids"] = plain
        yield case


def write_cases(tokenizer, path, count, seed):
    with open(path, "w", encoding="ascii") as file:
        for case in cases(tokenizer, count, seed):
            file.write(json.dumps(case, separators=(",", ":")) + "\n")


def corpus():
    rng = random.Random(1)
    for _ in range(4000):
        yield " ".join(rng.choice(WORDS) for _ in range(12))


def train_byte_level():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(
            Regex(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
                  r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
                  r"\s+(?!\S)|\s+"), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    ])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.add_special_tokens(["<|bos|>", "<|eos|>"])
    tokenizer.add_tokens([
        AddedToken("garden wall", single_word=True),
        AddedToken("<mask>", lstrip=True, rstrip=True, normalized=False),
        AddedToken("<|eos|>x", normalized=False)
    ])
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(
            single="<|bos|> $A <|eos|>",
            special_tokens=[(t, tokenizer.token_to_id(t))
                            for t in ("<|bos|>", "<|eos|>")])
    ])
    return tokenizer


def train_byte_fallback():
    tokenizer = Tokenizer(
        models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.decoder = decoders.Sequence([
        decoders.Replace("\u2581", " "), decoders.ByteFallback(),
        decoders.Fuse(), decoders.Strip(" ", 1, 0)
    ])
    trainer = trainers.BpeTrainer(
        vocab_size=700, show_progress=False, limit_alphabet=120,
        special_tokens=["<unk>", "<s>", "</s>"] +
        ["<0x%02X>" % b for b in range(256)])
    # Merges that cross words, as in Llama 2, come from short phrases.
    tokenizer.train_from_iterator(
        (" ".join(line.split()[:2]) for line in corpus()), trainer)
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = [
        t for t in data["added_tokens"] if not t["content"].startswith("<0x")]
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)])
    tokenizer.add_special_tokens(
        [AddedToken("<|end|>", rstrip=True, normalized=False, special=True)])
    return tokenizer


def write_ranks(tokenizer, path):
    """The vocabulary of a byte-level tokenizer as a tiktoken rank file."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    decoder = decoders.ByteLevel()
    printable = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or
                 174 <= b]
    others = [b for b in range(256) if b not in printable]
    byte_of = {chr(b): b for b in printable}
    byte_of.update({chr(256 + i): b for i, b in enumerate(others)})
    assert decoder and sorted(byte_of) == alphabet
    added = {t.content for t in tokenizer.get_added_tokens_decoder().values()}
    tokens = sorted((i, t) for t, i in tokenizer.get_vocab().items()
                    if t not in added)
    with open(path, "wb") as file:
        for rank, (_, token) in enumerate(tokens):
            data = bytes(byte_of[c] for c in token)
            file.write(base64.b64encode(data) + b" %d\n" % rank)


def train_sentence_piece(path):
    import sentencepiece
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=corpus(), model_prefix=path[:-len(".model")],
        model_type="bpe", vocab_size=520, byte_fallback=True,
        character_coverage=0.98, user_defined_symbols=["[SEP]"],
        control_symbols=["[INST]"], minloglevel=2,
        normalization_rule_name="identity", remove_extra_whitespaces=False)
    os.remove(path[:-len(".model")] + ".vocab")


def with_metaspace(tokenizer):
    """The same vocabulary as newer files have it."""
    data = json.loads(tokenizer.to_str())
    data["normalizer"] = None
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Metaspace(prepend_scheme="first")])
    tokenizer.decoder = decoders.Sequence([
        decoders.Metaspace(prepend_scheme="first"), decoders.ByteFallback()])
    return tokenizer


def main():
    if sys.argv[1] == "cases":
        count = int(sys.argv[4]) if len(sys.argv) > 4 else 2000
        seed = int(sys.argv[5]) if len(sys.argv) > 5 else 1
        write_cases(Tokenizer.from_file(sys.argv[2]), sys.argv[3], count, seed)
        return
    for name, tokenizer in (("byte_level", train_byte_level()),
                            ("byte_fallback", train_byte_fallback()),
                            ("metaspace",
                             with_metaspace(train_byte_fallback()))):
        directory = os.path.join(sys.argv[2], name)
        os.makedirs(directory, exist_ok=True)
        with open(os.path.join(directory, "tokenizer.json"), "w",
                  encoding="ascii") as file:
            json.dump(json.loads(tokenizer.to_str()), file,
                      separators=(",", ":"))
        write_cases(tokenizer, os.path.join(directory, "cases.jsonl"), 75, 1)
    directory = os.path.join(sys.argv[2], "ranks")
    os.makedirs(directory, exist_ok=True)
    write_ranks(train_byte_level(), os.path.join(directory, "toy.tiktoken"))
    directory = os.path.join(sys.argv[2], "sentence_piece")
    os.makedirs(directory, exist_ok=True)
    train_sentence_piece(os.path.join(directory, "tokenizer.model"))
    print("tokenizers", tokenizers.__version__)


if __name__ == "__main__":
    main()
