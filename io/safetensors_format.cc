#include "espalier/io/safetensors_format.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "espalier/io/internal/safetensors_header_events.h"
#include "espalier/io/internal/text.h"

namespace espalier {

namespace {

struct DTypeRow {
  absl::string_view name;
  int bits;
  std::optional<DType> tensor;
};

constexpr int kNumDTypes = 22;

const DTypeRow& RowOf(SafetensorsDType dtype) {
  static constexpr std::array<DTypeRow, kNumDTypes> kRows = {{
      {"BOOL", 8, kBool},
      {"F4", 4, std::nullopt},
      {"F6_E2M3", 6, std::nullopt},
      {"F6_E3M2", 6, std::nullopt},
      {"U8", 8, kU8},
      {"I8", 8, std::nullopt},
      {"F8_E5M2", 8, std::nullopt},
      {"F8_E4M3", 8, std::nullopt},
      {"F8_E8M0", 8, std::nullopt},
      {"F8_E4M3FNUZ", 8, std::nullopt},
      {"F8_E5M2FNUZ", 8, std::nullopt},
      {"I16", 16, std::nullopt},
      {"U16", 16, std::nullopt},
      {"F16", 16, kF16},
      {"BF16", 16, kBF16},
      {"I32", 32, kI32},
      {"U32", 32, std::nullopt},
      {"F32", 32, kF32},
      {"C64", 64, std::nullopt},
      {"F64", 64, kF64},
      {"I64", 64, kI64},
      {"U64", 64, std::nullopt},
  }};
  return kRows[static_cast<size_t>(dtype)];
}

absl::Status Bad(const SafetensorsEntry& entry, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("tensor ", internal::Quote(entry.name), ": ", what));
}

// The bytes that shape and dtype ask for must be the bytes that it owns.
absl::Status CheckSize(const SafetensorsEntry& entry) {
  uint64_t elements = 1;
  for (const int64_t extent : entry.shape) {
    if (__builtin_mul_overflow(elements, static_cast<uint64_t>(extent),
                               &elements)) {
      return Bad(entry, absl::StrCat("number of elements of ", Describe(entry),
                                     " overflows"));
    }
  }
  const uint64_t width = static_cast<uint64_t>(BitsOf(entry.dtype));
  uint64_t bits = 0;
  if (__builtin_mul_overflow(elements, width, &bits)) {
    return Bad(entry, absl::StrCat("size of ", Describe(entry), " overflows"));
  }
  const uint64_t row =
      entry.shape.empty() ? 1 : static_cast<uint64_t>(entry.shape.back());
  if (bits % 8 != 0 || (width < 8 && row % 8 * width % 8 != 0)) {
    return Bad(entry, absl::StrCat("rows of ", Describe(entry),
                                   " do not fill whole bytes"));
  }
  if (bits / 8 != static_cast<uint64_t>(entry.num_bytes())) {
    return Bad(entry,
               absl::StrCat(Describe(entry), " takes ", bits / 8,
                            " bytes, data_offsets give ", entry.num_bytes()));
  }
  return absl::OkStatus();
}

absl::Status CheckLayout(std::vector<SafetensorsEntry>& entries,
                         int64_t data_bytes) {
  std::sort(entries.begin(), entries.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
              return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
            });
  int64_t position = 0;
  for (const SafetensorsEntry& entry : entries) {
    const std::string offsets =
        absl::StrCat("data_offsets [", entry.begin, ", ", entry.end, "]");
    if (entry.end < entry.begin) {
      return Bad(entry, absl::StrCat(offsets, " run backwards"));
    }
    if (entry.begin != position) {
      return Bad(entry, absl::StrCat(offsets,
                                     entry.begin > position
                                         ? " leave a hole"
                                         : " overlap another tensor",
                                     ", expected to begin at ", position));
    }
    position = entry.end;
  }
  for (const SafetensorsEntry& entry : entries) {
    if (absl::Status status = CheckSize(entry); !status.ok()) return status;
  }
  if (position < data_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(data_bytes - position,
                     " trailing bytes: the header "
                     "accounts for ",
                     position, " bytes of data, got ", data_bytes));
  }
  if (position > data_bytes) {
    const auto cut = std::find_if(
        entries.begin(), entries.end(),
        [&](const SafetensorsEntry& e) { return e.end > data_bytes; });
    return absl::DataLossError(absl::StrCat(
        "cut short: the header accounts for ", position, " bytes of data, got ",
        data_bytes, "; the first tensor affected is ",
        internal::Quote(cut->name)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::string_view ToString(SafetensorsDType dtype) { return RowOf(dtype).name; }

std::optional<SafetensorsDType> ParseSafetensorsDType(absl::string_view name) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const SafetensorsDType dtype = static_cast<SafetensorsDType>(i);
    if (RowOf(dtype).name == name) return dtype;
  }
  return std::nullopt;
}

int BitsOf(SafetensorsDType dtype) { return RowOf(dtype).bits; }

std::optional<DType> TensorDType(SafetensorsDType dtype) {
  return RowOf(dtype).tensor;
}

SafetensorsDType ToSafetensors(DType dtype) {
  switch (dtype) {
    case kF64:
      return SafetensorsDType::kF64;
    case kF32:
      return SafetensorsDType::kF32;
    case kBF16:
      return SafetensorsDType::kBF16;
    case kF16:
      return SafetensorsDType::kF16;
    case kI64:
      return SafetensorsDType::kI64;
    case kI32:
      return SafetensorsDType::kI32;
    case kU8:
      return SafetensorsDType::kU8;
    case kBool:
      return SafetensorsDType::kBool;
  }
  return SafetensorsDType::kU8;
}

std::string Describe(const SafetensorsEntry& entry) {
  return absl::StrCat(ToString(entry.dtype), " [",
                      absl::StrJoin(entry.shape, ", "), "]");
}

const SafetensorsEntry* SafetensorsHeader::Find(absl::string_view name) const {
  const auto found =
      std::lower_bound(by_name.begin(), by_name.end(), name,
                       [&](uint32_t i, absl::string_view key) {
                         return absl::string_view(entries[i].name) < key;
                       });
  if (found == by_name.end() || entries[*found].name != name) return nullptr;
  return &entries[*found];
}

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json,
                                                         int64_t data_bytes) {
  if (json.empty() || json[0] != '{') {
    return absl::InvalidArgumentError("the header does not begin with \"{\"");
  }
  SafetensorsHeader header;
  internal::SafetensorsHeaderEvents events(header);
  if (absl::Status status = internal::ParseJson(json, events); !status.ok()) {
    return status;
  }
  if (absl::Status status = CheckLayout(header.entries, data_bytes);
      !status.ok()) {
    return status;
  }
  std::vector<SafetensorsEntry>& entries = header.entries;
  header.by_name.resize(entries.size());
  for (uint32_t i = 0; i < entries.size(); ++i) header.by_name[i] = i;
  std::sort(header.by_name.begin(), header.by_name.end(),
            [&](uint32_t a, uint32_t b) {
              return entries[a].name < entries[b].name;
            });
  const auto twice =
      std::adjacent_find(header.by_name.begin(), header.by_name.end(),
                         [&](uint32_t a, uint32_t b) {
                           return entries[a].name == entries[b].name;
                         });
  if (twice != header.by_name.end()) {
    return Bad(entries[*twice], "named twice");
  }
  return header;
}

}  // namespace espalier
