#!/usr/bin/env python3
"""MB/s of Espalier's tokenizers and of the libraries they are equal to, on one
thread each, in turns.

  tokenizer_speed.py BENCH ROUNDS SECONDS TEXT... -- FILE[:FAMILY]...

BENCH is build/release/benches/io.tokenizer_bench. Every text is encoded as a
whole and line by line, special tokens taken as text, after one call that warms
caches; each side is measured ROUNDS times for SECONDS and the best counts. TEXT "multilingual" is 1 MB of words of many
scripts made here. Prints the rows of a Markdown table.
"""
import json
import os
import random
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

from tokenizer_parity import HuggingFace, Tiktoken, open_peer  # noqa: E402

SENTENCES = """The tree grows against the wall, and its roots go deep.
Der Baum wächst an der Mauer; seine Wurzeln reichen tief hinab.
L'arbre pousse contre le mur, où ses racines s'enfoncent profondément.
Дерево растёт у старой стены, и корни его уходят глубоко в землю.
Το δέντρο μεγαλώνει δίπλα στον τοίχο και οι ρίζες του είναι βαθιές.
الشجرة تنمو بجانب الجدار وجذورها عميقة في الأرض.
העץ צומח ליד הקיר ושורשיו עמוקים באדמה.
पेड़ दीवार के पास बढ़ता है और उसकी जड़ें गहरी हैं।
ต้นไม้เติบโตข้างกำแพงและรากของมันหยั่งลึก
树靠着墙生长，它的根深深地扎在土里。
木は壁のそばで育ち、その根は土の中に深く伸びる。
나무는 벽 옆에서 자라고 그 뿌리는 깊이 뻗는다.
Cây mọc cạnh bức tường và rễ của nó ăn sâu. 🌳🌱👨‍👩‍👧 x = f(y) + 12.5;""".split("\n")


def multilingual(path):
    rng = random.Random(4)
    text = []
    size = 0
    while size < 1 << 20:
        words = rng.choice(SENTENCES).split(" ")
        rng.shuffle(words)
        text.append(" ".join(words) + rng.choice([" ", "\n", "\n\n"]))
        size += len(text[-1].encode())
    with open(path, "w", encoding="utf-8") as file:
        file.write("".join(text))


def encoder(peer, by_line):
    """The peer's fastest call that encodes one text, or all its lines."""
    def lines(text):
        return [line for line in text.split("\n") if line]

    if isinstance(peer, HuggingFace):
        peer.tokenizer.encode_special_tokens = True
        encode = peer.tokenizer.encode_batch_fast
        if by_line:
            return lambda text: encode(lines(text), add_special_tokens=False)
        return lambda text: encode([text], add_special_tokens=False)
    if isinstance(peer, Tiktoken):
        if by_line:
            return lambda text: [
                peer.encoding.encode_ordinary(line) for line in lines(text)]
        return peer.encoding.encode_ordinary
    if by_line:
        return lambda text: peer.model.encode(lines(text), num_threads=1)
    return peer.model.encode


def measure(call, text, seconds):
    call(text)
    runs, start = 0, time.perf_counter()
    while True:
        call(text)
        runs += 1
        elapsed = time.perf_counter() - start
        if elapsed >= seconds:
            return len(text.encode()) * runs / elapsed / 1e6


def ours(bench, seconds, files, texts):
    """MB/s of (file, text, by_line)."""
    environment = dict(
        os.environ, ESPALIER_TEXTS=":".join(texts), ESPALIER_TOKENIZERS=":".join(
            path + ("@" + family if family else "") for path, family in files))
    out = subprocess.run(
        [bench, "--benchmark_filter=^encode", "--benchmark_format=json",
         "--benchmark_min_time=%g" % seconds], env=environment, check=True,
        stdout=subprocess.PIPE).stdout
    rates = {row["name"]: row["bytes_per_second"] / 1e6
             for row in json.loads(out)["benchmarks"]}
    return {(i, k, by_line): rates["/".join(
        ["encode_lines" if by_line else "encode",
         os.path.basename(path) + ("@" + family if family else ""),
         os.path.basename(text)])]
            for i, (path, family) in enumerate(files)
            for k, text in enumerate(texts) for by_line in (False, True)}


def main():
    split = sys.argv.index("--")
    bench, rounds, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    names = sys.argv[4:split]
    files = [(item.partition(":")[0], item.partition(":")[2])
             for item in sys.argv[split + 1:]]
    with tempfile.TemporaryDirectory() as directory:
        made = os.path.join(directory, "multilingual")
        multilingual(made)
        texts = [made if name == "multilingual" else name for name in names]
        contents = []
        for path in texts:
            with open(path, encoding="utf-8", newline="") as file:
                contents.append(file.read())
        peers = [open_peer(path, family) for path, family in files]
        best = {}
        for _ in range(rounds):
            for key, rate in ours(bench, seconds, files, texts).items():
                best.setdefault(key, [0.0, 0.0])[0] = max(
                    best.get(key, [0.0])[0], rate)
            for key, row in best.items():
                call = encoder(peers[key[0]], key[2])
                row[1] = max(row[1], measure(call, contents[key[1]], seconds))
    print("| tokenizer | peer | text | ours MB/s | peer MB/s | ratio |")
    print("|---|---|---|---|---|---|")
    for (i, k, by_line), (our, their) in best.items():
        path, family = files[i]
        print("| %s | %s | %s%s | %.1f | %.1f | %.1f |" % (
            os.path.basename(path) + (":" + family if family else ""),
            peers[i].version, os.path.basename(names[k]),
            ", by line" if by_line else "", our, their, our / their))


if __name__ == "__main__":
    main()
