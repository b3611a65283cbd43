#ifndef ESPALIER_IO_TEXT_DATA_H_
#define ESPALIER_IO_TEXT_DATA_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "espalier/io/tokenizer.h"

namespace espalier {

struct TextFileOptions {
  enum class Format {
    kAuto,   // kJsonl for names that end in ".jsonl", else kPlain
    kPlain,  // UTF-8 text
    kJsonl,  // one JSON object a line; its string "text" is a document
  };
  // What separates the documents of plain text.
  enum class Boundary {
    kBlankLine,  // lines that are empty or white space
    kSeparator,  // lines equal to `separator`
    kNone,       // the file is one document
  };

  Format format = Format::kAuto;
  Boundary boundary = Boundary::kBlankLine;
  std::string separator;  // kSeparator; not empty
  bool add_bos = true;    // in front of a document, if the tokenizer has one
  bool add_eos = true;    // behind it
  // Malformed lines of a JSONL file are counted instead of failing.
  bool skip_bad_lines = false;
};

// Tokens of documents, one behind another.
struct TokenDocuments {
  std::vector<int32_t> tokens;
  std::vector<int64_t> offsets = {0};  // where they begin, and the end

  int64_t size() const { return static_cast<int64_t>(offsets.size()) - 1; }
  absl::Span<const int32_t> operator[](int64_t index) const {
    const size_t i = static_cast<size_t>(index);
    return absl::MakeConstSpan(tokens).subspan(
        static_cast<size_t>(offsets[i]),
        static_cast<size_t>(offsets[i + 1] - offsets[i]));
  }
  void Add(absl::Span<const int32_t> document);
};

struct TextFileReport {
  int64_t num_lines = 0;
  int64_t num_documents = 0;
  int64_t num_empty = 0;       // documents without text, left out
  int64_t num_bad_lines = 0;   // skip_bad_lines
  std::string first_bad_line;  // why, with its place
};

// Reads and encodes the documents of a file. Lines end at "\n" alone; a "\r"
// before it and a byte order mark at the start are taken away. Control tokens
// in the text stay text. Fails INVALID_ARGUMENT with "PATH:LINE: " in front
// (bad UTF-8, bad JSON, a missing "text"), or when there is no document.
absl::StatusOr<TokenDocuments> ReadTokenDocuments(
    const std::string& path, const Tokenizer& tokenizer,
    const TextFileOptions& options, TextFileReport* report = nullptr);

struct HeldOutSplit {
  TokenDocuments train;
  TokenDocuments held_out;
};

// Takes round(fraction * size) documents, but at least one and not all, drawn
// by `seed`; both parts keep the order of the file. A single document gives
// its last tokens instead. fraction 0 holds out nothing. Fails
// INVALID_ARGUMENT outside [0, 1) and when there is too little to split.
absl::StatusOr<HeldOutSplit> SplitHeldOut(const TokenDocuments& documents,
                                          double fraction, uint64_t seed);

// A stretch of one document that is trained on as a sequence of its own.
struct TokenSample {
  int64_t begin = 0;  // in TokenDocuments::tokens
  int64_t end = 0;
  int64_t document_end = 0;

  int64_t size() const { return end - begin; }
};

// Cuts documents into stretches of at most max_tokens, in order; no token is
// lost, and each stretch but a document's last has max_tokens. max_tokens >= 1.
std::vector<TokenSample> CutSamples(const TokenDocuments& documents,
                                    int64_t max_tokens);

// The order of the samples in one epoch: a permutation that depends on (seed,
// epoch, num_samples) alone.
std::vector<int64_t> ShuffledOrder(int64_t num_samples, uint64_t seed,
                                   uint64_t epoch);

// Samples that share a batch.
struct SamplePack {
  std::vector<int64_t> samples;
  int64_t num_tokens = 0;
};

// Fills packs of at most budget_tokens in the given order: a sample goes into
// the open pack, or, when it does not fit there, begins the next one. Fails
// INVALID_ARGUMENT for a sample longer than the budget.
absl::StatusOr<std::vector<SamplePack>> PackSamples(
    absl::Span<const TokenSample> samples, absl::Span<const int64_t> order,
    int64_t budget_tokens);

inline constexpr int32_t kIgnoreLabel = -100;

// Samples one behind another, as sequence-mixing ops take them.
struct TokenBatch {
  std::vector<int32_t> ids;         // [T]
  std::vector<int32_t> labels;      // [T], the next token of the document;
                                    // kIgnoreLabel at a document's last
  std::vector<float> weights;       // [T] of the labels; empty: all 1
  std::vector<int32_t> positions;   // [T], from 0 in each sample
  std::vector<int32_t> cu_seqlens;  // [samples + 1], from 0 to T
};

// A sample that stops inside its document still knows the next token: cutting
// costs context, not targets.
TokenBatch MakeTokenBatch(const TokenDocuments& documents,
                          absl::Span<const TokenSample> samples,
                          const SamplePack& pack);

}  // namespace espalier

#endif  // ESPALIER_IO_TEXT_DATA_H_
