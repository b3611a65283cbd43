// Input: an espalier-shards.json. What is read is also written and read again.

#include "espalier/io/internal/shard_layout.h"
#include "espalier/tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using espalier::fuzz::Require;
  static const espalier::fuzz::ScratchFolder folder;
  folder.Write(espalier::internal::kShardsName,
               espalier::fuzz::Text(data, size));
  const auto layout = espalier::internal::ReadLayout(folder.path());
  if (!layout.ok()) return 0;
  const auto text = espalier::internal::WriteLayout(*layout);
  Require(text.ok(), "what was read can be written");
  folder.Write(espalier::internal::kShardsName, *text);
  const auto again = espalier::internal::ReadLayout(folder.path());
  Require(again.ok(), "what was written can be read");
  const auto second = espalier::internal::WriteLayout(*again);
  Require(second.ok() && *second == *text, "written twice, the same");
  return 0;
}
