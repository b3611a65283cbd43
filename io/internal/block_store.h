#ifndef ESPALIER_IO_INTERNAL_BLOCK_STORE_H_
#define ESPALIER_IO_INTERNAL_BLOCK_STORE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "espalier/runtime/mutex.h"

namespace espalier::internal {

// Blocks of distant files in a local folder of bounded size, for this process,
// those beside it and those after it (docs/formats/object-cache.md). A block
// lies there whole under its name or does not, whenever a process ends, and is
// given back only with the hash it was kept with. Thread-safe.
class BlockStore {
 public:
  // max_bytes bounds what the folder takes, of all processes together: the
  // blocks longest unused give way.
  static absl::StatusOr<std::unique_ptr<BlockStore>> Open(
      const std::string& dir, int64_t max_bytes);

  // `name` is the file's, fit for a folder. Fills all of `bytes`, the whole
  // block; false where there is none such.
  bool Load(const std::string& name, int64_t block, absl::Span<uint8_t> bytes);
  // Some bytes of a block that this process loaded or kept; false where it is
  // gone.
  bool ReadPart(const std::string& name, int64_t block, int64_t offset,
                absl::Span<uint8_t> bytes);
  absl::Status Keep(const std::string& name, int64_t block,
                    absl::Span<const uint8_t> bytes);
  // Removes all blocks of a file.
  void Drop(const std::string& name);

 private:
  BlockStore(std::string dir, int64_t max_bytes);
  std::string PathOf(const std::string& name, int64_t block) const;
  // The block was used now.
  void Use(const std::string& path);
  // Looks at what there is and makes room for `more` bytes.
  void Trim(int64_t more) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string dir_;
  const int64_t max_bytes_;
  Mutex mutex_;
  // Times by hashes of paths, ns; of what this process used.
  absl::flat_hash_map<uint64_t, int64_t> uses_ ABSL_GUARDED_BY(mutex_);
  int64_t total_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // as far as is known
  int64_t kept_bytes_ ABSL_GUARDED_BY(mutex_) = 0;   // since the last look
};

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_BLOCK_STORE_H_
