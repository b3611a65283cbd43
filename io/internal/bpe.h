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

#include "espalier/io/json_object.h"

namespace espalier::internal {

// Byte-pair encoding as the BPE model of Hugging Face's tokenizers has it
// (huggingface/tokenizers, models/bpe): a word begins as its characters and
// the pair of lowest rank, leftmost first, is merged until none is left.
// Takes O(n log n) for a word of n characters. Thread-safe once loaded.
class Bpe {
 public:
  // Of the "model" object of a tokenizer.json. With `byte_level`, words are
  // raw bytes and the vocabulary is spelled in GPT-2's stand-ins. Fails with
  // the name of what is wrong or not supported (dropout, prefixes, ...).
  static absl::StatusOr<Bpe> Load(const JsonObject& model, bool byte_level);
  Bpe(Bpe&&) = default;
  Bpe& operator=(Bpe&&) = default;

  // Appends the ids of one word. A character without a token, where the model
  // has no unknown token either, is left out with `drop_unknown`, and else
  // fails INVALID_ARGUMENT.
  absl::Status Encode(absl::string_view word, bool drop_unknown,
                      std::vector<int32_t>* ids) const;

  // -1 when there is none.
  int32_t IdOf(absl::string_view token) const;
  // As the file spells it; empty for an id without a token.
  absl::string_view TokenOf(int32_t id) const;
  // One above the highest id.
  int32_t size() const { return static_cast<int32_t>(tokens_.size()); }

 private:
  struct Merge {
    int32_t rank = 0;
    int32_t id = 0;
  };
  // A stretch of the word that is one token; merged ones are skipped.
  struct Symbol {
    int32_t id = 0;
    int32_t previous = -1;
    int32_t next = -1;
    bool merged = false;
  };
  using Symbols = std::vector<Symbol>;

  Bpe() = default;
  absl::Status LoadVocabulary(const JsonObject& model);
  absl::Status LoadMerges(const JsonObject& model);
  absl::Status AddMerge(const JsonValue& item, int32_t rank);
  void FillCharTables();
  absl::Status Split(absl::string_view word, bool drop_unknown,
                     Symbols* symbols) const;
  absl::Status AddUnknown(absl::string_view character, bool drop_unknown,
                          int32_t* pending, Symbols* symbols) const;
  const Merge* FindMerge(const Symbols& symbols, int32_t left) const;
  void MergeShort(Symbols* symbols) const;
  void MergeLong(Symbols* symbols) const;
  static void Join(Symbols* symbols, int32_t left, int32_t id);

  bool byte_level_ = false;
  bool byte_fallback_ = false;
  bool fuse_unknown_ = false;
  bool ignore_merges_ = false;
  int32_t unknown_id_ = -1;
  std::vector<std::string> tokens_;                      // by id
  absl::flat_hash_map<absl::string_view, int32_t> ids_;  // of tokens_
  absl::flat_hash_map<uint64_t, Merge> merges_;  // by left << 32 | right
  std::array<int32_t, 256> byte_ids_{};          // byte_level: of its stand-in;
                                                 // byte_fallback: of <0xXX>
  std::array<int32_t, 128> ascii_ids_{};
};

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_BPE_H_
