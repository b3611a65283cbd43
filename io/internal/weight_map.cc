#include "espalier/io/internal/weight_map.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "espalier/io/internal/file.h"
#include "espalier/io/internal/json_parser.h"
#include "espalier/io/internal/text.h"

namespace espalier::internal {

namespace {

class WeightMapEvents final : public JsonEvents {
 public:
  using Visit = absl::FunctionRef<absl::Status(const std::string& tensor,
                                               const std::string& file)>;

  explicit WeightMapEvents(Visit visit) : visit_(visit) {}

  bool has_map() const { return has_map_; }
  const std::string& total_size() const { return total_size_; }

  absl::Status Null() override {
    NoteSize("null");
    return Value("null");
  }
  absl::Status Bool(bool /*value*/) override {
    NoteSize("a boolean");
    return Value("a boolean");
  }
  absl::Status Unsigned(uint64_t value) override {
    NoteSize(absl::StrCat(value));
    return Value("a number");
  }
  absl::Status Negative(int64_t value) override {
    NoteSize(absl::StrCat(value));
    return Value("a number");
  }
  // Some savers write 1.5e10 for a number of bytes.
  absl::Status Double(double value) override {
    NoteSize(absl::StrFormat("%.17g", value));
    return Value("a number");
  }
  absl::Status String(std::string& value) override {
    NoteSize(Quote(value));
    if (depth_ != 2 || !in_map_) return Value("a string");
    if (!IsBareFileName(value)) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", Quote(tensor_), " is mapped to ",
                       Quote(value), ", which is not a plain file name"));
    }
    return visit_(tensor_, value);
  }
  absl::Status StartObject() override { return Start("an object", true); }
  absl::Status StartArray() override { return Start("an array", false); }
  absl::Status Key(std::string& key) override {
    if (depth_ == 1) {
      in_map_ = key == "weight_map";
      if (in_map_ && has_map_) {
        return absl::InvalidArgumentError("weight_map stands twice");
      }
      has_map_ = has_map_ || in_map_;
      in_metadata_ = key == "metadata";
    } else if (depth_ == 2 && in_metadata_) {
      in_size_ = key == "total_size";
    } else if (depth_ == 2 && in_map_) {
      tensor_ = std::move(key);
    }
    return absl::OkStatus();
  }
  absl::Status EndObject() override { return End(); }
  absl::Status EndArray() override { return End(); }

 private:
  void NoteSize(absl::string_view text) {
    if (depth_ == 2 && in_metadata_ && in_size_) {
      total_size_ = std::string(text);
    }
  }
  absl::Status Value(absl::string_view got) const {
    if (depth_ == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("the index is ", got, ", expected an object"));
    }
    if (!in_map_) return absl::OkStatus();
    if (depth_ == 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("weight_map is ", got, ", expected an object"));
    }
    return absl::InvalidArgumentError(absl::StrCat("tensor ", Quote(tensor_),
                                                   " is mapped to ", got,
                                                   ", expected a file name"));
  }
  absl::Status Start(absl::string_view got, bool object) {
    NoteSize(got);
    const bool allowed = !in_map_ || (object && depth_ == 1);
    if ((depth_ == 0 && !object) || !allowed) return Value(got);
    ++depth_;
    return absl::OkStatus();
  }
  absl::Status End() {
    if (--depth_ == 1) in_map_ = false;
    return absl::OkStatus();
  }

  const Visit visit_;
  std::string tensor_;
  int depth_ = 0;
  bool in_map_ = false;
  bool has_map_ = false;
  bool in_metadata_ = false;
  bool in_size_ = false;
  std::string total_size_;
};

}  // namespace

absl::Status VisitWeightMap(absl::string_view json,
                            WeightMapEvents::Visit visit,
                            std::string* total_size) {
  WeightMapEvents events(visit);
  if (absl::Status status = ParseJson(json, events); !status.ok()) {
    return status;
  }
  if (total_size != nullptr) *total_size = events.total_size();
  return events.has_map() ? absl::OkStatus()
                          : absl::InvalidArgumentError("weight_map is missing");
}

}  // namespace espalier::internal
