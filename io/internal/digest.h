#ifndef ESPALIER_IO_INTERNAL_DIGEST_H_
#define ESPALIER_IO_INTERNAL_DIGEST_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "espalier/io/object_store.h"

// libcrypto's
struct evp_md_ctx_st;

namespace espalier::internal {

// A hash whose bytes come in their order. Movable. Thread-compatible.
class DigestContext {
 public:
  DigestContext() = default;  // has no state until Update
  // `kind` is the same with each call and no CRC.
  void Update(ObjectChecksum::Kind kind, absl::Span<const uint8_t> bytes);
  // Bytes of the hash; of no state, the empty hash. Ends it.
  std::string Finish();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

// The checksum of bytes that are there at once, most significant byte first.
std::string DigestOf(ObjectChecksum::Kind kind, absl::string_view bytes);

// A CRC as a store writes it.
bool IsCrc(ObjectChecksum::Kind kind);
uint64_t CrcOf(ObjectChecksum::Kind kind, absl::Span<const uint8_t> bytes);
uint64_t ShiftCrc(ObjectChecksum::Kind kind, uint64_t crc, int64_t num_bytes);
std::string CrcBytes(ObjectChecksum::Kind kind, uint64_t crc);

// Bytes of a checksum; 0 for kNone.
size_t DigestSize(ObjectChecksum::Kind kind);

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_DIGEST_H_
