#ifndef ESPALIER_IO_INTERNAL_MAP_CACHE_H_
#define ESPALIER_IO_INTERNAL_MAP_CACHE_H_

#include <cstddef>
#include <list>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"

#include "espalier/io/internal/file.h"
#include "espalier/io/mapped_files.h"
#include "espalier/runtime/file_map.h"
#include "espalier/runtime/mutex.h"

namespace espalier::internal {

// Maps files when they are first used and keeps the `max_kept` last used maps;
// an older one lives only as long as tensors point into it. So thousands of
// shards cost neither maps nor address space that nothing uses. Thread-safe.
class MapCache {
 public:
  explicit MapCache(size_t max_kept) : max_kept_(max_kept) {}

  // The file's pages. A file that is still mapped is not mapped again, even
  // where another one has taken its name by now. DATA_LOSS when a file to be
  // mapped is not `identity`.
  absl::StatusOr<std::shared_ptr<FileMap>> Get(const std::string& path,
                                               const FileIdentity& identity);
  // Those that are mapped now.
  MappedFiles Mapped() const;

 private:
  using Kept = std::list<std::shared_ptr<FileMap>>;
  struct Slot {
    std::weak_ptr<FileMap> map;
    FileIdentity identity;  // of map
    Kept::iterator place;   // kept_.end() when only tensors hold it
  };
  void Keep(Slot& slot, const std::shared_ptr<FileMap>& map)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t max_kept_;
  mutable Mutex mutex_;
  Kept kept_ ABSL_GUARDED_BY(mutex_);  // last used first
  absl::flat_hash_map<std::string, Slot> slots_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_MAP_CACHE_H_
