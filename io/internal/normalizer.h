#ifndef ESPALIER_IO_INTERNAL_NORMALIZER_H_
#define ESPALIER_IO_INTERNAL_NORMALIZER_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "espalier/io/internal/tokenizer_limits.h"
#include "espalier/io/json_object.h"

namespace espalier::internal {

// The "normalizer" of a tokenizer.json: what is done to text between added
// tokens before it is split. Knows Sequence, Prepend, Replace of a string, and
// NFC; UNIMPLEMENTED names the others. Thread-safe once loaded.
class Normalizer {
 public:
  // `tokenizer` is the whole file's object.
  static absl::StatusOr<Normalizer> Load(const JsonObject& tokenizer);

  bool empty() const { return steps_.empty(); }
  // Valid UTF-8 to valid UTF-8: `text` itself, or what was made in *storage.
  absl::string_view Apply(absl::string_view text, std::string* storage) const;

 private:
  enum class Kind { kPrepend, kReplace, kNfc };
  struct Step {
    Kind kind = Kind::kPrepend;
    std::string pattern;
    std::string content;
  };

  absl::Status Add(const JsonObject& json);

  StepLimits limits_;
  std::vector<Step> steps_;
};

// "Prepend", for messages and dispatch.
absl::StatusOr<std::string> TypeOf(const JsonObject& json);

// UNIMPLEMENTED: "tokenizer.json: normalizer.type is NFKC, which is not
// supported".
absl::Status UnsupportedType(const JsonObject& json);

// UNIMPLEMENTED where an object holds keys that were not read.
absl::Status CheckAllRead(const JsonObject& json);

// The pattern of a Replace or Split that is a plain string.
absl::Status GetStringPattern(const JsonObject& json, std::string* pattern);

// Every occurrence of `from`, which is not empty, from left to right.
std::string ReplaceEvery(absl::string_view text, absl::string_view from,
                         absl::string_view to);

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_NORMALIZER_H_
