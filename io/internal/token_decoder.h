#ifndef ESPALIER_IO_INTERNAL_TOKEN_DECODER_H_
#define ESPALIER_IO_INTERNAL_TOKEN_DECODER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "espalier/io/internal/tokenizer_limits.h"
#include "espalier/io/json_object.h"

namespace espalier::internal {

// The "decoder" of a tokenizer.json: tokens back to text. Knows Sequence,
// ByteLevel, Replace of a string, ByteFallback, Fuse, Strip and Metaspace;
// UNIMPLEMENTED names the others. Thread-safe once loaded.
class TokenDecoder {
 public:
  // `tokenizer` is the whole file's object.
  static absl::StatusOr<TokenDecoder> Load(const JsonObject& tokenizer);

  // Bytes that are not UTF-8 become U+FFFD. Without a decoder, tokens are
  // joined by spaces.
  std::string Decode(std::vector<std::string> tokens) const;

 private:
  enum class Kind {
    kByteLevel,
    kReplace,
    kByteFallback,
    kFuse,
    kStrip,
    kMetaspace
  };
  struct Step {
    Kind kind = Kind::kFuse;
    std::string pattern;  // Replace, Metaspace; Strip: the character
    std::string content;
    int start = 0;  // Strip: how many at most; Metaspace: 1 when the first
                    // token's spaces go
    int stop = 0;
  };

  absl::Status Add(const JsonObject& json);

  StepLimits limits_;
  std::vector<Step> steps_;
};

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_TOKEN_DECODER_H_
