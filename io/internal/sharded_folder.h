#ifndef ESPALIER_IO_INTERNAL_SHARDED_FOLDER_H_
#define ESPALIER_IO_INTERNAL_SHARDED_FOLDER_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "espalier/io/folder.h"
#include "espalier/io/internal/shard_layout.h"
#include "espalier/io/safetensors_reader.h"

namespace espalier::internal {

// Names in a sharded folder.
std::string HeaderName(const ShardLayout::Source& source);
std::string OriginalIndexName();

// A folder that ShardCheckpoint wrote, held against its espalier-shards.json.
// What does not agree is DATA_LOSS, naming file, what it has and what is
// expected. Thread-safe.
class ShardedFolder {
 public:
  // The length field and JSON of an original weight file.
  struct Header {
    std::string bytes;
    SafetensorsHeader parsed;
  };

  // Fails as ReadLayout does; looks at no other file.
  static absl::StatusOr<ShardedFolder> Open(
      std::shared_ptr<const Folder> folder);

  const Folder& folder() const { return *folder_; }
  const ShardLayout& layout() const { return layout_; }

  // A file of pieces: number of tensors, size and header.
  absl::StatusOr<SafetensorsFile> OpenPieces(
      const ShardLayout::File& file) const;
  // Reads all of it: header and data.
  absl::Status CheckContent(const ShardLayout::File& file) const;
  absl::StatusOr<Header> ReadHeader(const ShardLayout::Source& source) const;
  // Reads it.
  absl::Status CheckIndex() const;
  // Size; with `content`, reads it.
  absl::Status CheckCopied(const ShardLayout::Copied& copied,
                           bool content) const;

  absl::Status Wrong(const std::string& name, absl::string_view what,
                     absl::string_view got, absl::string_view expected) const;

 private:
  ShardedFolder(std::shared_ptr<const Folder> folder, ShardLayout layout);

  std::shared_ptr<const Folder> folder_;
  ShardLayout layout_;
};

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_SHARDED_FOLDER_H_
