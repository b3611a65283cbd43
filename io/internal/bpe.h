#ifndef ESPALIER_IO_INTERNAL_BPE_H_
#define ESPALIER_IO_INTERNAL_BPE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "espalier/io/internal/pair_table.h"
#include "espalier/io/internal/word_cache.h"
#include "espalier/io/json_object.h"

namespace espalier::internal {

// What one thread's Encode calls of one Bpe keep between them.
struct BpeScratch {
  WordCache cache;
  std::vector<int32_t> symbols;
  // Merging a long stretch: neighbours and the merge with the next one.
  std::vector<int32_t> previous;
  std::vector<int32_t> next;
  std::vector<MergeValue> merges;
  std::vector<uint64_t> queue;
  // Of all calls: how often a merge was looked at, for tests of complexity.
  int64_t num_steps = 0;

  // Frees working memory beyond that of a stretch of `symbols_kept`.
  void TrimTo(size_t symbols_kept);
};

// Byte-pair encoding as the BPE model of Hugging Face's tokenizers has it
// (huggingface/tokenizers, models/bpe): a word begins as its characters and
// the pair of lowest rank, leftmost first, is merged until none is left.
// Stretches that no merge can join are encoded by themselves. Takes
// O(n log n) for a word of n characters. Thread-safe once loaded.
class Bpe {
 public:
  // Of the "model" object of a tokenizer.json. With `byte_level`, words are
  // raw bytes and the vocabulary is spelled in GPT-2's stand-ins. Fails with
  // the name of what is wrong or not supported (dropout, prefixes, ...).
  static absl::StatusOr<Bpe> Load(const JsonObject& model, bool byte_level);
  // Of a tiktoken vocabulary: tokens of raw bytes by rank, which is the id.
  // Any two neighbours that make a token merge, and a word that is a token
  // stays whole. Fails INVALID_ARGUMENT, with the number of the token, where
  // one is empty or stands twice, or a byte has none.
  static absl::StatusOr<Bpe> FromRanks(const std::vector<std::string>& tokens,
                                       const std::string& where);
  Bpe(Bpe&&) = default;
  Bpe& operator=(Bpe&&) = default;

  // Appends the ids of one word. A character without a token, where the model
  // has no unknown token either, is left out with `drop_unknown`, and else
  // fails INVALID_ARGUMENT.
  absl::Status Encode(absl::string_view word, bool drop_unknown,
                      BpeScratch* scratch, std::vector<int32_t>* ids) const;

  // -1 when there is none.
  int32_t IdOf(absl::string_view token) const;
  // As the file spells it; empty for an id without a token.
  absl::string_view TokenOf(int32_t id) const;
  // One above the highest id.
  int32_t size() const { return static_cast<int32_t>(tokens_.size()); }

 private:
  // A word on its way through Encode.
  struct Work;

  Bpe() = default;
  absl::Status LoadVocabulary(const JsonObject& model);
  absl::Status LoadMerges(const JsonObject& model);
  absl::Status AddMerge(const JsonValue& item, int32_t rank);
  absl::Status LoadRanks(const std::vector<std::string>& tokens,
                         const std::string& where);
  void InsertMerge(int32_t left, int32_t right, int32_t rank, int32_t id);
  void FillCharTables();
  // The symbol that a token which is not one itself begins or ends with; -1
  // when no word begins so.
  int32_t EndSymbol(absl::string_view token, bool first) const;
  size_t JoinBit(int32_t left, int32_t right) const;
  bool MayJoin(int32_t left, int32_t right) const {
    const size_t bit = JoinBit(left, right);
    return (joins_[bit / 64] >> (bit % 64) & 1) != 0;
  }

  absl::Status EncodeWord(Work* work) const;
  void AddSymbol(int32_t symbol, size_t at, Work* work) const;
  absl::Status AddUnknown(size_t at, size_t bytes, Work* work) const;
  void Flush(size_t end, Work* work) const;
  void Merge(BpeScratch* scratch, std::vector<int32_t>* ids) const;
  void MergeShort(BpeScratch* scratch, std::vector<int32_t>* ids) const;
  void MergeLong(BpeScratch* scratch, std::vector<int32_t>* ids) const;

  bool byte_level_ = false;
  bool byte_fallback_ = false;
  bool fuse_unknown_ = false;
  bool ignore_merges_ = false;
  int32_t unknown_id_ = -1;
  std::vector<std::string> tokens_;                      // by id
  absl::flat_hash_map<absl::string_view, int32_t> ids_;  // of tokens_
  // ignore_merges: ids by the bytes that tokens stand for.
  absl::flat_hash_map<std::string, int32_t> whole_words_;
  PairTable merges_;
  static constexpr int kLogJoinBits = 18;
  // Bits by JoinBit: pairs of symbols that some merge may join.
  std::vector<uint64_t> joins_ =
      std::vector<uint64_t>((size_t{1} << kLogJoinBits) / 64);
  std::array<int32_t, 256> byte_ids_{};  // byte_level: of its stand-in;
                                         // byte_fallback: of <0xXX>
  std::array<int32_t, 128> ascii_ids_{};
};

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_BPE_H_
