// Input: a llama2.c checkpoint; also read as two bytes, the size of the
// vocabulary, and a tokenizer.bin. A tokenizer that is converted can be loaded.

#include "espalier/io/llama2c_convert.h"
#include "espalier/tests/fuzz/fuzz_input.h"
#include "espalier/tests/fuzz/tokenizer_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::Span<const uint8_t> bytes(data, size);
  (void)espalier::ParseLlama2cConfig(bytes);
  if (size < 2) return 0;
  const auto json = espalier::ConvertLlama2cTokenizer(
      bytes.subspan(2), data[0] | int64_t{data[1]} << 8, "tokenizer.bin");
  if (!json.ok()) return 0;
  espalier::fuzz::Require(espalier::fuzz::CheckTokenizer(*json, "", "", "a b"),
                          "a converted tokenizer can be loaded");
  return 0;
}
