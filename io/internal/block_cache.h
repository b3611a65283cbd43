#ifndef ESPALIER_IO_INTERNAL_BLOCK_CACHE_H_
#define ESPALIER_IO_INTERNAL_BLOCK_CACHE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "espalier/io/internal/block_store.h"
#include "espalier/io/internal/object_check.h"
#include "espalier/io/object_store.h"
#include "espalier/runtime/background_worker.h"
#include "espalier/runtime/mutex.h"

namespace espalier::internal {

// Distant files, by numbers. Thread-safe but for what `ahead` says.
class BlockOrigin {
 public:
  virtual ~BlockOrigin() = default;
  // The same text means the same bytes, today and in later processes.
  virtual std::string Identity(uint32_t file) const = 0;
  virtual int64_t Bytes(uint32_t file) const = 0;
  // For messages.
  virtual std::string Name(uint32_t file) const = 0;
  // Fills `bytes` from `offset` on. `ahead` tells which of two threads calls: a
  // call with true and one with false may run at once.
  virtual absl::Status Fetch(uint32_t file, int64_t offset,
                             absl::Span<uint8_t> bytes, bool ahead) = 0;
  virtual absl::StatusOr<ObjectChecksum> Checksum(uint32_t file,
                                                  bool ahead) = 0;
};

// What a cache did so far.
struct BlockCacheCounts {
  int64_t fetched_bytes = 0;  // in all
  int64_t ahead_bytes = 0;    // of it ahead
  int64_t reused_bytes = 0;   // of earlier processes, or others
  // Files of which something was read, by what became of their checksum.
  int64_t num_compared = 0;
  int64_t num_partly_read = 0;
  int64_t num_without_checksum = 0;
};

// Reads distant files by blocks through a BlockStore. What is read front to
// back is fetched ahead by a thread of its own. When all blocks of a file have
// passed, in any order, they are compared with its checksum: the read that
// makes them whole fails on a wrong one, as do all reads behind it, and its
// blocks are removed. Blocks that gave way and are fetched again are compared
// with what they were. Thread-safe.
class BlockCache {
 public:
  struct Options {
    std::string dir;          // of the BlockStore
    int64_t max_bytes = 0;    // of it; at least 16 blocks
    int64_t block_bytes = 0;  // > 0
    int64_t ahead_bytes = 0;  // fetched ahead; 0: nothing
  };

  // `origin` outlives the cache.
  static absl::StatusOr<std::unique_ptr<BlockCache>> Create(
      const Options& options, BlockOrigin& origin);
  ~BlockCache();

  // Bytes [offset, offset + bytes.size()) of a file, which they are inside of.
  // The error of a fetch goes to whom it concerns; the next call tries again.
  absl::Status Read(uint32_t file, int64_t offset, absl::Span<uint8_t> bytes);

  BlockCacheCounts counts() const;

 private:
  using Key = std::pair<uint32_t, int64_t>;  // file, number of the block
  struct Course {                            // of the reads of one file
    int64_t begin = 0;     // of the reads that follow one another
    int64_t next = -1;     // where the last of them ended
    int64_t streak = 0;    // reads that went on from there
    int64_t ahead_to = 0;  // blocks below are fetched or asked for
  };
  struct File {
    uint32_t number = 0;
    std::string name;  // in the store
    int64_t bytes = 0;
    int64_t num_blocks = 0;
    Course course;      // under mutex_, as is `lost`
    absl::Status lost;  // a wrong checksum
    Mutex checking;
    // Blocks that passed before the checksum was asked for.
    absl::btree_set<int64_t> passed ABSL_GUARDED_BY(checking);
    std::unique_ptr<ObjectCheck> check ABSL_GUARDED_BY(checking);
    bool has_checksum ABSL_GUARDED_BY(checking) = false;
  };
  // Blocks that lie one behind the other, and their bytes.
  struct Run {
    int64_t first = 0;
    int64_t count = 0;
    std::vector<uint8_t> bytes;
  };

  BlockCache(const Options& options, BlockOrigin& origin,
             std::unique_ptr<BlockStore> store);
  File& FileOf(uint32_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Number of blocks from `first` on, at most up to `last`, that are neither
  // there nor being fetched; they count as being fetched from then on.
  int64_t Claim(const File& file, int64_t first, int64_t last)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Of a run: the bytes of one block.
  absl::Span<uint8_t> BlockOf(const File& file, Run& run, int64_t block) const;
  // Fills the bytes of claimed blocks, from the store or the origin.
  absl::Status Fill(File& file, Run& run, bool ahead);
  absl::Status FillAndKeep(File& file, Run& run, bool ahead);
  absl::Status FetchRange(File& file, Run& run, int64_t first, int64_t end,
                          bool ahead);
  // *wrong: the error is that of a checksum.
  absl::Status Check(File& file, Run& run, bool ahead, bool* wrong);
  absl::Status TakeChecked(File& file, int64_t block,
                           absl::Span<const uint8_t> bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(file.checking);
  absl::StatusOr<ObjectChecksum> AskChecksum(const File& file, bool ahead);
  void ReadAhead(File& file, int64_t offset, int64_t end)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const int64_t max_blocks_;
  BlockOrigin& origin_;
  const std::unique_ptr<BlockStore> store_;
  Mutex fetching_;  // held by callers of origin_ that are not ahead
  mutable Mutex mutex_;
  CondVar arrived_;
  absl::flat_hash_map<uint32_t, std::unique_ptr<File>> files_
      ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_set<Key> claimed_ ABSL_GUARDED_BY(mutex_);
  // In the store, unless they gave way.
  absl::flat_hash_set<Key> known_ ABSL_GUARDED_BY(mutex_);
  BlockCacheCounts counts_ ABSL_GUARDED_BY(mutex_);
  BackgroundWorker worker_;  // last: its task uses the rest
};

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_BLOCK_CACHE_H_
