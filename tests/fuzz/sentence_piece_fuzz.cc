// Input: a SentencePiece model.

#include "espalier/tests/fuzz/fuzz_input.h"
#include "espalier/tests/fuzz/tokenizer_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view model = espalier::fuzz::Text(data, size);
  if (model.find('{') < 4) return 0;  // the business of tokenizer_json
  espalier::fuzz::CheckTokenizer(model, "", "",
                                 "\xe2\x96\x81the\xef\xac\x81 e\xcc\x81 <s>");
  return 0;
}
