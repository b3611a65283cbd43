#!/usr/bin/env python3
"""Holds `espalier tokenize` against the libraries that tokenizers are made
with: Hugging Face's tokenizers, tiktoken, sentencepiece.

  tokenizer_parity.py ESPALIER COUNT[:SEED] FILE[:FAMILY]...
      For each tokenizer file COUNT strings generated from SEED (7), encoded with and without
      special tokens matched, decoded again; random ids decoded; and one string
      in 50 broken into invalid UTF-8, which must be refused at the byte where
      Python refuses it. FAMILY is for rank files (see espalier tokenize).
  tokenizer_parity.py fixture OUT_DIR COUNT FILE[:FAMILY]...
      Writes OUT_DIR/NAME[@FAMILY].jsonl, COUNT hard strings for each file, in
      the form of tokenizer_cases.py.

Prints the number of strings and of differences, and exits with 1 if there is
any difference.
"""
import base64
import json
import os
import random
import re
import subprocess
import sys
import tempfile

from tokenizer_cases import SPACES, WORDS, random_text

# tiktoken's and the families' own spelling of the split patterns.
PATTERNS = {
    "gpt2": r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+"""
            r"""| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+""",
    "llama3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
              r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
            r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "o200k": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*"
             r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
             r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
             r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
             r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+"
             r"|\s+(?!\S)|\s+",
    "kimi": r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?"
            r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
            r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?"
            r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
            r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}"
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}
SPECIAL = {
    "gpt2": {"<|endoftext|>": 50256},
    "qwen": {"<|endoftext|>": 151643, "<|im_start|>": 151644,
             "<|im_end|>": 151645,
             **{"<|extra_%d|>" % i: 151646 + i for i in range(205)}},
    "llama3": {"<|begin_of_text|>": 128000, "<|end_of_text|>": 128001,
               "<|start_header_id|>": 128006, "<|end_header_id|>": 128007,
               "<|eot_id|>": 128009},
}
RANKS = {50256: "gpt2", 128000: "llama3", 151643: "qwen"}


class HuggingFace:
    def __init__(self, path):
        import tokenizers
        self.version = "tokenizers " + tokenizers.__version__
        self.tokenizer = tokenizers.Tokenizer.from_file(path)
        self.special = [
            t.content
            for t in self.tokenizer.get_added_tokens_decoder().values()]
        self.size = self.tokenizer.get_vocab_size()

    def encode(self, text, match_special):
        self.tokenizer.encode_special_tokens = not match_special
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids):
        return self.tokenizer.decode(ids, skip_special_tokens=False)

    def random_ids(self, rng):
        return [rng.randrange(self.size) for _ in range(rng.randint(1, 12))]


class Tiktoken:
    def __init__(self, path, family):
        import tiktoken
        self.version = "tiktoken " + tiktoken.__version__
        ranks = {}
        with open(path, "rb") as file:
            for line in file:
                token, rank = line.split()
                ranks[base64.b64decode(token)] = int(rank)
        known = RANKS.get(len(ranks))
        self.family = family or known
        special = SPECIAL.get(self.family, {}) if known == self.family else {}
        self.encoding = tiktoken.Encoding(
            self.family, pat_str=PATTERNS[self.family], mergeable_ranks=ranks,
            special_tokens=special)
        self.special = list(special)
        self.size = len(ranks)

    def pieces(self, text):
        """Kimi's cuts (its tokenization_kimi.py, encode)."""
        if self.family != "kimi":
            return [text]
        pieces = []
        for begin in range(0, len(text), 400000):
            part = text[begin:begin + 400000]
            start, run, space = 0, 0, part[0].isspace()
            for i, char in enumerate(part):
                if char.isspace() != space:
                    run, space = 1, char.isspace()
                    continue
                run += 1
                if run > 25000:
                    pieces.append(part[start:i])
                    start, run = i, 1
            pieces.append(part[start:])
        return pieces

    def encode(self, text, match_special):
        ids = []
        for piece in self.pieces(text):
            if match_special:
                ids += self.encoding.encode(
                    piece, allowed_special="all", disallowed_special=())
            else:
                ids += self.encoding.encode_ordinary(piece)
        return ids

    def decode(self, ids):
        return self.encoding.decode(ids)

    def random_ids(self, rng):
        return [rng.randrange(self.size) for _ in range(rng.randint(1, 12))]


class SentencePiece:
    def __init__(self, path):
        import sentencepiece
        self.version = "sentencepiece " + sentencepiece.__version__
        self.model = sentencepiece.SentencePieceProcessor(model_file=path)
        self.size = self.model.get_piece_size()
        self.control = {
            self.model.id_to_piece(i): i for i in range(self.size)
            if self.model.is_control(i) or self.model.is_unknown(i)}
        self.special = [piece for piece in self.control]
        self.pattern = re.compile("|".join(
            re.escape(p) for p in sorted(self.control, key=len, reverse=True)))

    def encode(self, text, match_special):
        if not match_special:
            return self.model.encode(text)
        ids, begin = [], 0
        for match in self.pattern.finditer(text):
            if match.start() > begin:
                ids += self.model.encode(text[begin:match.start()])
            ids.append(self.control[match.group()])
            begin = match.end()
        return ids + (self.model.encode(text[begin:])
                      if begin < len(text) else [])

    def decode(self, ids):
        """Control pieces as they are spelled, text between them decoded."""
        text, run = "", []
        for i in ids:
            if not self.model.is_control(i):
                run.append(i)
                continue
            text += self.model.decode(run) + self.model.id_to_piece(i)
            run = []
        return text + self.model.decode(run)

    def random_ids(self, rng):
        return [rng.randrange(self.size) for _ in range(rng.randint(1, 12))]


def open_peer(path, family):
    with open(path, "rb") as file:
        head = file.read(200)
    if head.lstrip()[:1] == b"{":
        return HuggingFace(path)
    first = head.split(b"\n")[0].split()
    if len(first) == 2 and first[1].isdigit():
        return Tiktoken(path, family)
    return SentencePiece(path)


EMOJI = ["\U0001F468\u200D\U0001F469\u200D\U0001F467", "\U0001F44D\U0001F3FD",
         "\U0001F1E9\U0001F1EA", "\u2764\uFE0F\u200D\U0001F525", "1\uFE0F\u20E3",
         "\U0001F3F4\U000E0067\U000E0062\U000E007F", "\U0001FAE8", "\u200D"]


def any_char(rng):
    while True:
        code = rng.randrange(rng.choice([0x80, 0x800, 0x3400, 0x10000, 0x20000,
                                         0x110000]))
        if not 0xD800 <= code <= 0xDFFF:
            return chr(code)


def hard_text(rng, special):
    kind = rng.randrange(12)
    if kind < 5:
        return random_text(rng, special)
    if kind == 5:  # any characters at all
        return "".join(any_char(rng) for _ in range(rng.randint(1, 20)))
    if kind == 6:  # one block of Unicode
        low = rng.randrange(0x30000) & ~0x7F
        return "".join(chr(low + rng.randrange(128)) for _ in range(
            rng.randint(1, 30)) if not 0xD780 <= low <= 0xDFFF)
    if kind == 7:
        return "".join(rng.choice(EMOJI + [" ", "a"]) for _ in range(
            rng.randint(1, 12)))
    if kind == 8:  # marks, ordered and not
        return "".join(rng.choice("aeoAE\u05d0\u0915\u1100\u1161\u11a8\uac00")
                       + "".join(chr(rng.choice([0x300, 0x323, 0x345, 0x5b0,
                                                 0x93c, 0x3099, 0x1dc0,
                                                 rng.randint(0x300, 0x36f)]))
                                 for _ in range(rng.randrange(4)))
                       for _ in range(rng.randint(1, 8)))
    if kind == 9:  # whitespace runs
        return "".join(rng.choice(SPACES) * rng.randint(1, rng.choice([3, 40]))
                       + rng.choice(WORDS + ["", "."]) for _ in range(
                           rng.randint(1, 5)))
    if kind == 10:  # contractions, numbers, cases
        return "".join(rng.choice(["'s", "'S", "'LL", "'ve", "'", "DON'T",
                                   "iPhone", "HTTPServer", "x", "12", "3456",
                                   "\u00bd", "\u0663", " ", "\n", "\u01c5",
                                   "\u02b0", "\u017f", "/", "\u3007", "\u4e2d",
                                   "\u30fb", "\u3005"])
                       for _ in range(rng.randint(1, 16)))
    # special tokens cut short, glued, spaced
    token = rng.choice(special or ["<s>"])
    return "".join(rng.choice([token, token[:-1], token[1:], " " + token + " ",
                               token.upper(), "<", ">", "|", "x"])
                   for _ in range(rng.randint(1, 6)))


def long_texts(rng):
    """Words of about 1 MB, and runs."""
    yield "a" * 1000000
    yield "".join(rng.choice("abcdefghij") for _ in range(1000000))
    yield "".join(rng.choice("\u4e00\u4e8c\u4e09\u56db") for _ in range(330000))
    yield "".join(chr(rng.randint(0x0E01, 0x0E3A)) for _ in range(330000))
    yield "\U0001F44D" * 250000
    yield "".join(rng.choice("0123456789") for _ in range(1000000))
    yield "ab" * 30000 + " " * 60000 + "\n" * 1000 + "AB" * 30000
    yield "e\u0301" * 300000


def ask(espalier, path, family, requests):
    command = [espalier, "tokenize", "--json", "--drop-unknown", "--tokenizer",
               path] + (["--family", family] if family else [])
    with tempfile.TemporaryFile() as lines, tempfile.TemporaryFile() as out:
        for request in requests:
            lines.write(json.dumps(request).encode() + b"\n")
        lines.seek(0)
        result = subprocess.run(command, stdin=lines, stdout=out, check=False)
        if result.returncode not in (0, 3):
            raise RuntimeError("%s: exit %d" % (path, result.returncode))
        out.seek(0)
        answers = [json.loads(line) for line in out]
    if len(answers) != len(requests):
        raise RuntimeError("%s: %d answers to %d lines" %
                           (path, len(answers), len(requests)))
    return answers


class Tally:
    def __init__(self, name):
        self.name, self.count, self.differences, self.failed = name, 0, 0, 0

    def compare(self, what, ours, expected):
        self.count += 1
        if ours == expected:
            return
        self.differences += 1
        if self.differences <= 5:
            print("%s: %r\n  ours     %s\n  expected %s" %
                  (self.name, what[:200], str(ours)[:400],
                   str(expected)[:400]))


def compare_encodings(tally, peer, espalier, path, family, texts):
    requests, expected = [], []
    for text in texts:
        for match in (True, False):
            try:
                ids = peer.encode(text, match)
            except (ValueError, RuntimeError) as error:
                tally.failed += 1
                print("%s: the peer fails on %d characters: %s" %
                      (tally.name, len(text), str(error)[:100]))
                continue
            requests.append({"text": text, "match_special_tokens": match})
            expected.append(ids)
    answers = ask(espalier, path, family, requests)
    for request, answer, ids in zip(requests, answers, expected):
        tally.compare(request["text"], answer.get("ids", answer), ids)
    return expected


def check(espalier, path, family, count, seed):
    rng = random.Random(seed)
    peer = open_peer(path, family)
    name = os.path.basename(path) + (":" + family if family else "")
    encoded, decoded, refused = Tally(name), Tally(name), Tally(name)
    texts = ["", " ", "a", "\u2581", "<0x41>", "<unk>"] + peer.special[:300]
    texts += list(long_texts(rng)) if count >= 1000 else []
    while len(texts) < count:
        texts.append(hard_text(rng, peer.special))
    expected = compare_encodings(encoded, peer, espalier, path, family, texts)
    sequences = expected[::2] + [
        peer.random_ids(rng) for _ in range(count // 5)]
    answers = ask(espalier, path, family, [{"ids": ids} for ids in sequences])
    for ids, answer in zip(sequences, answers):
        decoded.compare(str(ids[:40]), answer.get("text", answer),
                        peer.decode(ids))
    broken = []
    for text in texts[:count // 50]:
        data = bytearray(text[:1000].encode())
        for _ in range(rng.randint(1, 3)):
            data.insert(rng.randint(0, len(data)), rng.randrange(0x80, 0x100))
        broken.append(bytes(data))
    answers = ask(espalier, path, family, [{"hex": b.hex()} for b in broken])
    for data, answer in zip(broken, answers):
        try:
            data.decode()
            valid = None
        except UnicodeDecodeError as error:
            valid = "text is not UTF-8 at byte %d" % error.start
        refused.compare(data.hex(), answer.get("error"), valid)
    print("%-28s %-20s encode %7d (each string twice), %d differences; "
          "decode %7d, %d; invalid UTF-8 %5d, %d%s" %
          (name, peer.version, encoded.count, encoded.differences,
           decoded.count,
           decoded.differences, refused.count, refused.differences,
           "; the peer failed on %d" % encoded.failed
           if encoded.failed else ""), flush=True)
    return encoded.differences + decoded.differences + refused.differences


def write_fixture(directory, count, path, family):
    rng = random.Random(3)
    peer = open_peer(path, family)
    texts = ["", " ", "  a", "\u2581", "<0x41>", "\n\n x"] + peer.special[:6]
    while len(texts) < count:
        texts.append(hard_text(rng, peer.special)[:120])
    name = os.path.basename(path) + ("@" + family if family else "")
    with open(os.path.join(directory, name + ".jsonl"), "w",
              encoding="ascii") as file:
        for text in texts:
            ids, plain = peer.encode(text, True), peer.encode(text, False)
            case = {"text": text, "ids": ids, "decoded": peer.decode(ids)}
            if plain != ids:
                case["plain_ids"] = plain
            file.write(json.dumps(case, separators=(",", ":")) + "\n")


def main():
    if sys.argv[1] == "fixture":
        for item in sys.argv[4:]:
            path, _, family = item.partition(":")
            write_fixture(sys.argv[2], int(sys.argv[3]), path, family)
        return 0
    espalier = sys.argv[1]
    count, _, seed = sys.argv[2].partition(":")
    differences = 0
    for item in sys.argv[3:]:
        path, _, family = item.partition(":")
        differences += check(espalier, path, family, int(count),
                             int(seed or 7))
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
