#ifndef ESPALIER_TRAIN_OPEN_DATA_H_
#define ESPALIER_TRAIN_OPEN_DATA_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

#include "espalier/io/chat.h"
#include "espalier/io/data_set.h"
#include "espalier/io/data_stream.h"
#include "espalier/train/data_config.h"

namespace espalier {

// A DataConfig as io takes it: the one way from settings to samples, for
// training and for looking at data alike. Settings are valid (Validate).

ChatOptions ChatOptionsOf(const DataConfig& config);
ChatFormat ChatFormatOf(const DataConfig& config);
LongSamplePolicy LongSamplesOf(const DataConfig& config);

// Fails as OpenDataSet and Validate do. `vocab_size`: of the model; 0 checks no
// ids.
absl::StatusOr<DataSet> OpenData(const std::string& tokenizer_dir,
                                 const DataConfig& config,
                                 int64_t vocab_size = 0);

}  // namespace espalier

#endif  // ESPALIER_TRAIN_OPEN_DATA_H_
