#ifndef ESPALIER_IO_DATA_INSPECT_H_
#define ESPALIER_IO_DATA_INSPECT_H_

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "espalier/io/data_stream.h"
#include "espalier/io/json.h"
#include "espalier/io/sample.h"
#include "espalier/io/tokenizer.h"

namespace espalier {

struct DataInspectOptions {
  int64_t num_shown = 3;  // samples to keep, in the order of the data
  int64_t max_sample_tokens = 4096;
  LongSamplePolicy long_samples = LongSamplePolicy::kSplit;
  int64_t max_errors = 20;  // messages to keep
};

// What training would make of a data set, from one pass over all of it.
struct DataInspection {
  struct Shown {
    std::string source;
    int64_t index = 0;  // in its source
    EncodedSample sample;
  };

  int64_t num_records = 0;
  std::vector<std::string> errors;  // of bad records
  // What a stream over one pass reports.
  DataReport report;
  double sum_weights = 0;      // of what is trained
  int64_t max_tokens = 0;      // of a sample
  int64_t num_duplicates = 0;  // records whose bytes stand earlier
  // Samples with 2^i .. 2^(i+1) - 1 tokens; those without any are
  // left out.
  std::array<int64_t, 40> lengths{};
  std::vector<Shown> shown;
};

// Fails only where a source as a whole cannot be read; bad records are counted
// and named.
absl::StatusOr<DataInspection> InspectData(absl::Span<const DataGroup> groups,
                                           const DataInspectOptions& options);

// For people: totals, a histogram, the shown samples with each token apart.
// With `color` (of a terminal), trained tokens are green, by their weight, and
// the rest dim.
std::string InspectionText(const DataInspection& inspection,
                           const Tokenizer& tokenizer, bool color);
// A page that needs no other file: tokens coloured by role and weight, with id,
// role and weight shown on pointing at them.
std::string InspectionHtml(const DataInspection& inspection,
                           const Tokenizer& tokenizer);
JsonValue InspectionJson(const DataInspection& inspection,
                         const Tokenizer& tokenizer);

}  // namespace espalier

#endif  // ESPALIER_IO_DATA_INSPECT_H_
