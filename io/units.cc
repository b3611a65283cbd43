#include "espalier/io/units.h"

#include <cmath>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace espalier {

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

}  // namespace espalier
