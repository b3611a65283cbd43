// Input: a tokenizer.json; behind a NUL a text to encode.

#include "espalier/tests/fuzz/fuzz_input.h"
#include "espalier/tests/fuzz/tokenizer_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto [json, text] =
      espalier::fuzz::SplitAtNul(espalier::fuzz::Text(data, size));
  // Anything else would be the business of another target.
  if (json.find('{') > 4) return 0;
  espalier::fuzz::CheckTokenizer(json, "", "", text);
  return 0;
}
