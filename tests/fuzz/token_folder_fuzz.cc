// Input: a tokens.json; behind a NUL the JSON of a shard's header; behind
// another NUL its data.

#include <algorithm>

#include "espalier/io/token_folder.h"
#include "espalier/tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const espalier::fuzz::ScratchFolder folder;
  const auto [manifest, shard] =
      espalier::fuzz::SplitAtNul(espalier::fuzz::Text(data, size));
  const auto [header, bytes] = espalier::fuzz::SplitAtNul(shard);
  folder.Write("tokens.json", manifest);
  folder.Write("a", espalier::fuzz::SafetensorsBytes(header, bytes));
  espalier::TokenFolderInfo info;
  const auto source = espalier::OpenTokenFolder(folder.path(), &info);
  if (!source.ok()) return 0;
  espalier::fuzz::Require((*source)->size() == info.num_samples,
                          "as many samples as the manifest says");
  for (int64_t i = 0; i < std::min<int64_t>(info.num_samples, 100); ++i) {
    const auto sample = (*source)->Get(i);
    if (!sample.ok()) continue;
    espalier::fuzz::Require(sample->ids.size() == sample->weights.size(),
                            "a weight for every token");
  }
  return 0;
}
