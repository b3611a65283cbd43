#ifndef ESPALIER_IO_OBJECT_STORE_H_
#define ESPALIER_IO_OBJECT_STORE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace espalier {

// How to reach a store that speaks S3 (Amazon S3, Huawei OBS, MinIO, ...).
struct ObjectStoreConfig {
  // "https://host[:port]". Empty: https://s3.REGION.amazonaws.com.
  std::string endpoint;
  // The bucket is a part of the host's name, not the first of the path.
  bool virtual_host = false;
  std::string region = "us-east-1";
  std::string access_key;  // empty: requests are not signed
  std::string secret_key;
  std::string session_token;
  std::string ca_file;   // certificates trusted for https; empty: the system's
  int max_attempts = 6;  // of each request
  int64_t first_backoff_ms = 200;  // doubles with each attempt, up to 10 s
  int64_t connect_timeout_ms = 10'000;
  // A transfer slower than 1 KiB/s for this long is given up.
  int64_t stall_timeout_ms = 30'000;
  int max_parallel = 8;
  int64_t part_bytes = int64_t{8} << 20;  // of one ranged read
};

// "s3://bucket/key"; the key may be empty or end in "/".
struct ObjectUrl {
  std::string bucket;
  std::string key;

  static bool Is(absl::string_view text);  // begins with "s3://"
  static absl::StatusOr<ObjectUrl> Parse(absl::string_view text);
  std::string ToString() const;
};

struct ObjectInfo {
  std::string key;
  int64_t size = 0;
  std::string etag;  // changes with the content, quotes included
};

// What a store knows of the bytes of an object.
struct ObjectChecksum {
  enum class Kind { kNone, kMd5, kSha1, kSha256, kCrc32, kCrc32c, kCrc64Nvme };
  Kind kind = Kind::kNone;
  std::string value;  // bytes; a CRC's most significant first
  // Above 0: `value` is the checksum of the checksums, one behind the other, of
  // parts of so many bytes, of which the last may be shorter.
  int64_t part_bytes = 0;
};

// Reads objects over HTTP with signature version 4. Requests that fail for a
// passing reason (no connection, 429, 5xx, a body that ends early) are tried
// again after a growing pause; those refused for good are not. Thread-
// compatible.
class ObjectStore {
 public:
  // Fails INVALID_ARGUMENT on a setting that cannot be.
  static absl::StatusOr<std::unique_ptr<ObjectStore>> Create(
      const ObjectStoreConfig& config);
  ~ObjectStore();

  // Objects whose key begins with `prefix`, in the order of their keys; pages
  // are followed. Fails RESOURCE_EXHAUSTED above max_objects.
  absl::StatusOr<std::vector<ObjectInfo>> List(const std::string& bucket,
                                               const std::string& prefix,
                                               int64_t max_objects = 1'000'000);
  // NOT_FOUND when there is none.
  absl::StatusOr<ObjectInfo> Head(const std::string& bucket,
                                  const std::string& key);
  // Of the version that `object` names; kNone where the store tells none: an
  // object that was encrypted with a key of its own, or uploaded in parts of
  // unequal size without a checksum of the whole. Fails as Fetch does.
  absl::StatusOr<ObjectChecksum> Checksum(const std::string& bucket,
                                          const ObjectInfo& object);
  // Reads bytes [offset, offset + count).
  absl::StatusOr<std::string> Read(const std::string& bucket,
                                   const ObjectInfo& object, int64_t offset,
                                   int64_t count);
  // Fills `bytes` from `offset` on, in parts read in parallel, with the checks
  // of Fetch but for the checksum, which is of whole objects (io/
  // object_folder.h compares it when all of an object has been read).
  absl::Status ReadInto(const std::string& bucket, const ObjectInfo& object,
                        int64_t offset, absl::Span<uint8_t> bytes);
  // Writes the whole object to a file, in parts read in parallel; the file
  // appears whole. Every part must be of the version that `object` names. The
  // file is compared with Checksum; *compared, where it is given, says whether
  // there was one. Fails, besides what the system says: NOT_FOUND,
  // PERMISSION_DENIED (with the store's own words), ABORTED when the object
  // changed, UNAVAILABLE after max_attempts, DATA_LOSS on a wrong checksum.
  absl::Status Fetch(const std::string& bucket, const ObjectInfo& object,
                     const std::string& path, bool* compared = nullptr);

  // Compares a file with Checksum, as Fetch does.
  absl::Status Compare(const std::string& bucket, const ObjectInfo& object,
                       const std::string& path, bool* compared);
  // What ReadInto reads at once: as many parts as go in parallel.
  int64_t parallel_bytes() const;
  // Text that is the same for the same bytes: of the endpoint, the bucket, the
  // key, the size and the ETag. Without an ETag no two are the same.
  std::string IdentityOf(const std::string& bucket,
                         const ObjectInfo& object) const;

  // Requests sent, and those among them that were repeated.
  int64_t num_requests() const;
  int64_t num_retries() const;

 private:
  class Impl;
  explicit ObjectStore(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace espalier

#endif  // ESPALIER_IO_OBJECT_STORE_H_
