#!/usr/bin/env bash
# Installs a build into a fresh prefix and builds a consumer against it, through
# find_package and through pkg-config.
#   run.sh SOURCE_DIR BUILD_DIR CXX
set -euo pipefail
source_dir=$1 build_dir=$2 cxx=$3
work="$build_dir/consumer"
rm -rf "$work"
cmake --install "$build_dir" --prefix "$work/prefix" >/dev/null

echo "installed headers:"
(cd "$work/prefix/include" && find . -name '*.h' | sort)
while IFS= read -r header; do
  grep -nE '^#[[:space:]]*if[^n]|throw|try \{' "$header" && {
    echo "$header: public headers hold no #if, throw or try" >&2
    exit 1
  }
  "$cxx" -std=c++20 -Wall -Wextra -Werror -fno-exceptions -fsyntax-only \
    -x c++ -I "$work/prefix/include" "$header" || {
    echo "$header: does not compile alone" >&2
    exit 1
  }
done < <(find "$work/prefix/include" -name '*.h')

cmake -G Ninja -S "$source_dir/tests/consumer" -B "$work/build" \
  -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_CXX_COMPILER="$cxx" >/dev/null
cmake --build "$work/build" >/dev/null
"$work/build/consumer"

libdir=$(dirname "$(find "$work/prefix" -name espalier.pc)")
flags=$(PKG_CONFIG_PATH="$libdir" pkg-config --cflags --libs espalier)
case "$flags" in
  *"$work/prefix"*) ;;
  *) echo "espalier.pc: $flags is not below $work/prefix" >&2; exit 1 ;;
esac
# shellcheck disable=SC2086
"$cxx" -std=c++20 -fno-exceptions "$source_dir/tests/consumer/main.cc" -o \
  "$work/consumer_pc" $flags -Wl,-rpath,"$(dirname "$libdir")"
"$work/consumer_pc"

library=$(find "$work/prefix" -name 'libespalier.so.*.*.*')
strip -o "$work/stripped.so" "$library"
bytes=$(stat -c %s "$work/stripped.so")
echo "shared library, stripped: $bytes bytes"
[ "$bytes" -lt 15000000 ]
