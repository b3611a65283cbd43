#include "espalier/io/checkpoint_reader.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "espalier/io/internal/text.h"
#include "espalier/io/problem_list.h"

namespace espalier {

namespace {

// Edit distance, given up above `limit`. Both texts are tensor names.
size_t EditDistance(absl::string_view a, absl::string_view b, size_t limit) {
  if (a.size() + limit < b.size() || b.size() + limit < a.size()) {
    return limit + 1;
  }
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    size_t least = row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1});
      least = std::min(least, row[j]);
    }
    if (least > limit) return limit + 1;
  }
  return row[b.size()];
}

}  // namespace

CheckpointReader::CheckpointReader(TensorCatalog catalog)
    : catalog_(std::move(catalog)),
      by_name_(catalog_.tensors().size()),
      consumed_(catalog_.tensors().size()) {
  const std::vector<TensorCatalog::Tensor>& tensors = catalog_.tensors();
  std::iota(by_name_.begin(), by_name_.end(), uint32_t{0});
  std::sort(by_name_.begin(), by_name_.end(), [&](uint32_t a, uint32_t b) {
    return catalog_.NameOf(tensors[a]) < catalog_.NameOf(tensors[b]);
  });
}

absl::StatusOr<CheckpointReader> CheckpointReader::Open(const std::string& dir,
                                                        ReadMode mode) {
  return Open(Folder::Local(dir), mode);
}

absl::StatusOr<CheckpointReader> CheckpointReader::Open(
    std::shared_ptr<const Folder> folder, ReadMode mode) {
  ProblemList notes;
  absl::StatusOr<TensorCatalog> catalog =
      TensorCatalog::Open(std::move(folder), mode, &notes);
  if (!catalog.ok()) return catalog.status();
  CheckpointReader reader(*std::move(catalog));
  reader.AddAliases();
  for (const ProblemList::Kind& kind : notes.kinds()) {
    reader.warnings_.insert(reader.warnings_.end(), kind.first.begin(),
                            kind.first.end());
    const int64_t more = kind.count - static_cast<int64_t>(kind.first.size());
    if (more > 0) {
      reader.warnings_.push_back(absl::StrCat("and ", more, " more like it"));
    }
  }
  return reader;
}

void CheckpointReader::AddAliases() {
  const std::vector<TensorCatalog::Tensor>& tensors = catalog_.tensors();
  for (const TensorCatalog::File& file : catalog_.files()) {
    if (file.count == 0) continue;
    for (const auto& [name, target] :
         catalog_.FileOf(tensors[file.first]).metadata()) {
      if (catalog_.Find(target) != nullptr && catalog_.Find(name) == nullptr) {
        aliases_.try_emplace(name, target);
      }
    }
  }
}

std::vector<absl::string_view> CheckpointReader::names() const {
  std::vector<absl::string_view> names;
  names.reserve(by_name_.size());
  for (const uint32_t tensor : by_name_) {
    names.push_back(catalog_.NameOf(catalog_.tensors()[tensor]));
  }
  return names;
}

const TensorCatalog::Tensor* CheckpointReader::FindTensor(
    absl::string_view name) const {
  const TensorCatalog::Tensor* tensor = catalog_.Find(name);
  if (tensor != nullptr) return tensor;
  const auto alias = aliases_.find(name);
  return alias == aliases_.end() ? nullptr : catalog_.Find(alias->second);
}

bool CheckpointReader::Contains(absl::string_view name) const {
  return FindTensor(name) != nullptr;
}

std::optional<SafetensorsEntry> CheckpointReader::Find(
    absl::string_view name, const SafetensorsFile** file) const {
  const TensorCatalog::Tensor* tensor = FindTensor(name);
  if (tensor == nullptr) return std::nullopt;
  if (file != nullptr) *file = &catalog_.FileOf(*tensor);
  return catalog_.EntryOf(*tensor);
}

std::string CheckpointReader::NearestName(absl::string_view name) const {
  constexpr size_t kMaxDistance = 12;
  size_t best = kMaxDistance + 1;
  std::string nearest;
  for (const uint32_t tensor : by_name_) {
    const absl::string_view candidate =
        catalog_.NameOf(catalog_.tensors()[tensor]);
    const size_t distance = EditDistance(name, candidate, best - 1);
    if (distance < best) {
      best = distance;
      nearest = std::string(candidate);
    }
    if (best == 0) break;
  }
  return nearest;
}

absl::StatusOr<const TensorCatalog::Tensor*> CheckpointReader::Need(
    absl::string_view name) {
  const TensorCatalog::Tensor* tensor = FindTensor(name);
  if (tensor != nullptr) return tensor;
  missing_.emplace_back(name);
  const std::string nearest = NearestName(name);
  return absl::NotFoundError(absl::StrCat(
      dir(), ": no tensor ", internal::Quote(name),
      nearest.empty()
          ? ""
          : absl::StrCat(", the nearest name is ", internal::Quote(nearest))));
}

void CheckpointReader::Consume(const TensorCatalog::Tensor& tensor) {
  const size_t index = IndexOf(tensor);
  if (!consumed_[index]) ++num_consumed_;
  consumed_[index] = true;
}

bool CheckpointReader::MarkConsumed(absl::string_view name) {
  const TensorCatalog::Tensor* tensor = FindTensor(name);
  if (tensor != nullptr) Consume(*tensor);
  return tensor != nullptr;
}

absl::StatusOr<Tensor> CheckpointReader::Take(Device& device,
                                              absl::string_view name) {
  const absl::StatusOr<const TensorCatalog::Tensor*> found = Need(name);
  if (!found.ok()) return found.status();
  absl::StatusOr<Tensor> tensor =
      catalog_.FileOf(**found).Load(device, catalog_.EntryOf(**found));
  if (tensor.ok()) Consume(**found);
  return tensor;
}

absl::StatusOr<Tensor> CheckpointReader::Take(Device& device,
                                              absl::string_view name,
                                              const Shape& shape) {
  const absl::StatusOr<const TensorCatalog::Tensor*> found = Need(name);
  if (!found.ok()) return found.status();
  if (catalog_.ShapeOf(**found) != shape.dims()) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, ": shape [", absl::StrJoin(catalog_.ShapeOf(**found), ", "),
        "], expected ", ToString(shape), " (",
        catalog_.files()[(*found)->file].name, ")"));
  }
  return Take(device, name);
}

absl::StatusOr<Tensor> CheckpointReader::TakeRows(Device& device,
                                                  absl::string_view name,
                                                  int64_t start,
                                                  int64_t count) {
  const absl::StatusOr<const TensorCatalog::Tensor*> found = Need(name);
  if (!found.ok()) return found.status();
  absl::StatusOr<Tensor> tensor = catalog_.FileOf(**found).LoadRows(
      device, catalog_.EntryOf(**found), start, count);
  if (tensor.ok()) Consume(**found);
  return tensor;
}

std::vector<std::string> CheckpointReader::Unused() const {
  std::vector<std::string> unused;
  for (const uint32_t tensor : by_name_) {
    if (consumed_[tensor]) continue;
    unused.emplace_back(catalog_.NameOf(catalog_.tensors()[tensor]));
  }
  return unused;
}

}  // namespace espalier
