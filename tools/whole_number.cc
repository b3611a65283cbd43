#include "espalier/tools/whole_number.h"

#include <limits>
#include <string>
#include <type_traits>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace espalier::tools {

namespace {

// "" or what is wrong with it.
template <typename T>
std::string Problem(const std::string& text, T min, T max) {
  T value = 0;
  if (absl::SimpleAtoi(text, &value) && absl::StrCat(value) == text &&
      value >= min && value <= max) {
    return "";
  }
  if (max < std::numeric_limits<T>::max()) {
    return absl::StrCat("got ", text, ", expected a whole number from ", min,
                        " to ", max);
  }
  // A bound that no one means by its number.
  const bool any = std::is_signed_v<T> && min == std::numeric_limits<T>::min();
  return absl::StrCat("got ", text, ", expected a whole number",
                      any ? "" : absl::StrCat(" of ", min, " or more"),
                      ", in at most 64 bits");
}

}  // namespace

CLI::Validator WholeNumber(int64_t min, int64_t max) {
  return CLI::Validator(
      [min, max](std::string& text) { return Problem(text, min, max); }, "");
}

void CheckWholeNumbers(CLI::App* app) {
  for (CLI::Option* option : app->get_options()) {
    const std::string type = option->get_type_name();
    if (absl::StartsWith(type, "INT")) {
      option->check(WholeNumber(std::numeric_limits<int64_t>::min(),
                                std::numeric_limits<int64_t>::max()));
    } else if (absl::StartsWith(type, "UINT")) {
      option->check(CLI::Validator(
          [](std::string& text) {
            return Problem<uint64_t>(text, 0,
                                     std::numeric_limits<uint64_t>::max());
          },
          ""));
    }
  }
  for (CLI::App* command : app->get_subcommands({})) {
    CheckWholeNumbers(command);
  }
}

}  // namespace espalier::tools
