#include "espalier/io/internal/gguf_parser.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"

#include "espalier/io/internal/text.h"

namespace espalier::internal {

namespace {

constexpr int64_t kBufferBytes = int64_t{1} << 16;
constexpr uint64_t kMaxStringBytes = uint64_t{1} << 24;
constexpr uint64_t kMaxKeys = 65536;
constexpr uint64_t kMaxTensors = 1'000'000;
constexpr uint32_t kMaxDims = 4;
constexpr uint32_t kStringType = 8;
constexpr uint32_t kArrayType = 9;
// Bytes of a value of each type; 0 for strings and arrays.
constexpr int64_t kValueBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
constexpr uint32_t kNumTypes = 13;

absl::Status Bad(absl::string_view what) {
  return absl::InvalidArgumentError(what);
}

bool IsSupported(uint32_t type) {
  switch (static_cast<GgmlType>(type)) {
    case GgmlType::kF32:
    case GgmlType::kF16:
    case GgmlType::kQ40:
    case GgmlType::kQ41:
    case GgmlType::kQ80:
    case GgmlType::kQ4K:
    case GgmlType::kQ6K:
    case GgmlType::kBF16:
      return true;
  }
  return false;
}

}  // namespace

absl::Status GgufParser::Bytes(absl::Span<uint8_t> out) {
  const int64_t count = static_cast<int64_t>(out.size());
  if (count > file_.size() - at_) {
    return absl::DataLossError(absl::StrCat("ends at byte ", file_.size(),
                                            ", expected ", count,
                                            " more from byte ", at_));
  }
  if (count > kBufferBytes) {
    absl::Status status = file_.ReadAt(at_, out);
    at_ += count;
    return status;
  }
  const int64_t held = static_cast<int64_t>(buffer_.size());
  if (at_ < buffer_begin_ || at_ + count > buffer_begin_ + held) {
    buffer_begin_ = at_;
    buffer_.resize(
        static_cast<size_t>(std::min(kBufferBytes, file_.size() - at_)));
    absl::Status status = file_.ReadAt(at_, absl::MakeSpan(buffer_));
    if (!status.ok()) return status;
  }
  std::copy_n(buffer_.begin() + (at_ - buffer_begin_), count, out.begin());
  at_ += count;
  return absl::OkStatus();
}

absl::Status GgufParser::Skip(int64_t count) {
  if (count > file_.size() - at_) {
    return absl::DataLossError(absl::StrCat("ends at byte ", file_.size(),
                                            ", expected ", count,
                                            " more from byte ", at_));
  }
  at_ += count;
  return absl::OkStatus();
}

template <typename T>
absl::Status GgufParser::Number(T* value) {
  return Bytes(
      absl::MakeSpan(reinterpret_cast<uint8_t*>(value), sizeof(*value)));
}

absl::Status GgufParser::String(std::string* text) {
  uint64_t length = 0;
  if (absl::Status status = Number(&length); !status.ok()) return status;
  if (length > kMaxStringBytes) {
    return Bad(absl::StrCat("a string of ", length, " bytes at byte ", at_ - 8,
                            ", expected at most ", kMaxStringBytes));
  }
  if (static_cast<int64_t>(length) > file_.size() - at_) {
    return absl::DataLossError(
        absl::StrCat("a string of ", length, " bytes at byte ", at_ - 8,
                     ", but the file has ", file_.size(), " bytes in all"));
  }
  text->resize(static_cast<size_t>(length));
  return Bytes(
      absl::MakeSpan(reinterpret_cast<uint8_t*>(text->data()), text->size()));
}

absl::Status GgufParser::Scalar(uint32_t type, JsonValue* value) {
  if (type == kStringType) {
    std::string text;
    absl::Status status = String(&text);
    *value = JsonValue(std::move(text));
    return status;
  }
  uint8_t bytes[8] = {};
  absl::Status status =
      Bytes(absl::MakeSpan(bytes, static_cast<size_t>(kValueBytes[type])));
  if (!status.ok()) return status;
  const auto as = [&](auto number) {
    std::memcpy(&number, bytes, sizeof(number));
    return number;
  };
  const auto integer = [&](auto number) {
    *value = JsonValue(static_cast<int64_t>(as(number)));
  };
  switch (type) {
    case 0:
      integer(uint8_t{});
      break;
    case 1:
      integer(int8_t{});
      break;
    case 2:
      integer(uint16_t{});
      break;
    case 3:
      integer(int16_t{});
      break;
    case 4:
      integer(uint32_t{});
      break;
    case 5:
      integer(int32_t{});
      break;
    case 6:
      *value = JsonValue(static_cast<double>(as(float{})));
      break;
    case 7:
      if (bytes[0] > 1) return Bad("a boolean that is neither 0 nor 1");
      *value = JsonValue(bytes[0] == 1);
      break;
    case 10: {
      const uint64_t number = as(uint64_t{});
      if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return Bad(absl::StrCat("the number ", number, " is too large"));
      }
      *value = JsonValue(static_cast<int64_t>(number));
      break;
    }
    case 11:
      integer(int64_t{});
      break;
    default:
      *value = JsonValue(as(double{}));
  }
  return absl::OkStatus();
}

absl::Status GgufParser::Array(GgufValue& value) {
  uint64_t count = 0;
  if (absl::Status s = Number(&value.element); !s.ok()) return s;
  if (absl::Status s = Number(&count); !s.ok()) return s;
  if (value.element >= kNumTypes) {
    return absl::UnimplementedError(
        absl::StrCat("an array of type ", value.element));
  }
  if (value.element == kArrayType) {
    return absl::UnimplementedError("an array of arrays");
  }
  const uint64_t least =
      value.element == kStringType
          ? 8
          : static_cast<uint64_t>(kValueBytes[value.element]);
  if (count > static_cast<uint64_t>(file_.size() - at_) / least) {
    return absl::DataLossError(absl::StrCat("an array of ", count,
                                            " elements, but the file has ",
                                            file_.size(), " bytes in all"));
  }
  value.is_array = true;
  value.count = static_cast<int64_t>(count);
  value.begin = at_;
  if (value.element != kStringType) {
    return Skip(value.count * static_cast<int64_t>(least));
  }
  for (int64_t i = 0; i < value.count; ++i) {
    uint64_t length = 0;
    if (absl::Status s = Number(&length); !s.ok()) return s;
    if (length > kMaxStringBytes) {
      return Bad(absl::StrCat("a string of ", length, " bytes"));
    }
    if (absl::Status s = Skip(static_cast<int64_t>(length)); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status GgufParser::Metadata(uint64_t count,
                                  std::map<std::string, GgufValue>& metadata) {
  for (uint64_t i = 0; i < count; ++i) {
    std::string key;
    uint32_t type = 0;
    if (absl::Status s = String(&key); !s.ok()) return s;
    if (absl::Status s = Number(&type); !s.ok()) return s;
    GgufValue value;
    absl::Status status;
    if (type >= kNumTypes) {
      status = absl::UnimplementedError(absl::StrCat("value type ", type));
    } else {
      status = type == kArrayType ? Array(value) : Scalar(type, &value.scalar);
    }
    if (!status.ok()) {
      return absl::Status(status.code(), absl::StrCat("key ", Quote(key), ": ",
                                                      status.message()));
    }
    if (!metadata.try_emplace(key, std::move(value)).second) {
      return Bad(absl::StrCat("key ", Quote(key), " stands twice"));
    }
  }
  return absl::OkStatus();
}

absl::Status GgufParser::Tensor(GgufTensor& tensor) {
  uint32_t num_dims = 0;
  uint32_t type = 0;
  uint64_t offset = 0;
  if (absl::Status s = String(&tensor.name); !s.ok()) return s;
  const auto bad = [&](absl::string_view what) {
    return Bad(absl::StrCat("tensor ", Quote(tensor.name), ": ", what));
  };
  if (absl::Status s = Number(&num_dims); !s.ok()) return s;
  if (num_dims < 1 || num_dims > kMaxDims) {
    return bad(absl::StrCat(num_dims, " dims, expected 1 to ", kMaxDims));
  }
  int64_t elements = 1;
  for (uint32_t i = 0; i < num_dims; ++i) {
    uint64_t extent = 0;
    if (absl::Status s = Number(&extent); !s.ok()) return s;
    if (extent < 1 || extent > (uint64_t{1} << 48) ||
        __builtin_mul_overflow(elements, static_cast<int64_t>(extent),
                               &elements)) {
      return bad("its shape is empty or overflows");
    }
    tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(extent));
  }
  if (absl::Status s = Number(&type); !s.ok()) return s;
  if (absl::Status s = Number(&offset); !s.ok()) return s;
  if (!IsSupported(type)) {
    return absl::UnimplementedError(absl::StrCat(
        "tensor ", Quote(tensor.name), ": ggml type ", type,
        " is not known, expected F32 (0), F16 (1), Q4_0 (2), Q4_1 (3), Q8_0 "
        "(8), Q4_K (12), Q6_K (14) or BF16 (30)"));
  }
  tensor.type = static_cast<GgmlType>(type);
  const int64_t block = BlockElements(tensor.type);
  if (tensor.columns() % block != 0) {
    return bad(absl::StrCat("rows of ", tensor.columns(), " elements of ",
                            ToString(tensor.type), ", expected a multiple of ",
                            block));
  }
  if (__builtin_mul_overflow(elements / block, BlockBytes(tensor.type),
                             &tensor.num_bytes) ||
      offset > static_cast<uint64_t>(file_.size())) {
    return bad("its data lies beyond the end of the file");
  }
  tensor.begin = static_cast<int64_t>(offset);  // from the data, until placed
  return absl::OkStatus();
}

absl::Status GgufParser::Place(int64_t alignment,
                               std::vector<GgufTensor>& tensors) {
  const int64_t start = (at_ + alignment - 1) / alignment * alignment;
  std::vector<GgufTensor*> order;
  absl::flat_hash_set<absl::string_view> names;
  for (GgufTensor& tensor : tensors) {
    if (!names.insert(tensor.name).second) {
      return Bad(absl::StrCat("tensor ", Quote(tensor.name), " stands twice"));
    }
    if (tensor.begin % alignment != 0) {
      return Bad(absl::StrCat("tensor ", Quote(tensor.name), ": offset ",
                              tensor.begin, " is no multiple of ", alignment));
    }
    tensor.begin += start;
    if (tensor.num_bytes > file_.size() - tensor.begin) {
      return absl::DataLossError(
          absl::StrCat("tensor ", Quote(tensor.name), ": ", tensor.num_bytes,
                       " bytes from byte ", tensor.begin, ", but the file has ",
                       file_.size(), " bytes in all"));
    }
    order.push_back(&tensor);
  }
  std::sort(order.begin(), order.end(),
            [](const GgufTensor* a, const GgufTensor* b) {
              return a->begin < b->begin;
            });
  for (size_t i = 1; i < order.size(); ++i) {
    if (order[i]->begin < order[i - 1]->begin + order[i - 1]->num_bytes) {
      return Bad(absl::StrCat("tensors ", Quote(order[i - 1]->name), " and ",
                              Quote(order[i]->name), " overlap"));
    }
  }
  return absl::OkStatus();
}

absl::Status GgufParser::Parse(std::map<std::string, GgufValue>& metadata,
                               std::vector<GgufTensor>& tensors) {
  uint8_t magic[4] = {};
  uint32_t version = 0;
  uint64_t num_tensors = 0;
  uint64_t num_keys = 0;
  if (absl::Status s = Bytes(absl::MakeSpan(magic)); !s.ok()) return s;
  if (std::memcmp(magic, "GGUF", 4) != 0) {
    return Bad("does not begin with GGUF");
  }
  if (absl::Status s = Number(&version); !s.ok()) return s;
  if (version != 2 && version != 3) {
    return absl::UnimplementedError(absl::StrCat(
        "GGUF version ", version, ", expected 2 or 3 in little-endian order"));
  }
  if (absl::Status s = Number(&num_tensors); !s.ok()) return s;
  if (absl::Status s = Number(&num_keys); !s.ok()) return s;
  if (num_tensors > kMaxTensors || num_keys > kMaxKeys) {
    return Bad(absl::StrCat(num_tensors, " tensors and ", num_keys,
                            " keys, expected at most ", kMaxTensors, " and ",
                            kMaxKeys));
  }
  if (absl::Status s = Metadata(num_keys, metadata); !s.ok()) return s;
  for (uint64_t i = 0; i < num_tensors; ++i) {
    if (absl::Status s = Tensor(tensors.emplace_back()); !s.ok()) return s;
  }
  int64_t alignment = 32;
  const auto found = metadata.find("general.alignment");
  if (found != metadata.end()) {
    const int64_t* value = found->second.scalar.AsInt();
    if (value == nullptr || *value < 8 || *value > (1 << 20) ||
        (*value & (*value - 1)) != 0) {
      return Bad("general.alignment is no power of two from 8 to 2^20");
    }
    alignment = *value;
  }
  return Place(alignment, tensors);
}

}  // namespace espalier::internal
