#ifndef ESPALIER_RUNTIME_INTERNAL_ASAN_H_
#define ESPALIER_RUNTIME_INTERNAL_ASAN_H_

#include <cstdint>

#ifdef ESPALIER_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace espalier::internal {

// Tell AddressSanitizer what may be touched; nothing in other builds.
#ifdef ESPALIER_ASAN
inline constexpr bool kAsan = true;
inline void ForbidAccess(const void* data, int64_t bytes) {
  ASAN_POISON_MEMORY_REGION(data, static_cast<size_t>(bytes));
}
inline void AllowAccess(const void* data, int64_t bytes) {
  ASAN_UNPOISON_MEMORY_REGION(data, static_cast<size_t>(bytes));
}
#else
inline constexpr bool kAsan = false;
inline void ForbidAccess(const void*, int64_t) {}
inline void AllowAccess(const void*, int64_t) {}
#endif

}  // namespace espalier::internal

#endif  // ESPALIER_RUNTIME_INTERNAL_ASAN_H_
