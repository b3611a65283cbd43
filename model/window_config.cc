#include "espalier/model/window_config.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace espalier {

namespace {

absl::Status ReadLayerTypes(const JsonObject& json, int64_t window,
                            std::vector<int64_t>& windows) {
  std::vector<std::string> types;
  absl::Status status = json.Get("layer_types", &types);
  if (!status.ok()) return status;
  if (types.size() != windows.size()) {
    return json.Error("layer_types",
                      absl::StrCat("has ", types.size(),
                                   " entries, expected one for each of ",
                                   windows.size(), " layers"));
  }
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] == "full_attention") continue;
    if (types[i] != "sliding_attention") {
      return json.Error(
          absl::StrCat("layer_types[", i, "]"),
          absl::StrCat("is \"", types[i],
                       "\", expected full_attention or sliding_attention"));
    }
    if (window == 0) {
      return json.Error(absl::StrCat("layer_types[", i, "]"),
                        "is \"sliding_attention\", but use_sliding_window is "
                        "false, so that there is no window");
    }
    windows[i] = window;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<int64_t>> ParseWindows(const JsonObject& json,
                                                  int64_t num_layers) {
  std::vector<int64_t> windows(static_cast<size_t>(num_layers), 0);
  bool use = false;
  absl::Status status = json.GetOptional("use_sliding_window", &use);
  if (!status.ok()) return status;
  int64_t window = 0;
  if (use) {
    status = json.Get("sliding_window", &window);
    if (!status.ok()) return status;
    if (window < 1) {
      return json.Error("sliding_window",
                        absl::StrCat("is ", window, ", expected 1 or more"));
    }
  }
  json.Ignore("sliding_window");
  if (json.Has("layer_types")) {
    json.Ignore("max_window_layers");
    status = ReadLayerTypes(json, window, windows);
    if (!status.ok()) return status;
    return windows;
  }
  json.Ignore("layer_types");
  if (!use) {
    json.Ignore("max_window_layers");
    return windows;
  }
  int64_t first = 0;
  status = json.Get("max_window_layers", &first);
  if (!status.ok()) return status;
  if (first < 0) {
    return json.Error("max_window_layers",
                      absl::StrCat("is ", first, ", expected 0 or more"));
  }
  for (int64_t i = first; i < num_layers; ++i) {
    windows[static_cast<size_t>(i)] = window;
  }
  return windows;
}

}  // namespace espalier
