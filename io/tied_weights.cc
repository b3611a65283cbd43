#include "espalier/io/tied_weights.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"

#include "espalier/io/internal/text.h"

namespace espalier {

namespace {

struct Stored {
  const SafetensorsFile* file = nullptr;
  std::optional<SafetensorsEntry> entry;
};

absl::StatusOr<bool> SameBytes(const Stored& a, const Stored& b) {
  if (a.entry->dtype != b.entry->dtype || a.entry->shape != b.entry->shape) {
    return false;
  }
  constexpr int64_t kPieceBytes = int64_t{1} << 20;
  std::vector<uint8_t> left(kPieceBytes);
  std::vector<uint8_t> right(kPieceBytes);
  for (int64_t at = 0; at < a.entry->num_bytes(); at += kPieceBytes) {
    const size_t count =
        static_cast<size_t>(std::min(kPieceBytes, a.entry->num_bytes() - at));
    absl::Status status =
        a.file->ReadBytes(*a.entry, at, absl::MakeSpan(left.data(), count));
    if (status.ok()) {
      status =
          b.file->ReadBytes(*b.entry, at, absl::MakeSpan(right.data(), count));
    }
    if (!status.ok()) return status;
    if (!std::equal(left.begin(), left.begin() + static_cast<int64_t>(count),
                    right.begin())) {
      return false;
    }
  }
  return true;
}

}  // namespace

absl::StatusOr<TiedWeights> CheckTiedWeights(const CheckpointReader& reader,
                                             absl::string_view embedding,
                                             absl::string_view head,
                                             bool tied) {
  Stored a;
  Stored b;
  a.entry = reader.Find(embedding, &a.file);
  b.entry = reader.Find(head, &b.file);
  if (!a.entry && (!tied || !b.entry)) {
    return absl::NotFoundError(
        absl::StrCat(reader.dir(), ": no tensor ", internal::Quote(embedding)));
  }
  if (!b.entry && !tied) {
    return absl::NotFoundError(absl::StrCat(
        reader.dir(), ": no tensor ", internal::Quote(head),
        ", and config.json does not tie it to ", internal::Quote(embedding)));
  }
  if (!a.entry || !b.entry || a.entry->name == b.entry->name) {
    return TiedWeights::kShared;
  }
  if (!tied) return TiedWeights::kSeparate;
  const absl::StatusOr<bool> same = SameBytes(a, b);
  if (!same.ok()) return same.status();
  if (*same) return TiedWeights::kShared;
  return absl::InvalidArgumentError(absl::StrCat(
      reader.dir(), ": config.json ties ", internal::Quote(embedding), " and ",
      internal::Quote(head),
      ", but both are stored and differ; set tie_word_embeddings to false, or "
      "remove the one that is not meant"));
}

}  // namespace espalier
