#ifndef ESPALIER_IO_INTERNAL_BLOCK_CACHE_H_
#define ESPALIER_IO_INTERNAL_BLOCK_CACHE_H_

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "espalier/runtime/background_worker.h"
#include "espalier/runtime/mutex.h"

namespace espalier::internal {

// Blocks of distant files in one local file of bounded size, the least recently
// used ones giving way. What is read front to back is fetched ahead by a thread
// of its own. The local file has no name: it goes with the process, however
// that ends. Thread-safe.
class BlockCache {
 public:
  struct Options {
    std::string dir;          // where the local file lies
    int64_t max_bytes = 0;    // of it; at least 16 blocks
    int64_t block_bytes = 0;  // > 0
    int64_t ahead_bytes = 0;  // fetched ahead; 0: nothing
  };
  // Fills `bytes` from `offset` of a file on. `ahead` tells which of two
  // threads calls: a call with true and one with false may run at once.
  using Fetch = std::function<absl::Status(
      uint32_t file, int64_t offset, absl::Span<uint8_t> bytes, bool ahead)>;

  static absl::StatusOr<std::unique_ptr<BlockCache>> Create(
      const Options& options, Fetch fetch);
  ~BlockCache();

  // Bytes [offset, offset + bytes.size()) of a file of file_bytes, which they
  // are inside of. The error of a fetch goes to whom it concerns; the next call
  // tries again.
  absl::Status Read(uint32_t file, int64_t file_bytes, int64_t offset,
                    absl::Span<uint8_t> bytes);

  // Fetched, in all and of it ahead; bytes.
  int64_t fetched_bytes() const;
  int64_t ahead_bytes() const;

 private:
  using Key = std::pair<uint32_t, int64_t>;  // file, number of the block
  struct Block {
    int64_t slot = -1;  // -1: being fetched
    std::list<Key>::iterator use;
  };
  struct Course {          // of the reads of one file
    int64_t begin = 0;     // of the reads that follow one another
    int64_t next = -1;     // where the last of them ended
    int64_t streak = 0;    // reads that went on from there
    int64_t ahead_to = 0;  // blocks below are fetched or asked for
  };

  BlockCache(const Options& options, Fetch fetch, int handle);
  // Number of blocks from `first` on, at most up to `last`, that are neither
  // there nor being fetched; they count as being fetched from then on.
  int64_t Claim(uint32_t file, int64_t first, int64_t last)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status FetchBlocks(uint32_t file, int64_t file_bytes, int64_t first,
                           int64_t count, bool ahead);
  absl::Status Keep(const Key& key, absl::Span<const uint8_t> bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Copies what of a block is wanted.
  absl::Status Copy(const Key& key, int64_t offset, absl::Span<uint8_t> bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReadAhead(uint32_t file, int64_t file_bytes, int64_t offset, int64_t end)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const int64_t max_slots_;
  const Fetch fetch_;
  const int handle_;
  Mutex fetching_;  // held by the caller of fetch_(.., false)
  mutable Mutex mutex_;
  CondVar arrived_;
  absl::flat_hash_map<Key, Block> blocks_ ABSL_GUARDED_BY(mutex_);
  std::list<Key> uses_ ABSL_GUARDED_BY(mutex_);  // the latest in front
  std::vector<int64_t> free_slots_ ABSL_GUARDED_BY(mutex_);
  int64_t num_slots_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<uint32_t, Course> courses_ ABSL_GUARDED_BY(mutex_);
  int64_t fetched_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t ahead_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  BackgroundWorker worker_;  // last: its task uses the rest
};

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_BLOCK_CACHE_H_
