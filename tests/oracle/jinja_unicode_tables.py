#!/usr/bin/env python3
"""Writes io/internal/jinja_{case,class}_tables.cc: what Python's str knows of case
and of printable characters, read off its own answers.

Usage: jinja_unicode_tables.py io/internal
"""
import sys
import unicodedata

CODES = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]


def ranges(predicate):
    runs = []
    for code in CODES:
        if not predicate(chr(code)):
            continue
        if runs and runs[-1][1] == code - 1:
            runs[-1][1] = code
        else:
            runs.append([code, code])
    return runs


def case_table(mapping):
    """Runs (first, last, step, delta) of single characters; the rest."""
    runs, multiple = [], []
    for code in CODES:
        mapped = mapping(chr(code))
        if mapped == chr(code):
            continue
        if len(mapped) > 1:
            multiple.append([code] + [ord(c) for c in mapped])
            continue
        delta = ord(mapped) - code
        for step in (1, 2):
            if runs and runs[-1][3] == delta and runs[-1][1] + step == code and (
                    runs[-1][2] in (0, step)):
                runs[-1][1], runs[-1][2] = code, step
                break
        else:
            runs.append([code, code, 0, delta])
    return [[a, b, max(step, 1), d] for a, b, step, d in runs], multiple


def case_ignorable(char):
    if char == "\u03a3":
        return False
    if is_cased(char):
        return ("1" + char + "\u03a3").lower()[-1] == "\u03c3"
    return ("A" + char + "\u03a3").lower()[-1] == "\u03c2"


def is_cased(char):
    return char.islower() or char.isupper() or char.istitle()


def write_array(out, declaration, items):
    out.append(f"{declaration}[] = {{")
    line = "   "
    for item in items:
        if len(line) + 1 + len(item) > 79:
            out.append(line)
            line = "   "
        line += " " + item
    out += [line, "};"]


def write_ranges(out, name, runs):
    write_array(out, f"const JinjaCodeRange {name}",
                ["{0x%X, 0x%X}," % (a, b) for a, b in runs])
    out.append(f"const int {name.replace('k', 'kNum', 1)} = {len(runs)};")


def write_case(out, name, mapping):
    runs, multiple = case_table(mapping)
    write_array(out, f"const CaseRange {name}",
                ["{0x%X, 0x%X, %d, %d}," % tuple(run) for run in runs])
    out.append(f"const int {name.replace('k', 'kNum', 1)} = {len(runs)};")
    name += "Multiple"
    write_array(out, f"const CaseExpansion {name}",
                ["{0x%X, {0x%X, 0x%X, 0x%X}}," % tuple(
                    entry + [0] * (4 - len(entry))) for entry in multiple])
    out.append(f"const int {name.replace('k', 'kNum', 1)} = {len(multiple)};")


def write_file(path, body):
    out = ["// Written by tests/oracle/jinja_unicode_tables.py: Unicode " +
           unicodedata.unidata_version + ".",
           '#include "espalier/io/internal/jinja_unicode_tables.h"', "",
           "namespace espalier::internal {", "", "// clang-format off"]
    out += body + ["// clang-format on", "",
                   "}  // namespace espalier::internal", ""]
    with open(path, "w", encoding="ascii") as file:
        file.write("\n".join(out))


def main():
    out = []
    write_case(out, "kUpper", str.upper)
    write_case(out, "kLower", str.lower)
    write_case(out, "kTitle", str.title)
    write_file(sys.argv[1] + "/jinja_case_tables.cc", out)
    out = []
    write_ranges(out, "kCased", ranges(is_cased))
    write_ranges(out, "kCaseIgnorable", ranges(case_ignorable))
    write_ranges(out, "kPrintable", ranges(str.isprintable))
    write_file(sys.argv[1] + "/jinja_class_tables.cc", out)


if __name__ == "__main__":
    main()
