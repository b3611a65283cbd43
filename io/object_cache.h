#ifndef ESPALIER_IO_OBJECT_CACHE_H_
#define ESPALIER_IO_OBJECT_CACHE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "espalier/io/object_store.h"

namespace espalier {

// Local copies of objects in a folder, by their content's version: what was
// fetched once is not fetched again until it changes. The folder
// (docs/formats/object-cache.md) may be shared by processes on one machine and
// may be deleted at any time no process uses it. A copy that a killed process
// began is gone on with. Thread-compatible.
class ObjectCache {
 public:
  // `store` outlives the cache. max_bytes bounds the objects in the folder; 0
  // is no bound.
  static absl::StatusOr<std::unique_ptr<ObjectCache>> Create(
      ObjectStore& store, const std::string& dir, int64_t max_bytes);

  // A local path with the content of the URL: a file for an object; a folder
  // for a prefix, with the objects below it under their names. The objects
  // longest unused, and not returned by this cache, are deleted to make room.
  // Fails RESOURCE_EXHAUSTED, naming sizes, when that is not enough (before
  // anything is fetched); INVALID_ARGUMENT for keys that cannot be file names;
  // NOT_FOUND when nothing is there.
  absl::StatusOr<std::string> Get(const ObjectUrl& url);

  // Is told, while Get copies, of bytes that are here and that will be.
  using Progress = std::function<void(int64_t done, int64_t total)>;
  void SetProgress(Progress progress) { progress_ = std::move(progress); }

  // What was copied, and what of it could be compared with checksums.
  std::string Account() const;

  int64_t num_hits() const { return num_hits_; }
  int64_t num_fetched() const { return num_fetched_; }

 private:
  ObjectCache(ObjectStore& store, std::string dir, int64_t max_bytes);

  absl::StatusOr<std::string> GetObject(const std::string& bucket,
                                        const ObjectInfo& object);
  absl::Status Copy(const std::string& bucket, const ObjectInfo& object,
                    const std::string& path);
  absl::Status CopyTo(const std::string& bucket, const ObjectInfo& object,
                      const std::string& partial, int file);
  std::string NameOf(const std::string& bucket, const ObjectInfo& object) const;
  absl::Status MakeRoom(const std::string& bucket,
                        const std::vector<ObjectInfo>& objects);

  ObjectStore& store_;
  const std::string dir_;
  const int64_t max_bytes_;
  std::set<std::string> in_use_;  // names in the folder of objects
  Progress progress_;
  int64_t done_bytes_ = 0;   // of the copies of this Get
  int64_t total_bytes_ = 0;  // of all of them
  int64_t num_hits_ = 0;
  int64_t num_fetched_ = 0;
  int64_t num_compared_ = 0;  // of those fetched
};

}  // namespace espalier

#endif  // ESPALIER_IO_OBJECT_CACHE_H_
