#include "espalier/io/data_report.h"

#include "absl/strings/str_cat.h"

namespace espalier {

std::string ToString(const DataReport& report) {
  return absl::StrCat(
      report.num_samples, " samples (", report.num_long_samples, " too long, ",
      report.num_dropped_samples, " dropped, ", report.num_untrained_samples,
      " untrained), ", report.num_bad_records, " bad records",
      report.num_bad_records > 0 ? " (first: " : "", report.first_bad_record,
      report.num_bad_records > 0 ? ")" : "", "; ", report.num_tokens,
      " tokens = ", report.num_kept_tokens, " kept (",
      report.num_trained_tokens, " trained) + ", report.num_truncated_tokens,
      " truncated + ", report.num_dropped_tokens, " dropped + ",
      report.num_untrained_tokens, " untrained");
}

}  // namespace espalier
