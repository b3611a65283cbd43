#ifndef ESPALIER_IO_INTERNAL_JSON_TEXT_H_
#define ESPALIER_IO_INTERNAL_JSON_TEXT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace espalier::internal {

// Appends `value` as a JSON string with its quotes; what is above ASCII stays
// as it is. Fails INVALID_ARGUMENT on text that is not UTF-8.
absl::Status AppendJsonString(absl::string_view value, std::string* text);

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_JSON_TEXT_H_
