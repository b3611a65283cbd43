#ifndef ESPALIER_IO_TENSOR_CATALOG_H_
#define ESPALIER_IO_TENSOR_CATALOG_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "espalier/io/mapped_files.h"
#include "espalier/io/problem_list.h"
#include "espalier/io/safetensors_reader.h"

namespace espalier {

// The tensors of a checkpoint folder, from the headers of its files alone, in
// about 150 bytes each: what folders of half a million tensors need. Opens
// model.safetensors, or the shards that model.safetensors.index.json names, and
// holds the index against them. No file stays open. Immutable after Scan;
// thread-safe.
class TensorCatalog {
 public:
  struct File {
    std::string name;
    int64_t file_bytes = 0;
    int64_t data_start = 0;  // 8 + length of the JSON
    uint32_t first = 0;      // its tensors: [first, first + count), in the
    uint32_t count = 0;      // order of their data
  };
  struct Tensor {
    uint64_t name_begin = 0;
    int64_t begin = 0;  // from the file's data_start
    int64_t num_bytes = 0;
    uint32_t name_bytes = 0;
    uint32_t file = 0;
    uint32_t shape = 0;
    SafetensorsDType dtype = SafetensorsDType::kU8;
  };

  // Fails where there is nothing to look at: NOT_FOUND without a folder, or
  // without model.safetensors and its index; and with IsTransportError.
  // Anything else wrong goes into `problems`, by kind: ambiguous_folder,
  // bad_index, missing_file, bad_file, duplicate_tensor, tensor_not_in_file
  // (which the index maps to a file that does not hold it); and into `notes`:
  // unmapped_tensor, ignored_file, header (unknown fields).
  static absl::StatusOr<TensorCatalog> Scan(const std::string& dir,
                                            ProblemList* problems,
                                            ProblemList* notes,
                                            ReadMode mode = ReadMode::kRead);
  static absl::StatusOr<TensorCatalog> Scan(
      std::shared_ptr<const Folder> folder, ProblemList* problems,
      ProblemList* notes, ReadMode mode = ReadMode::kRead);
  // The same, with the first problem as DATA_LOSS.
  static absl::StatusOr<TensorCatalog> Open(const std::string& dir,
                                            ReadMode mode = ReadMode::kRead,
                                            ProblemList* notes = nullptr);
  static absl::StatusOr<TensorCatalog> Open(
      std::shared_ptr<const Folder> folder, ReadMode mode = ReadMode::kRead,
      ProblemList* notes = nullptr);
  static absl::Status FirstProblem(const ProblemList& problems);

  const std::string& dir() const { return folder_->path(); }
  const std::shared_ptr<const Folder>& folder() const { return folder_; }
  bool has_index() const { return has_index_; }
  const std::vector<File>& files() const { return files_; }
  const std::vector<Tensor>& tensors() const { return tensors_; }
  absl::string_view NameOf(const Tensor& tensor) const {
    return absl::string_view(names_).substr(
        static_cast<size_t>(tensor.name_begin), tensor.name_bytes);
  }
  absl::Span<const int64_t> ShapeOf(const Tensor& tensor) const {
    return shapes_[tensor.shape];
  }
  std::string Describe(const Tensor& tensor) const;  // "BF16 [2, 3]"
  SafetensorsEntry EntryOf(const Tensor& tensor) const;
  // The tensor's file, without entries(): Load and ReadBytes take EntryOf's.
  const SafetensorsFile& FileOf(const Tensor& tensor) const {
    return *opened_[tensor.file];
  }
  // Null when there is none.
  const Tensor* Find(absl::string_view name) const;
  std::string PathOf(const File& file) const;
  // The files that are mapped now.
  MappedFiles Mapped() const;
  int64_t total_bytes() const { return total_bytes_; }
  // Of the tensors that the index maps, and what its metadata.total_size says
  // of them ("" nothing): often wrong, so nothing relies on it.
  int64_t mapped_bytes() const { return mapped_bytes_; }
  const std::string& index_total_size() const { return index_total_size_; }

 private:
  struct Mapping {
    uint64_t hash = 0;  // of the tensor's name
    uint32_t file = 0;
    bool met = false;
  };

  explicit TensorCatalog(std::shared_ptr<const Folder> folder);
  absl::Status ReadIndex();
  absl::Status AddFile(const std::string& name, ReadMode mode,
                       ProblemList* problems, ProblemList* notes);
  void CheckMappings(ProblemList* problems, ProblemList* notes);
  void NoteOtherFiles(ProblemList* notes) const;
  uint32_t ShapeIndex(absl::Span<const int64_t> shape);

  std::shared_ptr<const Folder> folder_;
  bool has_index_ = false;
  std::shared_ptr<internal::MapCache> maps_;
  std::vector<File> files_;
  std::vector<std::optional<SafetensorsFile>>
      opened_;  // one for each of files_
  std::vector<Tensor> tensors_;
  std::string names_;
  std::vector<std::vector<int64_t>> shapes_;
  absl::flat_hash_map<std::vector<int64_t>, uint32_t> shape_index_;
  absl::flat_hash_map<uint64_t, uint32_t> by_hash_;  // of the name
  std::vector<Mapping> mappings_;                    // hashes ascending
  std::vector<std::string> mapped_files_;            // ascending
  std::vector<std::string> first_mapped_;  // a tensor of each of these
  int64_t total_bytes_ = 0;
  int64_t mapped_bytes_ = 0;
  std::string index_total_size_;
};

}  // namespace espalier

#endif  // ESPALIER_IO_TENSOR_CATALOG_H_
