#ifndef ESPALIER_IO_INTERNAL_OBJECT_CHECK_H_
#define ESPALIER_IO_INTERNAL_OBJECT_CHECK_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "espalier/io/internal/digest.h"
#include "espalier/io/object_store.h"

namespace espalier::internal {

// What the headers of a HEAD with x-amz-checksum-mode (lower-case names) tell.
// Of an object that was uploaded in parts `num_parts` is their number, and
// part_bytes is left to be found.
struct ToldChecksum {
  ObjectChecksum checksum;
  int64_t num_parts = 0;  // 0: of the whole
};
ToldChecksum ChecksumFromHeaders(
    absl::string_view bucket,
    const std::map<std::string, std::string>& headers);

// Compares the bytes of an object with its store's checksum while its blocks
// pass, in any order and more than once. Checksums that are no CRC need the
// bytes of a part in their order: of a block that came before its turn Wanted
// tells when that has come. Thread-compatible.
class ObjectCheck {
 public:
  ObjectCheck(const ObjectChecksum& checksum, int64_t object_bytes,
              int64_t block_bytes);

  // All bytes of a block. Fails DATA_LOSS where they are not those that passed
  // before, where the last block of all makes a wrong checksum, and from then
  // on; the message names no object.
  absl::Status Take(int64_t block, absl::Span<const uint8_t> bytes);
  // A block to be taken once more; -1: none.
  int64_t Wanted() const;
  // Whether all bytes have passed and were compared with a checksum.
  bool compared() const { return compared_; }

 private:
  struct Part {
    int64_t begin = 0, end = 0;
    int64_t next = 0;  // of a hash; of a CRC the number of bytes that came
    uint64_t crc = 0;
    DigestContext hash;
    std::string digest;  // empty until all came
  };

  void TakePart(Part& part, int64_t begin, absl::Span<const uint8_t> bytes,
                bool is_first);
  absl::Status Compare();

  const ObjectChecksum checksum_;
  const int64_t object_bytes_;
  const int64_t block_bytes_;
  absl::flat_hash_map<int64_t, uint64_t> seen_;  // hashes of blocks
  std::vector<Part> parts_;  // ascending; none without a checksum
  size_t num_parts_done_ = 0;
  int64_t last_block_ = -1;
  bool compared_ = false;
  absl::Status status_;
};

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_OBJECT_CHECK_H_
