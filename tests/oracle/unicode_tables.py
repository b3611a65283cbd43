#!/usr/bin/env python3
"""Writes unicode_char_runs.h, unicode_decompositions.cc and unicode_classes.cc:
what splitting, canonical composition and word boundaries need of the Unicode
Character Database.

Usage: unicode_tables.py io/internal

Versions are those of the libraries that tokenizers are made with (seen by
asking tokenizers 0.23.3 and tiktoken 0.14.0 about every character): classes
from Unicode 16 (package unicodedata2==16.0.0; regex for Alphabetic and Han),
composition from Unicode 9 (perl knows when a character was assigned).
"""
import subprocess
import sys

import regex
import unicodedata2 as unicodedata

CODES = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
CATEGORIES = ("Cn Cc Cf Co Cs Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi "
              "Pf Po Sm Sc Sk So Zs Zl Zp").split()
SPACE_CONTROL = len(CATEGORIES)  # control characters that are white space
BLOCK = 256


def old_codes():
    """Characters of Unicode 9."""
    script = ('for my $c (0..0x10ffff) { next if $c>=0xd800 && $c<=0xdfff; '
              'print "$c\\n" if chr($c) =~ /\\p{Present_In: 9.0}/; }')
    return {int(line) for line in subprocess.check_output(
        ["perl", "-e", script]).split()}


def ranges(key):
    """Runs (first, last, value) of codes with a value other than 0."""
    runs = []
    for code in CODES:
        value = key(code)
        if not value:
            continue
        if runs and runs[-1][1] == code - 1 and runs[-1][2] == value:
            runs[-1][1] = code
        else:
            runs.append([code, code, value])
    return runs


def decompositions(old):
    table = []
    for code in CODES:
        if 0xAC00 <= code <= 0xD7A3 or code not in old:  # Hangul: arithmetic
            continue
        text = unicodedata.decomposition(chr(code))
        if text and not text.startswith("<"):
            parts = [int(part, 16) for part in text.split()]
            table.append((code, parts[0], parts[1] if len(parts) > 1 else 0))
    return table


def emit(out, declaration, items):
    out.append(declaration + " = {")
    line = "   "
    for item in items:
        if len(line) + len(item) + 1 > 80:
            out.append(line)
            line = "   "
        line += " " + item
    out.append(line)
    out.append("};")
    out.append("")


def write(path, body):
    head = [
        "// Written by tests/oracle/unicode_tables.py.",
        '#include "espalier/io/internal/unicode_tables.h"', "",
        "namespace espalier::internal {", "", "// clang-format off", ""
    ]
    tail = ["", "// clang-format on", "", "}  // namespace espalier::internal"]
    with open(path, "w", encoding="ascii") as file:
        file.write("\n".join(head + body + tail) + "\n")


def char_values(active):
    alphabetic = regex.compile(r"\p{Alphabetic}")
    han = regex.compile(r"\p{Script=Han}")
    values = bytearray(0x110000)
    for code in CODES:
        char = chr(code)
        category = unicodedata.category(char)
        value = CATEGORIES.index(category)
        if category == "Cc" and (9 <= code <= 13 or code == 0x85):
            value = SPACE_CONTROL
        if category != "Cn":
            if (alphabetic.match(char) or category[0] == "M" or
                    category in ("Nd", "Pc") or code in (0x200C, 0x200D)):
                value |= 0x20
            if han.match(char):
                value |= 0x40
        if code in active:
            value |= 0x80
        values[code] = value
    return values


def run_lengths(values, longest):
    """Flat (length - 1, value) pairs."""
    out = []
    for value in values:
        if out and out[-1][1] == value and out[-1][0] < longest - 1:
            out[-1][0] += 1
        else:
            out.append([0, value])
    return ["%d,%d," % tuple(pair) for pair in out]


def write_chars(directory, active):
    values = char_values(active)
    blocks, index = {}, []
    for begin in range(0, len(values), BLOCK):
        block = bytes(values[begin:begin + BLOCK])
        index.append(blocks.setdefault(block, len(blocks)))
    assert len(blocks) <= 256, len(blocks)
    guard = "ESPALIER_IO_INTERNAL_UNICODE_CHAR_RUNS_H_"
    out = ["// Written by tests/oracle/unicode_tables.py.",
           "#ifndef " + guard, "#define " + guard, "", "#include <cstdint>",
           "", "namespace espalier::internal {", "", "// clang-format off", "",
           "// Pairs of (length - 1, value): for each 256 characters the number",
           "// of their block, and the blocks' values one behind another.",
           "inline constexpr int kNumCharBlocks = %d;" % len(blocks), ""]
    emit(out, "inline constexpr uint8_t kCharBlockRuns[]",
         run_lengths(index, 256))
    emit(out, "inline constexpr uint8_t kCharValueRuns[]", run_lengths(
        [value for block in blocks for value in block], 256))
    out += ["// clang-format on", "", "}  // namespace espalier::internal", "",
            "#endif  // " + guard]
    with open(directory + "/unicode_char_runs.h", "w",
              encoding="ascii") as file:
        file.write("\n".join(out) + "\n")


def main():
    old = old_codes()
    table = decompositions(old)
    pairs = sorted(
        (first, second, index)
        for index, (code, first, second) in enumerate(table)
        if second and unicodedata.normalize("NFC", chr(code)) == chr(code))
    classes = ranges(lambda c: unicodedata.combining(chr(c)) if c in old else 0)
    # What canonical composition may change or move: characters with a class,
    # that decompose for good, or that compose with the one before.
    active = {code for first, last, _ in classes
              for code in range(first, last + 1)}
    active |= {code for code, _, _ in table
               if unicodedata.normalize("NFC", chr(code)) != chr(code)}
    active |= {second for _, second, _ in pairs}
    active |= set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))
    write_chars(sys.argv[1], active)
    out = []
    emit(out, "extern const Decomposition kDecompositions[]",
         ["{%d,%d,%d}," % row for row in table])
    out += ["extern const int kNumDecompositions = %d;" % len(table)]
    write(sys.argv[1] + "/unicode_decompositions.cc", out)
    out = []
    emit(out, "extern const uint16_t kCompositions[]",
         ["%d," % index for _, _, index in pairs])
    out += ["extern const int kNumCompositions = %d;" % len(pairs), ""]
    emit(out, "extern const CombiningClass kCombiningClasses[]",
         ["{%d,%d,%d}," % tuple(run) for run in classes])
    out += ["extern const int kNumCombiningClasses = %d;" % len(classes)]
    write(sys.argv[1] + "/unicode_classes.cc", out)


if __name__ == "__main__":
    main()
