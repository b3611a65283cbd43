#ifndef ESPALIER_IO_SAMPLE_H_
#define ESPALIER_IO_SAMPLE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "espalier/io/example.h"
#include "espalier/io/record_file.h"
#include "espalier/io/tokenizer.h"

namespace espalier {

// Who says a token: for people who look at the data, not for training.
enum class TokenRole : uint8_t {
  kText,
  kPrompt,
  kCompletion,
  kSystem,
  kUser,
  kAssistant,
  kTool,
  kControl,  // the template's, or a token that begins or ends a document
};
absl::string_view ToString(TokenRole role);  // "text", "prompt", ...

// One training example as tokens.
struct EncodedSample {
  std::vector<int32_t> ids;
  // weights[i]: of the loss of predicting ids[i] from what stands before it; 0
  // is not trained. weights[0] predicts from nothing and has no effect.
  std::vector<float> weights;
  std::vector<TokenRole> roles;  // of each token, or empty
  // Of the record's bytes: equal records hash equally wherever they stand.
  uint64_t content_hash = 0;
};

// Turns examples into tokens. Thread-safe.
class SampleEncoder {
 public:
  virtual ~SampleEncoder() = default;
  virtual absl::StatusOr<EncodedSample> Encode(
      const Example& example) const = 0;
};

struct PlainEncoderOptions {
  bool add_bos = true;  // in front, if the tokenizer has one
  bool add_eos = true;  // behind
  // Whether the prompt of prompt and completion is trained on too.
  bool train_prompt = false;
};

// Text is trained on whole. Prompt and completion are encoded apart, so that no
// token crosses from one into the other, and the completion and the token
// behind it are trained on. Control tokens spelled in the data stay text. Chat
// examples fail UNIMPLEMENTED; an empty text is no token. `tokenizer` outlives
// the encoder.
std::unique_ptr<SampleEncoder> MakePlainEncoder(
    const Tokenizer& tokenizer, const PlainEncoderOptions& options);

// Samples by number. Thread-safe.
class SampleSource {
 public:
  virtual ~SampleSource() = default;
  virtual int64_t size() const = 0;
  // 0 <= index < size(). INVALID_ARGUMENT is a fault of this record alone;
  // every other failure is one of the whole source.
  virtual absl::StatusOr<EncodedSample> Get(int64_t index) const = 0;
  // The content_hash of a sample, without encoding it.
  virtual absl::StatusOr<uint64_t> Hash(int64_t index) const = 0;
  // What the source is, for messages and for telling whether it is the same:
  // its name, size and bytes.
  virtual std::string Describe() const = 0;
  // Where a sample stands, for messages: "FILE:LINE".
  virtual std::string Place(int64_t index) const = 0;
};

struct RecordSourceOptions {
  RecordFileOptions file;
  ExampleFields fields;
};

// The records of one data file. `encoder` outlives the source.
absl::StatusOr<std::unique_ptr<SampleSource>> OpenRecordSource(
    const std::string& path, const RecordSourceOptions& options,
    const SampleEncoder& encoder);
absl::StatusOr<std::unique_ptr<SampleSource>> OpenRecordSource(
    const Folder& folder, const std::string& name,
    const RecordSourceOptions& options, const SampleEncoder& encoder);

}  // namespace espalier

#endif  // ESPALIER_IO_SAMPLE_H_
