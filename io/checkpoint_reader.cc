#include "espalier/io/checkpoint_reader.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "espalier/io/internal/file.h"
#include "espalier/io/internal/map_cache.h"
#include "espalier/io/internal/text.h"
#include "espalier/io/internal/weight_map.h"

namespace espalier {

namespace {

constexpr char kSingleName[] = "model.safetensors";
constexpr char kIndexName[] = "model.safetensors.index.json";
constexpr size_t kMaxWarnings = 64;
constexpr size_t kMaxKeptMaps = 64;

bool Exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

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

CheckpointReader::CheckpointReader()
    : maps_(std::make_shared<internal::MapCache>(kMaxKeptMaps)) {}

absl::StatusOr<CheckpointReader> CheckpointReader::Open(const std::string& dir,
                                                        ReadMode mode) {
  CheckpointReader reader;
  reader.dir_ = dir;
  const std::string single = internal::JoinPath(dir, kSingleName);
  const std::string index = internal::JoinPath(dir, kIndexName);
  const bool has_single = Exists(single);
  const bool has_index = Exists(index);
  if (has_single && has_index) {
    return absl::InvalidArgumentError(
        absl::StrCat(dir, ": both ", kSingleName, " and ", kIndexName,
                     "; remove the one that is not meant"));
  }
  if (!has_single && !has_index) {
    return absl::NotFoundError(
        absl::StrCat(dir, ": neither ", kSingleName, " nor ", kIndexName));
  }
  absl::Status status = has_single ? reader.OpenSingle(single, mode)
                                   : reader.OpenSharded(index, mode);
  if (!status.ok()) return status;
  reader.AddAliases();
  reader.WarnOfOtherFiles();
  reader.Finish();
  return reader;
}

absl::Status CheckpointReader::AddFile(const std::string& path, ReadMode mode) {
  absl::StatusOr<SafetensorsFile> file =
      SafetensorsFile::Open(path, mode, maps_);
  if (!file.ok()) return file.status();
  files_.push_back(*std::move(file));
  for (const std::string& warning : files_.back().warnings()) {
    if (warnings_.size() < kMaxWarnings) {
      warnings_.push_back(absl::StrCat(path, ": ", warning));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckpointReader::AddPlaces(uint32_t file_index) {
  const std::vector<SafetensorsEntry>& entries = files_[file_index].entries();
  for (uint32_t i = 0; i < entries.size(); ++i) {
    const auto [found, inserted] =
        places_.try_emplace(entries[i].name, Place{file_index, i, false});
    if (!inserted) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", internal::Quote(entries[i].name),
                       " is in both ", files_[found->second.file].path(),
                       " and ", files_[file_index].path()));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckpointReader::OpenSingle(const std::string& path,
                                          ReadMode mode) {
  absl::Status status = AddFile(path, mode);
  return status.ok() ? AddPlaces(0) : status;
}

absl::Status CheckpointReader::OpenSharded(const std::string& index_path,
                                           ReadMode mode) {
  const absl::StatusOr<std::string> text =
      internal::ReadWholeFile(index_path, internal::kMaxIndexBytes);
  if (!text.ok()) return text.status();
  const absl::StatusOr<internal::WeightMap> map =
      internal::ParseWeightMap(*text);
  if (!map.ok()) {
    return absl::Status(map.status().code(),
                        absl::StrCat(index_path, ": ", map.status().message()));
  }
  for (uint32_t f = 0; f < map->files.size(); ++f) {
    const std::string path = internal::JoinPath(dir_, map->files[f]);
    if (!Exists(path)) {
      const auto user =
          std::find_if(map->items.begin(), map->items.end(),
                       [&](const internal::WeightMap::Item& item) {
                         return item.file == f;
                       });
      return absl::NotFoundError(
          absl::StrCat(index_path, ": tensor ", internal::Quote(user->tensor),
                       " is mapped to ", map->files[f], ", which is missing"));
    }
    if (absl::Status status = AddFile(path, mode); !status.ok()) return status;
    if (absl::Status status = AddPlaces(f); !status.ok()) return status;
  }
  for (const internal::WeightMap::Item& item : map->items) {
    const auto found = places_.find(item.tensor);
    if (found == places_.end() || found->second.file != item.file) {
      return absl::InvalidArgumentError(absl::StrCat(
          index_path, ": tensor ", internal::Quote(item.tensor),
          " is mapped to ", map->files[item.file], ", which does not hold it",
          found == places_.end()
              ? ""
              : absl::StrCat("; it is in ", map->files[found->second.file])));
    }
  }
  if (places_.size() > map->items.size()) {
    std::string first;
    for (const auto& [name, place] : places_) {
      const auto item =
          std::lower_bound(map->items.begin(), map->items.end(), name,
                           [](const internal::WeightMap::Item& a,
                              const std::string& b) { return a.tensor < b; });
      const bool mapped = item != map->items.end() && item->tensor == name;
      if (!mapped && (first.empty() || name < first)) first = name;
    }
    warnings_.push_back(absl::StrCat(
        index_path, ": ", places_.size() - map->items.size(),
        " tensors of its files are not in weight_map, the first is ",
        internal::Quote(first)));
  }
  return absl::OkStatus();
}

void CheckpointReader::WarnOfOtherFiles() {
  std::vector<std::string> ignored;
  std::error_code error;
  for (std::filesystem::directory_iterator it(dir_, error), end;
       !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!absl::EndsWith(name, ".safetensors")) continue;
    const bool used = std::any_of(
        files_.begin(), files_.end(), [&](const SafetensorsFile& file) {
          return internal::BaseName(file.path()) == name;
        });
    if (!used) ignored.push_back(name);
  }
  if (ignored.empty()) return;
  std::sort(ignored.begin(), ignored.end());
  warnings_.push_back(absl::StrCat(
      dir_, ": ", ignored.size(),
      " other safetensors files are ignored, the first is ", ignored[0]));
}

void CheckpointReader::Finish() {
  names_.reserve(places_.size());
  for (const auto& [name, place] : places_) {
    names_.push_back(name);
    total_bytes_ += files_[place.file].entries()[place.entry].num_bytes();
  }
  std::sort(names_.begin(), names_.end());
}

void CheckpointReader::AddAliases() {
  for (const SafetensorsFile& file : files_) {
    for (const auto& [name, target] : file.metadata()) {
      if (places_.contains(target) && !places_.contains(name)) {
        aliases_.try_emplace(name, target);
      }
    }
  }
}

const CheckpointReader::Place* CheckpointReader::FindPlace(
    absl::string_view name) const {
  auto found = places_.find(name);
  if (found == places_.end()) {
    const auto alias = aliases_.find(name);
    if (alias == aliases_.end()) return nullptr;
    found = places_.find(alias->second);
  }
  return &found->second;
}

bool CheckpointReader::Contains(absl::string_view name) const {
  return FindPlace(name) != nullptr;
}

const SafetensorsEntry* CheckpointReader::Find(
    absl::string_view name, const SafetensorsFile** file) const {
  const Place* place = FindPlace(name);
  if (place == nullptr) return nullptr;
  if (file != nullptr) *file = &files_[place->file];
  return &files_[place->file].entries()[place->entry];
}

std::string CheckpointReader::NearestName(absl::string_view name) const {
  constexpr size_t kMaxDistance = 12;
  size_t best = kMaxDistance + 1;
  std::string nearest;
  for (const std::string& candidate : names_) {
    const size_t distance = EditDistance(name, candidate, best - 1);
    if (distance < best) {
      best = distance;
      nearest = candidate;
    }
    if (best == 0) break;
  }
  return nearest;
}

absl::StatusOr<CheckpointReader::Place*> CheckpointReader::PlaceOf(
    absl::string_view name) {
  if (const Place* place = FindPlace(name); place != nullptr) {
    return const_cast<Place*>(place);
  }
  missing_.emplace_back(name);
  const std::string nearest = NearestName(name);
  return absl::NotFoundError(absl::StrCat(
      dir_, ": no tensor ", internal::Quote(name),
      nearest.empty()
          ? ""
          : absl::StrCat(", the nearest name is ", internal::Quote(nearest))));
}

bool CheckpointReader::MarkConsumed(absl::string_view name) {
  Place* place = const_cast<Place*>(FindPlace(name));
  if (place == nullptr) return false;
  if (!place->consumed) ++num_consumed_;
  place->consumed = true;
  return true;
}

absl::StatusOr<Tensor> CheckpointReader::Take(Device& device,
                                              absl::string_view name) {
  const absl::StatusOr<Place*> place = PlaceOf(name);
  if (!place.ok()) return place.status();
  const SafetensorsFile& file = files_[(*place)->file];
  absl::StatusOr<Tensor> tensor =
      file.Load(device, file.entries()[(*place)->entry]);
  if (tensor.ok()) MarkConsumed(name);
  return tensor;
}

absl::StatusOr<Tensor> CheckpointReader::Take(Device& device,
                                              absl::string_view name,
                                              const Shape& shape) {
  const absl::StatusOr<Place*> place = PlaceOf(name);
  if (!place.ok()) return place.status();
  const SafetensorsFile& file = files_[(*place)->file];
  const SafetensorsEntry& entry = file.entries()[(*place)->entry];
  if (absl::MakeConstSpan(entry.shape) != shape.dims()) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, ": shape [", absl::StrJoin(entry.shape, ", "), "], expected ",
        ToString(shape), " (", internal::BaseName(file.path()), ")"));
  }
  return Take(device, name);
}

absl::StatusOr<Tensor> CheckpointReader::TakeRows(Device& device,
                                                  absl::string_view name,
                                                  int64_t start,
                                                  int64_t count) {
  const absl::StatusOr<Place*> place = PlaceOf(name);
  if (!place.ok()) return place.status();
  const SafetensorsFile& file = files_[(*place)->file];
  absl::StatusOr<Tensor> tensor =
      file.LoadRows(device, file.entries()[(*place)->entry], start, count);
  if (tensor.ok()) MarkConsumed(name);
  return tensor;
}

std::vector<std::string> CheckpointReader::Unused() const {
  std::vector<std::string> unused;
  for (const std::string& name : names_) {
    if (!places_.find(name)->second.consumed) unused.push_back(name);
  }
  return unused;
}

}  // namespace espalier
