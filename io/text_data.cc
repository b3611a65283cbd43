#include "espalier/io/text_data.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "espalier/io/internal/utf8.h"
#include "espalier/io/json_object.h"
#include "espalier/runtime/check.h"
#include "espalier/runtime/file_map.h"
#include "espalier/runtime/rng.h"

namespace espalier {

namespace {

constexpr absl::string_view kByteOrderMark = "\xEF\xBB\xBF";

// Streams of the random numbers of one seed.
constexpr uint64_t kHeldOutStream = ~uint64_t{0};

class DocumentReader {
 public:
  DocumentReader(const std::string& path, const Tokenizer& tokenizer,
                 const TextFileOptions& options, TextFileReport* report)
      : path_(path),
        tokenizer_(tokenizer),
        options_(options),
        report_(*report),
        jsonl_(options.format == TextFileOptions::Format::kJsonl ||
               (options.format == TextFileOptions::Format::kAuto &&
                absl::EndsWith(path, ".jsonl"))) {}

  absl::StatusOr<TokenDocuments> Read(absl::string_view text) {
    if (absl::StartsWith(text, kByteOrderMark)) {
      text.remove_prefix(kByteOrderMark.size());
    }
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      absl::string_view line = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      if (absl::EndsWith(line, "\r")) line.remove_suffix(1);
      ++report_.num_lines;
      absl::Status status = jsonl_ ? JsonLine(line) : PlainLine(line);
      if (!status.ok()) return status;
    }
    if (absl::Status status = FlushPlain(); !status.ok()) return status;
    report_.num_documents = documents_.size();
    if (documents_.size() == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          path_, ": no document in ", report_.num_lines, " lines"));
    }
    return std::move(documents_);
  }

 private:
  std::string Place(int64_t line) const {
    return absl::StrCat(path_, ":", line);
  }

  absl::Status JsonLine(absl::string_view line) {
    if (absl::StripAsciiWhitespace(line).empty()) return absl::OkStatus();
    const std::string place = Place(report_.num_lines);
    std::string text;
    const absl::StatusOr<JsonObject> json = JsonObject::Parse(line, place);
    absl::Status status = json.status();
    if (status.ok()) status = json->Get("text", &text);
    if (!status.ok()) {
      if (!options_.skip_bad_lines) return status;
      if (report_.num_bad_lines++ == 0) {
        report_.first_bad_line = std::string(status.message());
      }
      return absl::OkStatus();
    }
    return AddDocument(text, report_.num_lines);
  }

  absl::Status PlainLine(absl::string_view line) {
    // The tokenizer would find this later, without the line.
    if (!internal::IsValidUtf8(line)) {
      return absl::InvalidArgumentError(
          absl::StrCat(Place(report_.num_lines), ": not UTF-8"));
    }
    using Boundary = TextFileOptions::Boundary;
    if (options_.boundary == Boundary::kBlankLine &&
        absl::StripAsciiWhitespace(line).empty()) {
      return FlushPlain();
    }
    if (options_.boundary == Boundary::kSeparator &&
        line == options_.separator) {
      return FlushPlain();
    }
    if (!has_lines_) first_line_ = report_.num_lines;
    if (has_lines_) plain_ += '\n';
    has_lines_ = true;
    absl::StrAppend(&plain_, line);
    return absl::OkStatus();
  }

  absl::Status FlushPlain() {
    if (!has_lines_) return absl::OkStatus();
    has_lines_ = false;
    absl::Status status = AddDocument(plain_, first_line_);
    plain_.clear();
    return status;
  }

  absl::Status AddDocument(absl::string_view text, int64_t line) {
    if (text.empty()) {
      ++report_.num_empty;
      return absl::OkStatus();
    }
    const absl::StatusOr<std::vector<int32_t>> ids = tokenizer_.Encode(text);
    if (!ids.ok()) {
      return absl::Status(
          ids.status().code(),
          absl::StrCat(Place(line), ": ", ids.status().message()));
    }
    std::vector<int32_t> document;
    document.reserve(ids->size() + 2);
    if (options_.add_bos && tokenizer_.bos_id()) {
      document.push_back(*tokenizer_.bos_id());
    }
    document.insert(document.end(), ids->begin(), ids->end());
    if (options_.add_eos && tokenizer_.eos_id()) {
      document.push_back(*tokenizer_.eos_id());
    }
    documents_.Add(document);
    return absl::OkStatus();
  }

  const std::string& path_;
  const Tokenizer& tokenizer_;
  const TextFileOptions& options_;
  TextFileReport& report_;
  const bool jsonl_;
  TokenDocuments documents_;
  std::string plain_;  // lines of the document being read
  bool has_lines_ = false;
  int64_t first_line_ = 0;
};

HeldOutSplit SplitTokens(const TokenDocuments& documents, int64_t held_out) {
  const absl::Span<const int32_t> all = documents[0];
  const size_t kept = all.size() - static_cast<size_t>(held_out);
  HeldOutSplit split;
  split.train.Add(all.subspan(0, kept));
  split.held_out.Add(all.subspan(kept));
  return split;
}

}  // namespace

void TokenDocuments::Add(absl::Span<const int32_t> document) {
  tokens.insert(tokens.end(), document.begin(), document.end());
  offsets.push_back(static_cast<int64_t>(tokens.size()));
}

absl::StatusOr<TokenDocuments> ReadTokenDocuments(
    const std::string& path, const Tokenizer& tokenizer,
    const TextFileOptions& options, TextFileReport* report) {
  if (options.boundary == TextFileOptions::Boundary::kSeparator &&
      options.separator.empty()) {
    return absl::InvalidArgumentError("the document separator is empty");
  }
  const absl::StatusOr<std::shared_ptr<FileMap>> map = FileMap::Open(path);
  if (!map.ok()) return map.status();
  TextFileReport unwanted;
  if (report == nullptr) report = &unwanted;
  *report = TextFileReport();
  const absl::Span<const uint8_t> bytes = (*map)->bytes();
  return DocumentReader(path, tokenizer, options, report)
      .Read(absl::string_view(reinterpret_cast<const char*>(bytes.data()),
                              bytes.size()));
}

absl::StatusOr<HeldOutSplit> SplitHeldOut(const TokenDocuments& documents,
                                          double fraction, uint64_t seed) {
  if (!(fraction >= 0 && fraction < 1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "held-out fraction is ", fraction, ", expected 0 <= fraction < 1"));
  }
  if (fraction == 0) return HeldOutSplit{documents, {}};
  const bool by_token = documents.size() == 1;
  const int64_t total = by_token ? static_cast<int64_t>(documents.tokens.size())
                                 : documents.size();
  if (total < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot hold out a part of ", documents.size(),
                     " documents with ", documents.tokens.size(), " tokens"));
  }
  const int64_t held_out = std::clamp<int64_t>(
      std::llround(fraction * static_cast<double>(total)), 1, total - 1);
  if (by_token) return SplitTokens(documents, held_out);
  std::vector<int64_t> chosen =
      RandomPermutation(Rng{seed, kHeldOutStream}, total);
  chosen.resize(static_cast<size_t>(held_out));
  std::vector<bool> is_held_out(static_cast<size_t>(total), false);
  for (const int64_t i : chosen) is_held_out[static_cast<size_t>(i)] = true;
  HeldOutSplit split;
  for (int64_t i = 0; i < total; ++i) {
    (is_held_out[static_cast<size_t>(i)] ? split.held_out : split.train)
        .Add(documents[i]);
  }
  return split;
}

std::vector<TokenSample> CutSamples(const TokenDocuments& documents,
                                    int64_t max_tokens) {
  ESPALIER_CHECK(max_tokens >= 1, "max_tokens is ", max_tokens);
  std::vector<TokenSample> samples;
  for (int64_t i = 0; i < documents.size(); ++i) {
    const int64_t document_end = documents.offsets[static_cast<size_t>(i) + 1];
    int64_t begin = documents.offsets[static_cast<size_t>(i)];
    while (begin < document_end) {
      const int64_t size = std::min(max_tokens, document_end - begin);
      samples.push_back({begin, begin + size, document_end});
      begin += size;
    }
  }
  return samples;
}

std::vector<int64_t> ShuffledOrder(int64_t num_samples, uint64_t seed,
                                   uint64_t epoch) {
  return RandomPermutation(Rng{seed, epoch}, num_samples);
}

absl::StatusOr<std::vector<SamplePack>> PackSamples(
    absl::Span<const TokenSample> samples, absl::Span<const int64_t> order,
    int64_t budget_tokens) {
  std::vector<SamplePack> packs;
  for (const int64_t index : order) {
    const int64_t size = samples[static_cast<size_t>(index)].size();
    if (size > budget_tokens) {
      return absl::InvalidArgumentError(
          absl::StrCat("sample ", index, " has ", size,
                       " tokens, the budget of a batch is ", budget_tokens));
    }
    if (packs.empty() || packs.back().num_tokens > budget_tokens - size) {
      packs.emplace_back();
    }
    packs.back().samples.push_back(index);
    packs.back().num_tokens += size;
  }
  return packs;
}

TokenBatch MakeTokenBatch(const TokenDocuments& documents,
                          absl::Span<const TokenSample> samples,
                          const SamplePack& pack) {
  const size_t total = static_cast<size_t>(pack.num_tokens);
  TokenBatch batch;
  batch.ids.reserve(total);
  batch.labels.reserve(total);
  batch.positions.reserve(total);
  batch.cu_seqlens.push_back(0);
  for (const int64_t index : pack.samples) {
    const TokenSample& sample = samples[static_cast<size_t>(index)];
    for (int64_t at = sample.begin; at < sample.end; ++at) {
      batch.ids.push_back(documents.tokens[static_cast<size_t>(at)]);
      batch.labels.push_back(at + 1 < sample.document_end
                                 ? documents.tokens[static_cast<size_t>(at) + 1]
                                 : kIgnoreLabel);
      batch.positions.push_back(static_cast<int32_t>(at - sample.begin));
    }
    batch.cu_seqlens.push_back(static_cast<int32_t>(batch.ids.size()));
  }
  return batch;
}

}  // namespace espalier
