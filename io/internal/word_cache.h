#ifndef ESPALIER_IO_INTERNAL_WORD_CACHE_H_
#define ESPALIER_IO_INTERNAL_WORD_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace espalier::internal {

// Ids of words met before: one place for each hash, and the latest word keeps
// it. Long words and those of many tokens have none.
class WordCache {
 public:
  static constexpr size_t kMaxBytes = 30;
  static constexpr size_t kMaxIds = 8;

  // One word and its ids, a cache line.
  class Slot {
   public:
    bool Holds(absl::string_view word) const {
      return num_bytes_ == word.size() && Equal(word);
    }
    absl::Span<const int32_t> ids() const { return {ids_, num_ids_}; }
    // Of a word of at most kMaxBytes; nothing is kept for more than kMaxIds.
    void Set(absl::string_view word, absl::Span<const int32_t> ids) {
      if (ids.empty() || ids.size() > kMaxIds) return;
      num_bytes_ = static_cast<uint8_t>(word.size());
      num_ids_ = static_cast<uint8_t>(ids.size());
      std::memcpy(word_, word.data(), word.size());
      std::memcpy(ids_, ids.data(), ids.size() * sizeof(int32_t));
    }

   private:
    template <typename T>
    static T Load(const char* p) {
      T value;
      std::memcpy(&value, p, sizeof(value));
      return value;
    }
    template <typename T>
    bool SameEnds(absl::string_view word) const {
      const size_t last = word.size() - sizeof(T);
      return Load<T>(word_) == Load<T>(word.data()) &&
             Load<T>(word_ + last) == Load<T>(word.data() + last);
    }
    bool Equal(absl::string_view word) const {
      if (word.size() > 16) {
        return std::memcmp(word_, word.data(), word.size()) == 0;
      }
      if (word.size() >= 8) return SameEnds<uint64_t>(word);
      if (word.size() >= 4) return SameEnds<uint32_t>(word);
      if (word.size() >= 2) return SameEnds<uint16_t>(word);
      return word.empty() || word_[0] == word[0];
    }

    uint8_t num_bytes_ = 255;
    uint8_t num_ids_ = 0;
    char word_[kMaxBytes] = {};
    int32_t ids_[kMaxIds] = {};
  };

  // The place of a word of 1 to kMaxBytes bytes.
  Slot& SlotOf(absl::string_view word) {
    if (slots_.empty()) slots_.resize(kNumSlots);
    return slots_[Hash(word)];
  }

 private:
  static constexpr int kLogSlots = 14;
  static constexpr size_t kNumSlots = size_t{1} << kLogSlots;

  static uint64_t LoadUpTo8(const char* p, size_t bytes) {
    uint64_t value = 0;
    if (bytes >= 4) {
      uint32_t low = 0, high = 0;
      std::memcpy(&low, p, 4);
      std::memcpy(&high, p + bytes - 4, 4);
      return low | static_cast<uint64_t>(high) << 32;
    }
    for (size_t i = 0; i < bytes; ++i) {
      value = value << 8 | static_cast<uint8_t>(p[i]);
    }
    return value;
  }
  static size_t Hash(absl::string_view word) {
    constexpr uint64_t kFactor = 0x9E3779B97F4A7C15;
    uint64_t hash = word.size() * 0xC2B2AE3D27D4EB4F;
    const char* p = word.data();
    size_t left = word.size();
    for (; left > 8; left -= 8, p += 8) {
      uint64_t value = 0;
      std::memcpy(&value, p, 8);
      hash = (hash ^ value) * kFactor;
      hash ^= hash >> 29;
    }
    hash = (hash ^ LoadUpTo8(p, left)) * kFactor;
    hash ^= hash >> 32;
    return static_cast<size_t>(hash * kFactor >> (64 - kLogSlots));
  }

  std::vector<Slot> slots_;
};

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_WORD_CACHE_H_
