#ifndef ESPALIER_IO_OBJECT_FOLDER_H_
#define ESPALIER_IO_OBJECT_FOLDER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "espalier/io/folder.h"
#include "espalier/io/object_store.h"

namespace espalier {

struct ObjectFolderOptions {
  // Where blocks of what was read lie, for later processes too. Several may
  // share it.
  std::string cache_dir;
  int64_t cache_bytes = int64_t{4} << 30;  // they take no more
  int64_t block_bytes = int64_t{256} << 10;
  // What is read front to back is fetched ahead, in the background, by as much.
  int64_t ahead_bytes = int64_t{64} << 20;
};

// The objects below a prefix as a folder, or one object as a folder of one
// file. Bytes are fetched when they are read: blocks, by ranged reads that are
// tried again as ObjectStore says, into a cache of bounded size. Of every
// object the version that was listed is read, or none: ABORTED when it changed.
// The store's checksums are of whole objects: one is compared when all of its
// object has been read (DATA_LOSS), and Folder::Account tells of how many that
// was so; a manifest of the folder tells wrong bytes of what is read in part.
// Fails NOT_FOUND when nothing is there; INVALID_ARGUMENT for keys that cannot
// be file names.
absl::StatusOr<std::shared_ptr<const Folder>> OpenObjectFolder(
    const ObjectStoreConfig& store, const ObjectUrl& url,
    const ObjectFolderOptions& options);

}  // namespace espalier

#endif  // ESPALIER_IO_OBJECT_FOLDER_H_
