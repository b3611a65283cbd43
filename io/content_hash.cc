#include "espalier/io/content_hash.h"

#include "absl/strings/str_cat.h"

// Compiled in, so that the vector units of this build are used and no library
// is needed at run time.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace espalier {

struct ContentHasher::State {
  XXH3_state_t xxh;
};

ContentHasher::ContentHasher() : state_(std::make_unique<State>()) { Reset(); }

ContentHasher::~ContentHasher() = default;

void ContentHasher::Reset() { XXH3_64bits_reset(&state_->xxh); }

void ContentHasher::Update(absl::Span<const uint8_t> bytes) {
  XXH3_64bits_update(&state_->xxh, bytes.data(), bytes.size());
}

void ContentHasher::Update(absl::string_view text) {
  XXH3_64bits_update(&state_->xxh, text.data(), text.size());
}

uint64_t ContentHasher::Digest() const {
  return XXH3_64bits_digest(&state_->xxh);
}

std::string ContentHasher::HexDigest() const { return HexOf(Digest()); }

uint64_t ContentHash(absl::string_view bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::string HexOf(uint64_t hash) {
  return absl::StrCat(absl::Hex(hash, absl::kZeroPad16));
}

std::string WideHash(absl::string_view text) {
  return absl::StrCat(HexOf(ContentHash(text)),
                      HexOf(ContentHash(absl::StrCat("2", text))));
}

}  // namespace espalier
