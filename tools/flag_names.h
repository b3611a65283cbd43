#ifndef ESPALIER_TOOLS_FLAG_NAMES_H_
#define ESPALIER_TOOLS_FLAG_NAMES_H_

#include <string>

#include "absl/strings/string_view.h"

namespace espalier::tools {

// A message of the library with the flags in the place of the settings that
// they set: "learning_rate is -1" becomes "--lr is -1".
std::string WithFlagNames(absl::string_view message);

}  // namespace espalier::tools

#endif  // ESPALIER_TOOLS_FLAG_NAMES_H_
