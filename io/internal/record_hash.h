#ifndef ESPALIER_IO_INTERNAL_RECORD_HASH_H_
#define ESPALIER_IO_INTERNAL_RECORD_HASH_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace espalier::internal {

// FNV-1a of 64 bits and a finisher (the last steps of MurmurHash3), so that its
// high bits divide short texts evenly. Part of file formats: never changes.
inline uint64_t RecordHash(absl::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : bytes) {
    hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  }
  hash = (hash ^ (hash >> 33)) * 0xff51afd7ed558ccdu;
  hash = (hash ^ (hash >> 33)) * 0xc4ceb9fe1a85ec53u;
  return hash ^ (hash >> 33);
}

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_RECORD_HASH_H_
