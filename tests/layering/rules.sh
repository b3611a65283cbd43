#!/usr/bin/env bash
# What the layout promises and no compiler checks:
#   - x/internal/ is included from folder x alone (tests/ crosses the rooms and
#     may look inside);
#   - no source has more than 600 lines.
#   rules.sh ROOT
# First shows, on a tree made for it, that both are found when broken.
set -euo pipefail

# faults ROOT: one line for each.
faults() {
  cd "$1"
  find . \( -path ./build -o -path ./.git -o -path ./tests/fixtures \) -prune \
    -o \( -name '*.cc' -o -name '*.h' -o -name '*.cu' \) -print0 |
    xargs -0 awk '
      FNR == 601 { print FILENAME ": more than 600 lines, split it" }
      /^#include "espalier\/.*internal\// && FILENAME !~ /^\.\/tests\// {
        owner = $2
        sub(/^"espalier\//, "./", owner)
        sub(/internal\/.*/, "", owner)
        if (index(FILENAME, owner) != 1)
          print FILENAME ":" FNR ": " $2 " belongs to " owner " alone"
      }'
}

broken=$(mktemp -d)
trap 'rm -rf "$broken"' EXIT
mkdir -p "$broken"/{ops/add/internal,io,tests}
echo '#include "espalier/ops/add/internal/plan.h"' |
  tee "$broken"/{ops/add/internal/deep,ops/add/add,ops/sub,io/io,tests/t}.cc \
    >/dev/null
seq 600 >"$broken/io/long.h"
seq 601 >"$broken/io/longer.h"
expected='./io/io.cc:1: "espalier/ops/add/internal/plan.h" belongs to ./ops/add/ alone
./io/longer.h: more than 600 lines, split it
./ops/sub.cc:1: "espalier/ops/add/internal/plan.h" belongs to ./ops/add/ alone'
got=$(faults "$broken" | sort)
[ "$got" = "$expected" ] || {
  printf 'rules.sh does not see what is broken; got:\n%s\n' "$got" >&2
  exit 1
}

got=$(faults "$1")
[ -z "$got" ] || {
  echo "$got" >&2
  exit 1
}
