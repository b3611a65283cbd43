#ifndef ESPALIER_IO_SAFETENSORS_FORMAT_H_
#define ESPALIER_IO_SAFETENSORS_FORMAT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "espalier/runtime/dtype.h"

namespace espalier {

// Every element type of the safetensors format, in the order of its alignment
// rank.
enum class SafetensorsDType : uint8_t {
  kBool,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};

// "BF16", "F8_E4M3", ...: as the header spells it.
absl::string_view ToString(SafetensorsDType dtype);
std::optional<SafetensorsDType> ParseSafetensorsDType(absl::string_view name);
int BitsOf(SafetensorsDType dtype);
// The Tensor dtype with the same meaning; none for those that only travel as
// raw bytes.
std::optional<DType> TensorDType(SafetensorsDType dtype);
SafetensorsDType ToSafetensors(DType dtype);

// One tensor of a file. Byte positions count from the start of the data.
struct SafetensorsEntry {
  std::string name;
  SafetensorsDType dtype = SafetensorsDType::kU8;
  absl::InlinedVector<int64_t, 4> shape;  // in elements, also for F4 and F6
  int64_t begin = 0;
  int64_t end = 0;

  int64_t num_bytes() const { return end - begin; }
};

// "BF16 [2, 3]"
std::string Describe(const SafetensorsEntry& entry);

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the order of their data
  std::vector<uint32_t> by_name;          // indices of entries, names ascending
  std::map<std::string, std::string> metadata;
  std::vector<std::string> warnings;  // unknown fields, each named once

  const SafetensorsEntry* Find(absl::string_view name) const;
};

// Limits of the format's reference reader, and of ours.
inline constexpr int64_t kMaxSafetensorsHeaderBytes = 100'000'000;
inline constexpr int64_t kMaxSafetensorsEntries = 1'000'000;

// Parses and validates the JSON header of a file with `data_bytes` bytes of
// data behind it: types, known dtypes, one owner for every byte (no hole, no
// overlap, no trailing bytes), sizes equal to shape x dtype without overflow,
// no name twice. Nothing is allocated by a number that the text claims.
// Stricter than the reference reader in: duplicate names, entries written as
// arrays, empty names and names with NUL, white space before the first brace,
// rows of F4 and F6 tensors that do not fill whole bytes.
// Fails INVALID_ARGUMENT naming the tensor; DATA_LOSS where the data ends
// before the last tensor does.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json,
                                                         int64_t data_bytes);

}  // namespace espalier

#endif  // ESPALIER_IO_SAFETENSORS_FORMAT_H_
