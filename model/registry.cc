#include "espalier/model/registry.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "espalier/io/json_object.h"
#include "espalier/model/llama/model.h"

namespace espalier {

namespace {

using Factory =
    absl::StatusOr<std::unique_ptr<CausalLm>> (*)(const JsonObject& json);

struct Family {
  absl::string_view model_type;
  Factory create;
};

constexpr Family kFamilies[] = {
    {"llama", llama::Create},
};

}  // namespace

absl::StatusOr<std::unique_ptr<CausalLm>> CreateModel(const std::string& dir) {
  auto json = JsonObject::ReadFile(absl::StrCat(dir, "/config.json"));
  if (!json.ok()) return json.status();
  std::string model_type;
  const absl::Status read = json->Get("model_type", &model_type);
  if (!read.ok()) return read;
  std::vector<absl::string_view> known;
  for (const Family& family : kFamilies) {
    if (family.model_type == model_type) return family.create(*json);
    known.push_back(family.model_type);
  }
  return json->Error("model_type",
                     absl::StrCat("is \"", model_type, "\", expected one of ",
                                  absl::StrJoin(known, ", ")));
}

}  // namespace espalier
