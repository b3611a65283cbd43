#ifndef ESPALIER_IO_DATA_REPORT_H_
#define ESPALIER_IO_DATA_REPORT_H_

#include <cstdint>
#include <string>

#include "espalier/runtime/export.h"

namespace espalier {

// What was read of training data and what became of it. Every token that came
// in is kept, truncated, dropped or untrained. A second epoch counts again.
struct DataReport {
  int64_t num_samples = 0;  // encoded, of this split
  int64_t num_tokens = 0;
  int64_t num_trained_tokens = 0;  // with a weight above 0
  int64_t num_pieces = 0;          // what samples were cut into
  int64_t num_kept_tokens = 0;
  int64_t num_long_samples = 0;
  int64_t num_truncated_tokens = 0;
  int64_t num_dropped_samples = 0;
  int64_t num_dropped_tokens = 0;
  // Samples without a token to predict, and pieces of others that have none.
  int64_t num_untrained_samples = 0;
  int64_t num_untrained_tokens = 0;
  int64_t num_other_split = 0;  // records
  int64_t num_bad_records = 0;
  std::string first_bad_record;  // why, with its place
  int64_t num_packs = 0;         // handed out
};

// "9 samples (1 too long, 0 dropped, 0 untrained), 2 bad records; 90 tokens =
// 80 kept (70 trained) + 10 truncated + ...": one line.
ESPALIER_EXPORT std::string ToString(const DataReport& report);

}  // namespace espalier

#endif  // ESPALIER_IO_DATA_REPORT_H_
