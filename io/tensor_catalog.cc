#include "espalier/io/tensor_catalog.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/hash/hash.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "espalier/io/internal/map_cache.h"
#include "espalier/io/internal/shard_layout.h"
#include "espalier/io/internal/text.h"
#include "espalier/io/internal/weight_map.h"

namespace espalier {

namespace {

constexpr char kSingleName[] = "model.safetensors";
constexpr char kIndexName[] = "model.safetensors.index.json";
constexpr size_t kMaxKeptMaps = 64;

uint64_t HashName(absl::string_view name) {
  return absl::Hash<absl::string_view>()(name);
}

// Calls visit(tensor, file) for each item of the index; errors begin with its
// path.
absl::Status VisitIndex(
    const Folder& folder,
    absl::FunctionRef<absl::Status(const std::string&, const std::string&)>
        visit,
    std::string* total_size = nullptr) {
  const absl::StatusOr<std::string> text =
      folder.ReadWhole(kIndexName, internal::kMaxIndexBytes);
  if (!text.ok()) return text.status();
  absl::Status status = internal::VisitWeightMap(*text, visit, total_size);
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(folder.PathOf(kIndexName),
                                                  ": ", status.message()));
}

}  // namespace

TensorCatalog::TensorCatalog(std::shared_ptr<const Folder> folder)
    : folder_(std::move(folder)),
      maps_(std::make_shared<internal::MapCache>(kMaxKeptMaps)) {}

absl::StatusOr<TensorCatalog> TensorCatalog::Scan(const std::string& dir,
                                                  ProblemList* problems,
                                                  ProblemList* notes,
                                                  ReadMode mode) {
  return Scan(Folder::Local(dir), problems, notes, mode);
}

absl::StatusOr<TensorCatalog> TensorCatalog::Scan(
    std::shared_ptr<const Folder> folder, ProblemList* problems,
    ProblemList* notes, ReadMode mode) {
  TensorCatalog catalog(std::move(folder));
  const std::string& dir = catalog.dir();
  const bool has_single = catalog.folder_->Exists(kSingleName);
  catalog.has_index_ = catalog.folder_->Exists(kIndexName);
  if (!has_single && !catalog.has_index_) {
    return absl::NotFoundError(absl::StrCat(
        dir, ": neither ", kSingleName, " nor ", kIndexName,
        catalog.folder_->Exists(internal::kShardsName)
            ? "; it is a folder of espalier shard, which espalier unshard puts "
              "together"
            : ""));
  }
  if (has_single && catalog.has_index_) {
    problems->Add("ambiguous_folder",
                  absl::StrCat(dir, ": both ", kSingleName, " and ", kIndexName,
                               "; remove the one that is not meant"));
  }
  if (!catalog.has_index_) {
    absl::Status s = catalog.AddFile(kSingleName, mode, problems, notes);
    if (!s.ok()) return s;
    catalog.NoteOtherFiles(notes);
    return catalog;
  }
  if (absl::Status s = catalog.ReadIndex(); !s.ok()) {
    if (IsTransportError(s)) return s;
    problems->Add("bad_index", std::string(s.message()));
    return catalog;
  }
  for (size_t i = 0; i < catalog.mapped_files_.size(); ++i) {
    if (!catalog.folder_->Exists(catalog.mapped_files_[i])) {
      problems->Add(
          "missing_file",
          absl::StrCat(catalog.folder_->PathOf(kIndexName), ": tensor ",
                       internal::Quote(catalog.first_mapped_[i]),
                       " is mapped to ", catalog.mapped_files_[i],
                       ", which is missing"));
    }
    absl::Status s =
        catalog.AddFile(catalog.mapped_files_[i], mode, problems, notes);
    if (!s.ok()) return s;
  }
  catalog.CheckMappings(problems, notes);
  catalog.mappings_ = {};
  catalog.first_mapped_ = {};
  catalog.NoteOtherFiles(notes);
  return catalog;
}

absl::StatusOr<TensorCatalog> TensorCatalog::Open(const std::string& dir,
                                                  ReadMode mode,
                                                  ProblemList* notes) {
  return Open(Folder::Local(dir), mode, notes);
}

absl::StatusOr<TensorCatalog> TensorCatalog::Open(
    std::shared_ptr<const Folder> folder, ReadMode mode, ProblemList* notes) {
  ProblemList problems;
  ProblemList ignored;
  absl::StatusOr<TensorCatalog> catalog = Scan(
      std::move(folder), &problems, notes != nullptr ? notes : &ignored, mode);
  if (!catalog.ok() || problems.empty()) return catalog;
  return FirstProblem(problems);
}

absl::Status TensorCatalog::FirstProblem(const ProblemList& problems) {
  return absl::DataLossError(
      absl::StrCat(problems.kinds()[0].first[0],
                   problems.total() > 1
                       ? absl::StrCat(" (and ", problems.total() - 1,
                                      " more problems, see espalier verify)")
                       : ""));
}

// File names and, for each tensor, a hash and the file's number. The text is
// read again where names are needed for a message.
absl::Status TensorCatalog::ReadIndex() {
  absl::flat_hash_map<std::string, uint32_t> numbers;
  std::vector<std::string> names;
  std::vector<std::string> first;
  absl::Status status = VisitIndex(
      *folder_,
      [&](const std::string& tensor, const std::string& file) {
        const auto [found, inserted] =
            numbers.try_emplace(file, static_cast<uint32_t>(names.size()));
        if (inserted) {
          names.push_back(file);
          first.push_back(tensor);
        }
        mappings_.push_back({HashName(tensor), found->second, false});
        return absl::OkStatus();
      },
      &index_total_size_);
  if (!status.ok()) return status;
  mapped_files_ = names;
  std::sort(mapped_files_.begin(), mapped_files_.end());
  std::vector<uint32_t> place;
  place.reserve(names.size());
  for (const std::string& name : names) {
    place.push_back(static_cast<uint32_t>(
        std::lower_bound(mapped_files_.begin(), mapped_files_.end(), name) -
        mapped_files_.begin()));
  }
  first_mapped_.resize(names.size());
  for (size_t i = 0; i < names.size(); ++i) first_mapped_[place[i]] = first[i];
  for (Mapping& mapping : mappings_) mapping.file = place[mapping.file];
  std::sort(mappings_.begin(), mappings_.end(),
            [](const Mapping& a, const Mapping& b) { return a.hash < b.hash; });
  const auto twice = std::adjacent_find(
      mappings_.begin(), mappings_.end(),
      [](const Mapping& a, const Mapping& b) { return a.hash == b.hash; });
  if (twice == mappings_.end()) return absl::OkStatus();
  return VisitIndex(
      *folder_, [&](const std::string& tensor, const std::string& /*file*/) {
        if (HashName(tensor) != twice->hash) return absl::OkStatus();
        return absl::InvalidArgumentError(absl::StrCat(
            "tensor ", internal::Quote(tensor), " is mapped twice"));
      });
}

uint32_t TensorCatalog::ShapeIndex(absl::Span<const int64_t> shape) {
  std::vector<int64_t> key(shape.begin(), shape.end());
  const auto [found, inserted] = shape_index_.try_emplace(
      std::move(key), static_cast<uint32_t>(shapes_.size()));
  if (inserted) shapes_.push_back(found->first);
  return found->second;
}

absl::Status TensorCatalog::AddFile(const std::string& name, ReadMode mode,
                                    ProblemList* problems, ProblemList* notes) {
  const std::string path = folder_->PathOf(name);
  const uint32_t number = static_cast<uint32_t>(files_.size());
  files_.emplace_back().name = name;
  files_.back().first = static_cast<uint32_t>(tensors_.size());
  opened_.emplace_back();
  if (!folder_->Exists(name)) return absl::OkStatus();  // told
  absl::StatusOr<SafetensorsFile> file =
      SafetensorsFile::Open(folder_, name, mode, maps_);
  if (!file.ok()) {
    if (IsTransportError(file.status())) return file.status();
    problems->Add("bad_file", std::string(file.status().message()));
    return absl::OkStatus();
  }
  for (const std::string& warning : file->warnings()) {
    notes->Add("header", absl::StrCat(path, ": ", warning));
  }
  files_.back().file_bytes = file->file_bytes();
  files_.back().data_start = file->data_start();
  files_.back().count = static_cast<uint32_t>(file->entries().size());
  for (const SafetensorsEntry& entry : file->entries()) {
    Tensor tensor;
    tensor.name_begin = names_.size();
    tensor.name_bytes = static_cast<uint32_t>(entry.name.size());
    names_ += entry.name;
    tensor.begin = entry.begin;
    tensor.num_bytes = entry.num_bytes();
    tensor.file = number;
    tensor.shape = ShapeIndex(entry.shape);
    tensor.dtype = entry.dtype;
    total_bytes_ += tensor.num_bytes;
    const uint32_t index = static_cast<uint32_t>(tensors_.size());
    tensors_.push_back(tensor);
    // Names with one hash take the next free numbers.
    uint64_t hash = HashName(entry.name);
    for (auto at = by_hash_.find(hash); at != by_hash_.end();
         at = by_hash_.find(++hash)) {
      const Tensor& other = tensors_[at->second];
      if (NameOf(other) != entry.name) continue;
      problems->Add(
          "duplicate_tensor",
          absl::StrCat("tensor ", internal::Quote(entry.name), " is in both ",
                       files_[other.file].name, " and ", name));
      break;
    }
    by_hash_.try_emplace(hash, index);
  }
  file->DropEntries();
  opened_.back() = *std::move(file);
  return absl::OkStatus();
}

const TensorCatalog::Tensor* TensorCatalog::Find(absl::string_view name) const {
  uint64_t hash = HashName(name);
  for (auto at = by_hash_.find(hash); at != by_hash_.end();
       at = by_hash_.find(++hash)) {
    const Tensor& tensor = tensors_[at->second];
    if (NameOf(tensor) == name) return &tensor;
  }
  return nullptr;
}

void TensorCatalog::CheckMappings(ProblemList* problems, ProblemList* notes) {
  int64_t met = 0;
  for (const Tensor& tensor : tensors_) {
    const absl::string_view name = NameOf(tensor);
    const uint64_t hash = HashName(name);
    const auto mapping = std::lower_bound(
        mappings_.begin(), mappings_.end(), hash,
        [](const Mapping& a, uint64_t key) { return a.hash < key; });
    if (mapping == mappings_.end() || mapping->hash != hash) {
      notes->Add(
          "unmapped_tensor",
          absl::StrCat("tensor ", internal::Quote(name), " of ",
                       files_[tensor.file].name, " is not in weight_map"));
      continue;
    }
    if (!mapping->met) ++met;
    mapped_bytes_ += tensor.num_bytes;
    mapping->met = true;
    if (mapping->file != tensor.file) {
      problems->Add("tensor_not_in_file",
                    absl::StrCat("tensor ", internal::Quote(name),
                                 " is mapped to ", files_[mapping->file].name,
                                 ", which does not hold it; it is in ",
                                 files_[tensor.file].name));
    }
  }
  if (met == static_cast<int64_t>(mappings_.size())) return;
  // Names are needed for messages only; what is in a missing or broken file
  // has been told already.
  absl::Status ignored = VisitIndex(
      *folder_, [&](const std::string& tensor, const std::string& file) {
        const uint64_t hash = HashName(tensor);
        const auto mapping = std::lower_bound(
            mappings_.begin(), mappings_.end(), hash,
            [](const Mapping& a, uint64_t key) { return a.hash < key; });
        if (mapping->met || files_[mapping->file].data_start == 0) {
          return absl::OkStatus();
        }
        problems->Add(
            "tensor_not_in_file",
            absl::StrCat("tensor ", internal::Quote(tensor), " is mapped to ",
                         file, ", which does not hold it"));
        return absl::OkStatus();
      });
  ignored.IgnoreError();
}

void TensorCatalog::NoteOtherFiles(ProblemList* notes) const {
  const absl::StatusOr<std::vector<std::string>> names =
      folder_->List(/*deep=*/false);
  if (!names.ok()) return;
  absl::flat_hash_set<absl::string_view> used;
  for (const File& file : files_) used.insert(file.name);
  for (const std::string& name : *names) {
    if (!absl::EndsWith(name, ".safetensors") || used.contains(name)) continue;
    notes->Add("ignored_file",
               absl::StrCat(folder_->PathOf(name),
                            ": the index does not name it; it is ignored"));
  }
}

std::string TensorCatalog::Describe(const Tensor& tensor) const {
  return absl::StrCat(ToString(tensor.dtype), " [",
                      absl::StrJoin(ShapeOf(tensor), ", "), "]");
}

SafetensorsEntry TensorCatalog::EntryOf(const Tensor& tensor) const {
  const absl::Span<const int64_t> shape = ShapeOf(tensor);
  return {std::string(NameOf(tensor)),
          tensor.dtype,
          {shape.begin(), shape.end()},
          tensor.begin,
          tensor.begin + tensor.num_bytes};
}

MappedFiles TensorCatalog::Mapped() const { return maps_->Mapped(); }

std::string TensorCatalog::PathOf(const File& file) const {
  return folder_->PathOf(file.name);
}

}  // namespace espalier
