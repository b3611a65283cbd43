#include "espalier/io/internal/safetensors_header_events.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

#include "espalier/io/internal/text.h"

namespace espalier::internal {

namespace {

constexpr size_t kMaxDimsInHeader = 64;
constexpr size_t kMaxWarnings = 16;

}  // namespace

absl::Status SafetensorsHeaderEvents::EntryError(absl::string_view what) const {
  return absl::InvalidArgumentError(
      absl::StrCat("tensor ", Quote(header_.entries.back().name), ": ", what));
}

absl::Status SafetensorsHeaderEvents::Wrong(absl::string_view got) const {
  switch (state_) {
    case State::kStart:
      return absl::InvalidArgumentError(
          absl::StrCat("the header is ", got, ", expected an object"));
    case State::kEntry:
      return EntryError(absl::StrCat("is ", got, ", expected an object"));
    case State::kDType:
      return EntryError(absl::StrCat("dtype is ", got, ", expected a string"));
    case State::kShape:
      return EntryError(absl::StrCat("shape is ", got, ", expected an array"));
    case State::kShapeItems:
      return EntryError(absl::StrCat("shape holds ", got,
                                     ", expected integers from 0 to 2^63-1"));
    case State::kOffsets:
      return EntryError(
          absl::StrCat("data_offsets is ", got, ", expected an array"));
    case State::kOffsetItems:
      return EntryError(absl::StrCat("data_offsets holds ", got,
                                     ", expected integers from 0 to 2^63-1"));
    case State::kMetadata:
      return absl::InvalidArgumentError(
          absl::StrCat("__metadata__ is ", got, ", expected an object"));
    case State::kMetadataValue:
      return absl::InvalidArgumentError(
          absl::StrCat("__metadata__ ", Quote(metadata_key_), " is ", got,
                       ", expected a string"));
    default:
      return absl::InvalidArgumentError(absl::StrCat("unexpected ", got));
  }
}

// A value that no known field may have.
absl::Status SafetensorsHeaderEvents::Scalar(absl::string_view got) {
  if (state_ != State::kUnknown) return Wrong(got);
  if (unknown_depth_ == 0) state_ = State::kField;
  return absl::OkStatus();
}

absl::Status SafetensorsHeaderEvents::Null() {
  if (state_ == State::kMetadata) {
    state_ = State::kName;
    return absl::OkStatus();
  }
  return Scalar("null");
}

absl::Status SafetensorsHeaderEvents::Bool(bool /*value*/) {
  return Scalar("a boolean");
}

absl::Status SafetensorsHeaderEvents::Negative(int64_t /*value*/) {
  return Scalar("a number with a minus sign");
}

absl::Status SafetensorsHeaderEvents::Double(double /*value*/) {
  return Scalar("a number that is no 64-bit integer");
}

absl::Status SafetensorsHeaderEvents::Unsigned(uint64_t value) {
  if (state_ != State::kShapeItems && state_ != State::kOffsetItems) {
    return Scalar("a number");
  }
  if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return Wrong(absl::StrCat(value));
  }
  SafetensorsEntry& entry = header_.entries.back();
  if (state_ == State::kShapeItems) {
    if (entry.shape.size() == kMaxDimsInHeader) {
      return EntryError(
          absl::StrCat("shape has more than ", kMaxDimsInHeader, " dims"));
    }
    entry.shape.push_back(static_cast<int64_t>(value));
    return absl::OkStatus();
  }
  if (num_offsets_ == 2) {
    return EntryError("data_offsets holds more than 2 numbers");
  }
  (num_offsets_ == 0 ? entry.begin : entry.end) = static_cast<int64_t>(value);
  ++num_offsets_;
  return absl::OkStatus();
}

absl::Status SafetensorsHeaderEvents::String(std::string& value) {
  if (state_ == State::kDType) {
    const std::optional<SafetensorsDType> dtype = ParseSafetensorsDType(value);
    if (!dtype) {
      return EntryError(absl::StrCat("unknown dtype ", Quote(value)));
    }
    header_.entries.back().dtype = *dtype;
    state_ = State::kField;
    return absl::OkStatus();
  }
  if (state_ == State::kMetadataValue) {
    const bool inserted =
        header_.metadata.try_emplace(std::move(metadata_key_), std::move(value))
            .second;
    if (!inserted) {
      return absl::InvalidArgumentError(
          absl::StrCat("__metadata__ names ", Quote(metadata_key_), " twice"));
    }
    state_ = State::kMetadataKey;
    return absl::OkStatus();
  }
  return Scalar("a string");
}

absl::Status SafetensorsHeaderEvents::StartObject() {
  switch (state_) {
    case State::kStart:
      state_ = State::kName;
      return absl::OkStatus();
    case State::kEntry:
      has_dtype_ = has_shape_ = has_offsets_ = false;
      state_ = State::kField;
      return absl::OkStatus();
    case State::kMetadata:
      state_ = State::kMetadataKey;
      return absl::OkStatus();
    case State::kUnknown:
      ++unknown_depth_;
      return absl::OkStatus();
    default:
      return Wrong("an object");
  }
}

absl::Status SafetensorsHeaderEvents::StartName(std::string& name) {
  if (name == "__metadata__") {
    if (has_metadata_) {
      return absl::InvalidArgumentError("__metadata__ stands twice");
    }
    has_metadata_ = true;
    state_ = State::kMetadata;
    return absl::OkStatus();
  }
  if (name.empty()) return absl::InvalidArgumentError("empty tensor name");
  if (name.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("NUL in tensor name ", Quote(name)));
  }
  if (header_.entries.size() == static_cast<size_t>(kMaxSafetensorsEntries)) {
    return absl::InvalidArgumentError(
        absl::StrCat("more than ", kMaxSafetensorsEntries, " tensors"));
  }
  header_.entries.emplace_back().name = std::move(name);
  state_ = State::kEntry;
  return absl::OkStatus();
}

absl::Status SafetensorsHeaderEvents::StartField(absl::string_view field) {
  bool* seen = nullptr;
  if (field == "dtype") {
    seen = &has_dtype_;
    state_ = State::kDType;
  } else if (field == "shape") {
    seen = &has_shape_;
    state_ = State::kShape;
  } else if (field == "data_offsets") {
    seen = &has_offsets_;
    state_ = State::kOffsets;
  } else {
    std::string warning = absl::StrCat("unknown field ", Quote(field));
    std::vector<std::string>& warnings = header_.warnings;
    if (warnings.size() < kMaxWarnings &&
        std::find(warnings.begin(), warnings.end(), warning) ==
            warnings.end()) {
      warnings.push_back(std::move(warning));
    }
    state_ = State::kUnknown;
    unknown_depth_ = 0;
    return absl::OkStatus();
  }
  if (*seen) {
    return EntryError(absl::StrCat("field ", Quote(field), " stands twice"));
  }
  *seen = true;
  return absl::OkStatus();
}

absl::Status SafetensorsHeaderEvents::Key(std::string& key) {
  switch (state_) {
    case State::kName:
      return StartName(key);
    case State::kField:
      return StartField(key);
    case State::kMetadataKey:
      metadata_key_ = std::move(key);
      state_ = State::kMetadataValue;
      return absl::OkStatus();
    default:
      return absl::OkStatus();  // inside an unknown field
  }
}

absl::Status SafetensorsHeaderEvents::EndEntry() {
  if (!has_dtype_) return EntryError("dtype is missing");
  if (!has_shape_) return EntryError("shape is missing");
  if (!has_offsets_) return EntryError("data_offsets is missing");
  state_ = State::kName;
  return absl::OkStatus();
}

absl::Status SafetensorsHeaderEvents::EndObject() {
  switch (state_) {
    case State::kName:
      state_ = State::kDone;
      return absl::OkStatus();
    case State::kField:
      return EndEntry();
    case State::kMetadataKey:
      state_ = State::kName;
      return absl::OkStatus();
    default:
      if (--unknown_depth_ == 0) state_ = State::kField;
      return absl::OkStatus();
  }
}

absl::Status SafetensorsHeaderEvents::StartArray() {
  switch (state_) {
    case State::kShape:
      state_ = State::kShapeItems;
      return absl::OkStatus();
    case State::kOffsets:
      num_offsets_ = 0;
      state_ = State::kOffsetItems;
      return absl::OkStatus();
    case State::kUnknown:
      ++unknown_depth_;
      return absl::OkStatus();
    default:
      return Wrong("an array");
  }
}

absl::Status SafetensorsHeaderEvents::EndArray() {
  switch (state_) {
    case State::kShapeItems:
      state_ = State::kField;
      return absl::OkStatus();
    case State::kOffsetItems:
      if (num_offsets_ != 2) {
        return EntryError(absl::StrCat("data_offsets holds ", num_offsets_,
                                       " numbers, expected 2"));
      }
      state_ = State::kField;
      return absl::OkStatus();
    default:
      if (--unknown_depth_ == 0) state_ = State::kField;
      return absl::OkStatus();
  }
}

}  // namespace espalier::internal
