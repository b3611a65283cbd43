#!/usr/bin/env python3
"""Writes unicode_decompositions.cc and unicode_classes.cc: what canonical
composition and word boundaries need of the Unicode Character Database.

Usage: unicode_tables.py io/internal    (with the unicodedata2 package: its version;
                                 else the version of Python's unicodedata)
"""
import sys

try:
    import unicodedata2 as unicodedata
except ImportError:
    import unicodedata

CODES = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]


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


def decompositions():
    table = []
    for code in CODES:
        if 0xAC00 <= code <= 0xD7A3:  # Hangul: by arithmetic
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
        "// Written by tests/oracle/unicode_tables.py from Unicode "
        + unicodedata.unidata_version + ".",
        '#include "espalier/io/internal/unicode_tables.h"', "",
        "namespace espalier::internal {", "", "// clang-format off", ""
    ]
    tail = ["", "// clang-format on", "", "}  // namespace espalier::internal"]
    with open(path, "w", encoding="ascii") as file:
        file.write("\n".join(head + body + tail) + "\n")


def main():
    table = decompositions()
    pairs = sorted(
        (first, second, index)
        for index, (code, first, second) in enumerate(table)
        if second and unicodedata.normalize("NFC", chr(code)) == chr(code))
    classes = ranges(lambda c: unicodedata.combining(chr(c)))
    word = ranges(lambda c: unicodedata.category(chr(c))[0] in "LM"
                  or unicodedata.category(chr(c)) in ("Nd", "Pc"))
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
    out += ["extern const int kNumCombiningClasses = %d;" % len(classes), ""]
    emit(out, "extern const CodeRange kWordRanges[]",
         ["{%d,%d}," % tuple(run[:2]) for run in word])
    out += ["extern const int kNumWordRanges = %d;" % len(word)]
    write(sys.argv[1] + "/unicode_classes.cc", out)


if __name__ == "__main__":
    main()
