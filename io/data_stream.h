#ifndef ESPALIER_IO_DATA_STREAM_H_
#define ESPALIER_IO_DATA_STREAM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "espalier/io/data_report.h"
#include "espalier/io/json.h"
#include "espalier/io/sample.h"
#include "espalier/io/sample_packer.h"

namespace espalier {

// Sources that are drawn from as one, and their share of the tokens.
struct DataGroup {
  std::vector<std::shared_ptr<const SampleSource>> sources;
  double weight = 1;  // > 0
};

// What becomes of a sample that is longer than max_sample_tokens.
enum class LongSamplePolicy : uint8_t {
  kSplit,     // several samples, each from position 0; every token stays, and
              // is predicted, but with less in front of it
  kTruncate,  // its first tokens
  kDrop,      // left out
};

enum class DataSplit : uint8_t { kAll, kTrain, kHeldOut };

struct DataStreamOptions {
  int64_t pack_tokens = 4096;
  int64_t max_sample_tokens = 0;  // at most pack_tokens; 0: pack_tokens
  LongSamplePolicy long_samples = LongSamplePolicy::kSplit;
  int64_t max_open_packs = 16;
  bool shuffle = true;
  uint64_t seed = 0;
  int64_t num_epochs = 0;  // 0: without end
  // A record is held out when its content hash is below the fraction of all
  // hashes: equal records are on one side, and adding data moves none.
  DataSplit split = DataSplit::kAll;
  double held_out_fraction = 0;
  // A malformed record is counted and left out instead of failing.
  bool skip_bad_records = false;
};

// Its members by name.
JsonValue ToJson(const DataReport& report);

// Where one group stands.
struct GroupPosition {
  int64_t epoch = 0;
  int64_t position = 0;    // in the epoch's order
  int64_t num_tokens = 0;  // kept, over all epochs
};

// A position between two packs: kilobytes to copy, where the JSON is hundreds.
struct DataPosition {
  std::shared_ptr<const std::string> data;  // names sources and options
  std::vector<GroupPosition> groups;
  std::vector<PieceRef> pieces;      // of the open packs, then of those ready
  std::vector<int64_t> open, ready;  // pieces of each pack
  bool ended = false;
  DataReport report;
};
// A cursor for DataStream::Seek.
JsonValue ToJson(const DataPosition& position);

// An endless (or num_epochs long) sequence of packs out of groups of sources: a
// function of the data, the options and nothing else. Each pass over a group is
// another permutation of all its samples. The next sample comes from the group
// whose tokens so far are the smallest share of its weight, so that every
// prefix has the wanted mixture; a group that ended is left out. Thread-
// compatible.
class DataStream {
 public:
  // Fails INVALID_ARGUMENT on options and weights out of range, and where a
  // group has no record.
  static absl::StatusOr<std::unique_ptr<DataStream>> Create(
      std::vector<DataGroup> groups, const DataStreamOptions& options);
  ~DataStream();

  // The next pack; false at the end. Fails with the place of a bad record
  // (unless skipped), and INVALID_ARGUMENT when a whole pass over a group gave
  // nothing to train on.
  absl::StatusOr<bool> Next(Pack* pack);

  // The part of one optimizer step that a data-parallel rank works on: of the
  // next packs_per_step packs those at [rank, rank + 1) * packs_per_step /
  // num_ranks. The order of all samples is the same for every num_ranks, and so
  // is the cursor. At the end of the data a step may have fewer packs: the
  // first ones. Fails INVALID_ARGUMENT when num_ranks does not divide
  // packs_per_step.
  absl::StatusOr<bool> NextStep(int64_t packs_per_step, int64_t rank,
                                int64_t num_ranks, std::vector<Pack>* packs);

  // The position between two packs: passes and positions, the samples in open
  // packs, the report. No data.
  DataPosition Position() const;
  JsonValue Cursor() const { return ToJson(Position()); }
  // Continues there: what follows is bit for bit what would have followed.
  // Fails FAILED_PRECONDITION, naming the difference, when sources or options
  // are others than the cursor's; INVALID_ARGUMENT on a cursor that is none.
  absl::Status Seek(const JsonValue& cursor);

  const DataReport& report() const;

 private:
  class Impl;
  explicit DataStream(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace espalier

#endif  // ESPALIER_IO_DATA_STREAM_H_
