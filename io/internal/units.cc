#include "espalier/io/internal/units.h"

#include <cmath>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace espalier::internal {

namespace {

std::string Scaled(int64_t value, absl::string_view unit) {
  constexpr absl::string_view kPrefixes[] = {"", "K", "M", "G", "T", "P", "E"};
  double scaled = static_cast<double>(value);
  size_t i = 0;
  for (; scaled >= 999.95 && i + 1 < std::size(kPrefixes); ++i) scaled /= 1000;
  if (i == 0) return absl::StrCat(value, unit.empty() ? "" : " ", unit);
  return scaled < 9.9995
             ? absl::StrFormat("%.3f %s%s", scaled, kPrefixes[i], unit)
             : absl::StrFormat("%.1f %s%s", scaled, kPrefixes[i], unit);
}

}  // namespace

std::string CountText(int64_t count) { return Scaled(count, ""); }

std::string BytesText(int64_t bytes) { return Scaled(bytes, "B"); }

absl::StatusOr<int64_t> ParseBytes(absl::string_view text) {
  struct Unit {
    absl::string_view name;
    double bytes;
  };
  constexpr Unit kUnits[] = {{"tib", 1099511627776.0},
                             {"gib", 1073741824.0},
                             {"mib", 1048576.0},
                             {"kib", 1024.0},
                             {"tb", 1e12},
                             {"gb", 1e9},
                             {"mb", 1e6},
                             {"kb", 1e3},
                             {"b", 1.0}};
  std::string lower = absl::AsciiStrToLower(absl::StripAsciiWhitespace(text));
  double unit = 1;
  for (const Unit& candidate : kUnits) {
    if (absl::string_view(lower).size() > candidate.name.size() &&
        lower.compare(lower.size() - candidate.name.size(),
                      candidate.name.size(), candidate.name.data(),
                      candidate.name.size()) == 0) {
      unit = candidate.bytes;
      lower.resize(lower.size() - candidate.name.size());
      break;
    }
  }
  double number = 0;
  const absl::string_view digits = absl::StripAsciiWhitespace(lower);
  const bool plain =
      digits.find_first_not_of("0123456789.") == absl::string_view::npos;
  if (!plain || !absl::SimpleAtod(digits, &number) || number * unit < 1 ||
      number * unit > 9e18) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", text, "\" is no size; write 5GB, 256MiB or a number of bytes"));
  }
  return static_cast<int64_t>(number * unit);
}

}  // namespace espalier::internal
