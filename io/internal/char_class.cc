#include "espalier/io/internal/char_class.h"

#include "espalier/io/internal/unicode_char_runs.h"

namespace espalier::internal {

namespace {

constexpr CharTables MakeTables() {
  CharTables tables;
  size_t at = 0;
  for (size_t i = 0; i < sizeof(kCharBlockRuns); i += 2) {
    for (int n = kCharBlockRuns[i]; n >= 0; --n) {
      tables.block[at++] = kCharBlockRuns[i + 1];
    }
  }
  at = 0;
  for (size_t i = 0; i < sizeof(kCharValueRuns); i += 2) {
    for (int n = kCharValueRuns[i]; n >= 0; --n) {
      tables.value[at++] = kCharValueRuns[i + 1];
    }
  }
  return tables;
}

}  // namespace

static_assert(kNumCharBlocks <= 256);
constinit const CharTables kCharTables = MakeTables();

}  // namespace espalier::internal
