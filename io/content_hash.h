#ifndef ESPALIER_IO_CONTENT_HASH_H_
#define ESPALIER_IO_CONTENT_HASH_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace espalier {

// XXH3 with 64 bits (xxHash 0.8): finds accidents, not forgeries. The bytes
// may come in pieces of any size. Thread-compatible.
class ContentHasher {
 public:
  ContentHasher();
  ~ContentHasher();
  ContentHasher(const ContentHasher&) = delete;
  ContentHasher& operator=(const ContentHasher&) = delete;

  void Update(absl::Span<const uint8_t> bytes);
  void Update(absl::string_view text);
  uint64_t Digest() const;
  // 16 hexadecimal digits.
  std::string HexDigest() const;
  // Begins again.
  void Reset();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The same of bytes that are there at once.
uint64_t ContentHash(absl::string_view bytes);

// "0123456789abcdef"
std::string HexOf(uint64_t hash);

// 32 hexadecimal digits: for names of what must not be taken for another.
std::string WideHash(absl::string_view text);

}  // namespace espalier

#endif  // ESPALIER_IO_CONTENT_HASH_H_
