#include "espalier/io/internal/weight_map.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

#include "espalier/io/internal/file.h"
#include "espalier/io/internal/json_parser.h"
#include "espalier/io/internal/text.h"

namespace espalier::internal {

namespace {

class WeightMapEvents final : public JsonEvents {
 public:
  explicit WeightMapEvents(WeightMap& map) : map_(map) {}

  bool has_map() const { return has_map_; }

  absl::Status Null() override { return Value("null"); }
  absl::Status Bool(bool /*value*/) override { return Value("a boolean"); }
  absl::Status Unsigned(uint64_t /*value*/) override {
    return Value("a number");
  }
  absl::Status Negative(int64_t /*value*/) override {
    return Value("a number");
  }
  absl::Status Double(double /*value*/) override { return Value("a number"); }
  absl::Status String(std::string& value) override {
    if (depth_ != 2 || !in_map_) return Value("a string");
    if (!IsBareFileName(value)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", Quote(map_.items.back().tensor), " is mapped to ",
          Quote(value), ", which is not a plain file name"));
    }
    const uint32_t next = static_cast<uint32_t>(map_.files.size());
    const auto [found, inserted] = files_.try_emplace(value, next);
    if (inserted) map_.files.push_back(std::move(value));
    map_.items.back().file = found->second;
    return absl::OkStatus();
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
    } else if (depth_ == 2 && in_map_) {
      map_.items.push_back({std::move(key), 0});
    }
    return absl::OkStatus();
  }
  absl::Status EndObject() override { return End(); }
  absl::Status EndArray() override { return End(); }

 private:
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
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", Quote(map_.items.back().tensor),
                     " is mapped to ", got, ", expected a file name"));
  }
  absl::Status Start(absl::string_view got, bool object) {
    const bool allowed = !in_map_ || (object && depth_ == 1);
    if ((depth_ == 0 && !object) || !allowed) return Value(got);
    ++depth_;
    return absl::OkStatus();
  }
  absl::Status End() {
    if (--depth_ == 1) in_map_ = false;
    return absl::OkStatus();
  }

  WeightMap& map_;
  absl::flat_hash_map<std::string, uint32_t> files_;
  int depth_ = 0;
  bool in_map_ = false;
  bool has_map_ = false;
};

}  // namespace

absl::StatusOr<WeightMap> ParseWeightMap(absl::string_view json) {
  WeightMap map;
  WeightMapEvents events(map);
  if (absl::Status status = ParseJson(json, events); !status.ok()) {
    return status;
  }
  if (!events.has_map()) {
    return absl::InvalidArgumentError("weight_map is missing");
  }
  const std::vector<std::string> unsorted = map.files;
  std::sort(map.files.begin(), map.files.end());
  std::vector<uint32_t> place(unsorted.size());
  for (size_t i = 0; i < unsorted.size(); ++i) {
    place[i] = static_cast<uint32_t>(
        std::lower_bound(map.files.begin(), map.files.end(), unsorted[i]) -
        map.files.begin());
  }
  for (WeightMap::Item& item : map.items) item.file = place[item.file];
  std::sort(map.items.begin(), map.items.end(),
            [](const WeightMap::Item& a, const WeightMap::Item& b) {
              return a.tensor < b.tensor;
            });
  const auto twice = std::adjacent_find(
      map.items.begin(), map.items.end(),
      [](const WeightMap::Item& a, const WeightMap::Item& b) {
        return a.tensor == b.tensor;
      });
  if (twice != map.items.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", Quote(twice->tensor), " is mapped twice"));
  }
  return map;
}

}  // namespace espalier::internal
