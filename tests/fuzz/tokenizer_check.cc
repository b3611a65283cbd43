#include "espalier/tests/fuzz/tokenizer_check.h"

#include <cstdint>
#include <vector>

#include "espalier/io/tokenizer.h"
#include "espalier/tests/fuzz/fuzz_input.h"

namespace espalier::fuzz {

namespace {

constexpr size_t kLongBytes = size_t{16} << 10;

// `step`: 1 tries every set of options, 7 the first and the last.
void EncodeAndDecode(const Tokenizer& tokenizer, absl::string_view text,
                     int step) {
  for (int bits = 0; bits < 8; bits += step) {
    EncodeOptions options;
    options.add_special_tokens = (bits & 1) != 0;
    options.match_special_tokens = (bits & 2) != 0;
    options.drop_unknown = (bits & 4) != 0;
    const auto ids = tokenizer.Encode(text, options);
    if (!ids.ok()) continue;
    for (const int32_t id : *ids) {
      Require(id >= 0 && id < tokenizer.vocab_size(), "an id is in the range");
    }
    (void)tokenizer.Decode(*ids, /*skip_special_tokens=*/(bits & 1) != 0);
  }
}

}  // namespace

bool CheckTokenizer(absl::string_view vocabulary, absl::string_view config,
                    absl::string_view family, absl::string_view text) {
  const auto loaded = ParseTokenizer(vocabulary, config, "fuzz", family);
  if (!loaded.ok()) return false;
  const Tokenizer& tokenizer = **loaded;
  EncodeAndDecode(tokenizer, text, 1);
  EncodeAndDecode(tokenizer, Repeated(text, kLongBytes), 7);
  EncodeAndDecode(tokenizer, " a\n\n  B1234 caf\xc3\xa9 \xe4\xb8\x96 <s>", 1);
  std::vector<int32_t> ids = {-1, INT32_MAX, INT32_MIN};
  const int32_t size = tokenizer.vocab_size();
  for (int32_t id = 0; id < size && id < 300; ++id) {
    ids.push_back(id);
    ids.push_back(size - 1 - id);
    (void)tokenizer.IsSpecial(id);
    (void)tokenizer.IdOf(tokenizer.TokenOf(id));
  }
  (void)tokenizer.Decode(ids, true);
  (void)tokenizer.TokenOf(size);
  (void)tokenizer.TokenOf(-1);
  (void)tokenizer.added_tokens();
  return true;
}

}  // namespace espalier::fuzz
