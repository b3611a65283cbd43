#ifndef ESPALIER_IO_DATA_SET_H_
#define ESPALIER_IO_DATA_SET_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "espalier/io/chat.h"
#include "espalier/io/data_stream.h"
#include "espalier/io/sample.h"
#include "espalier/io/tokenizer.h"

namespace espalier {

// Training data as a user names it.
struct DataSetConfig {
  // Data files, or token folders (io/token_folder.h).
  std::vector<std::string> paths;
  // Of paths that are not local: the folder, or a folder of the one file. Its
  // bytes are read when they are needed (io/object_folder.h): a data file once
  // from front to back to find its records, a token folder by samples.
  std::map<std::string, std::shared_ptr<const Folder>> folders;
  // The share of each path in the tokens; none: all are drawn from as one.
  std::vector<double> weights;
  RecordSourceOptions records;
  // plain.train_prompt and chat.loss == kAll each mean the other.
  PlainEncoderOptions plain;
  ChatOptions chat;
  ChatFormat chat_format = ChatFormat::kAuto;
  // Of the model: a sample with an id that it does not have is a bad record.
  // 0: not checked.
  int64_t vocab_size = 0;
};

// Opened data: the groups of a DataStream, and what their samples need.
struct DataSet {
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<SampleEncoder> encoder;
  std::vector<DataGroup> groups;  // use the two above
  // Changes with every byte of the tokenizer's files.
  std::string tokenizer_fingerprint;
};

// Opens all of it with the tokenizer of a model folder. Fails NOT_FOUND and
// INVALID_ARGUMENT, naming the path; FAILED_PRECONDITION for a token folder
// that another tokenizer made; OUT_OF_RANGE for chat.content_tokens that the
// tokenizer lacks. What no record is at fault for, such as chats without a
// layout (NOT_FOUND), fails here where the first record of a file shows it, and
// else where one is read that does.
absl::StatusOr<DataSet> OpenDataSet(const std::string& tokenizer_dir,
                                    const DataSetConfig& config);

struct PackReport {
  int64_t num_samples = 0;
  int64_t num_tokens = 0;
  int64_t num_bad_records = 0;
  std::string first_bad_record;
};

// Writes every sample, in the order of the paths, into a new token folder. A
// bad record fails, or is counted with `skip_bad_records`; a path without
// records fails, and so does data in which all are bad.
absl::StatusOr<PackReport> PackDataSet(const DataSet& set,
                                       const std::string& output_dir,
                                       bool skip_bad_records);

}  // namespace espalier

#endif  // ESPALIER_IO_DATA_SET_H_
