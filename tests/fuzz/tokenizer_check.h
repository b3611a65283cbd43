#ifndef ESPALIER_TESTS_FUZZ_TOKENIZER_CHECK_H_
#define ESPALIER_TESTS_FUZZ_TOKENIZER_CHECK_H_

#include "absl/strings/string_view.h"

namespace espalier::fuzz {

// Loads a tokenizer and, if that works, uses it on the text, plain and
// repeated, in every way there is. `config`: of tokenizer_config.json. Returns
// whether it could be loaded.
bool CheckTokenizer(absl::string_view vocabulary, absl::string_view config,
                    absl::string_view family, absl::string_view text);

}  // namespace espalier::fuzz

#endif  // ESPALIER_TESTS_FUZZ_TOKENIZER_CHECK_H_
