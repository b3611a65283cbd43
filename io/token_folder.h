#ifndef ESPALIER_IO_TOKEN_FOLDER_H_
#define ESPALIER_IO_TOKEN_FOLDER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "espalier/io/atomic_directory.h"
#include "espalier/io/folder.h"
#include "espalier/io/sample.h"

namespace espalier {

// Samples as tokens in a folder (docs/formats/tokens.md): written once and
// read by position, so that a run tokenises nothing.

// Writes a folder. No more than one shard is in memory. Thread-compatible.
class TokenFolderWriter {
 public:
  // A shard is closed with the sample that brings it to this many tokens.
  static constexpr int64_t kShardTokens = int64_t{8} << 20;

  // `tokenizer` tells whose tokens these are: a text that is kept and compared,
  // such as a hash of the tokenizer's files. Fails ALREADY_EXISTS.
  static absl::StatusOr<TokenFolderWriter> Create(
      const std::string& dir, std::string tokenizer, int32_t vocab_size,
      int64_t shard_tokens = kShardTokens);

  // Fails INVALID_ARGUMENT on an id outside [0, vocab_size), a weight that is
  // negative or not finite, and weights that are not one for each token.
  absl::Status Add(const EncodedSample& sample);
  // The folder appears whole.
  absl::Status Finish();

  int64_t num_samples() const { return num_samples_; }
  int64_t num_tokens() const { return num_tokens_; }

 private:
  struct Shard {
    std::string file;
    int64_t num_samples = 0;
    int64_t num_tokens = 0;
  };

  TokenFolderWriter(AtomicDirectory dir, std::string tokenizer,
                    int32_t vocab_size, int64_t shard_tokens);
  absl::Status CloseShard();

  AtomicDirectory dir_;
  std::string tokenizer_;
  int32_t vocab_size_;
  int64_t shard_tokens_;
  std::vector<int32_t> ids_;
  std::vector<float> weights_;
  std::vector<int64_t> offsets_ = {0};
  std::vector<uint64_t> hashes_;
  std::vector<Shard> shards_;
  int64_t num_samples_ = 0;
  int64_t num_tokens_ = 0;
};

struct TokenFolderInfo {
  std::string tokenizer;
  int32_t vocab_size = 0;
  int64_t num_samples = 0;
  int64_t num_tokens = 0;
};

// Whether there is such a folder.
bool IsTokenFolder(const std::string& dir);
bool IsTokenFolder(const Folder& folder);

// Opens a folder that TokenFolderWriter wrote; only headers and positions are
// read. Fails INVALID_ARGUMENT, naming file and tensor, where the folder is not
// what its format says; ids are checked when a sample is read.
absl::StatusOr<std::unique_ptr<SampleSource>> OpenTokenFolder(
    const std::string& dir, TokenFolderInfo* info = nullptr);
// One that need not be local: samples are read when they are asked for.
absl::StatusOr<std::unique_ptr<SampleSource>> OpenTokenFolder(
    const std::shared_ptr<const Folder>& folder,
    TokenFolderInfo* info = nullptr);

}  // namespace espalier

#endif  // ESPALIER_IO_TOKEN_FOLDER_H_
