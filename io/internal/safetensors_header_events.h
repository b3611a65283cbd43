#ifndef ESPALIER_IO_INTERNAL_SAFETENSORS_HEADER_EVENTS_H_
#define ESPALIER_IO_INTERNAL_SAFETENSORS_HEADER_EVENTS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "espalier/io/internal/json_parser.h"
#include "espalier/io/safetensors_format.h"

namespace espalier::internal {

// Fills entries (in the order of the text), metadata and warnings from the
// JSON header; refuses what has the wrong type. Layout, sizes and duplicate
// tensor names are checked afterwards.
class SafetensorsHeaderEvents final : public JsonEvents {
 public:
  explicit SafetensorsHeaderEvents(SafetensorsHeader& header)
      : header_(header) {}

  absl::Status Null() override;
  absl::Status Bool(bool value) override;
  absl::Status Unsigned(uint64_t value) override;
  absl::Status Negative(int64_t value) override;
  absl::Status Double(double value) override;
  absl::Status String(std::string& value) override;
  absl::Status StartObject() override;
  absl::Status Key(std::string& key) override;
  absl::Status EndObject() override;
  absl::Status StartArray() override;
  absl::Status EndArray() override;

 private:
  enum class State : uint8_t {
    kStart,          // before the outer brace
    kName,           // in the outer object, before a key
    kEntry,          // after a tensor's name
    kMetadata,       // after "__metadata__"
    kField,          // in a tensor's object, before a key
    kDType,          // after "dtype"
    kShape,          // after "shape"
    kShapeItems,     // in its array
    kOffsets,        // after "data_offsets"
    kOffsetItems,    // in its array
    kMetadataKey,    // in the metadata object, before a key
    kMetadataValue,  // after such a key
    kUnknown,        // a value of a field that we do not know
    kDone,           // after the outer brace
  };

  absl::Status Scalar(absl::string_view got);
  absl::Status Wrong(absl::string_view got) const;
  absl::Status EntryError(absl::string_view what) const;
  absl::Status StartName(std::string& name);
  absl::Status StartField(absl::string_view field);
  absl::Status EndEntry();

  SafetensorsHeader& header_;
  State state_ = State::kStart;
  int unknown_depth_ = 0;
  int num_offsets_ = 0;
  bool has_dtype_ = false;
  bool has_shape_ = false;
  bool has_offsets_ = false;
  bool has_metadata_ = false;
  std::string metadata_key_;
};

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_SAFETENSORS_HEADER_EVENTS_H_
