#ifndef ESPALIER_RUNTIME_DTYPE_H_
#define ESPALIER_RUNTIME_DTYPE_H_

#include <cstdint>

#include "absl/strings/string_view.h"

#include "espalier/runtime/float16.h"

namespace espalier {

// Element types of a Tensor. Packed weight formats are not among them: those
// are PackedWeight (runtime/packed_weight.h).
enum class DType : uint8_t { kF64, kF32, kBF16, kF16, kI64, kI32, kU8, kBool };

inline constexpr DType kF64 = DType::kF64;
inline constexpr DType kF32 = DType::kF32;
inline constexpr DType kBF16 = DType::kBF16;
inline constexpr DType kF16 = DType::kF16;
inline constexpr DType kI64 = DType::kI64;
inline constexpr DType kI32 = DType::kI32;
inline constexpr DType kU8 = DType::kU8;
inline constexpr DType kBool = DType::kBool;

// Bytes of one element.
constexpr int64_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kI64:
      return 8;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
    case DType::kF16:
      return 2;
    case DType::kU8:
    case DType::kBool:
      return 1;
  }
  return 0;
}

constexpr bool IsFloat(DType dtype) {
  return dtype == kF64 || dtype == kF32 || dtype == kBF16 || dtype == kF16;
}

// "f32", "bf16", ...
absl::string_view ToString(DType dtype);

template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<double> {
  static constexpr DType value = kF64;
};
template <>
struct DTypeOf<float> {
  static constexpr DType value = kF32;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = kBF16;
};
template <>
struct DTypeOf<Float16> {
  static constexpr DType value = kF16;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = kI64;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = kI32;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = kU8;
};
template <>
struct DTypeOf<bool> {
  static constexpr DType value = kBool;
};

}  // namespace espalier

#endif  // ESPALIER_RUNTIME_DTYPE_H_
