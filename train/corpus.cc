#include "espalier/train/internal/corpus.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "espalier/io/data_prefetcher.h"
#include "espalier/io/data_set.h"
#include "espalier/io/data_stream.h"
#include "espalier/io/sample_packer.h"
#include "espalier/train/open_data.h"

namespace espalier {

namespace {

// Micro-batches that are made ahead of training.
constexpr int64_t kPrefetchDepth = 4;

Batch ToDevice(const Pack& pack, Device& device) {
  TokenBatch tokens = pack.ToBatch();
  Batch batch;
  const Shape shape{static_cast<int64_t>(tokens.ids.size())};
  batch.ids = Tensor::FromHost<int32_t>(device, shape, tokens.ids);
  batch.positions = Tensor::FromHost<int32_t>(device, shape, tokens.positions);
  batch.labels = Tensor::FromHost<int32_t>(device, shape, tokens.labels);
  batch.weights = Tensor::FromHost<float>(device, shape, tokens.weights);
  batch.cu_seqlens = std::make_shared<const std::vector<int32_t>>(
      std::move(tokens.cu_seqlens));
  batch.num_trained = static_cast<int64_t>(
      std::count_if(tokens.labels.begin(), tokens.labels.end(),
                    [](int32_t label) { return label != kIgnoreLabel; }));
  return batch;
}

DataStreamOptions StreamOptions(const DataConfig& data,
                                const CorpusOptions& options) {
  DataStreamOptions stream;
  stream.pack_tokens = options.micro_batch_tokens;
  stream.max_sample_tokens = data.max_sample_tokens;
  stream.long_samples = LongSamplesOf(data);
  stream.seed = options.seed;
  stream.held_out_fraction = options.held_out_fraction;
  stream.skip_bad_records = data.skip_bad_records;
  return stream;
}

}  // namespace

class Corpus::Impl {
 public:
  explicit Impl(const CorpusOptions& options) : options(options) {}

  absl::Status OpenTrain(DataSet set, const DataConfig& data,
                         const JsonValue* cursor);
  absl::Status ReadHeldOut(std::vector<DataGroup> groups,
                           const DataConfig& data);
  bool splits() const {
    return options.held_out_paths.empty() && options.held_out_fraction > 0;
  }
  std::string HeldOutSummary() const;

  const CorpusOptions options;
  DataSet train_set;  // what the prefetcher's samples need
  std::string sources;
  std::vector<Pack> held_out;
  int64_t num_held_out_tokens = 0;
  DataReport held_out_report;
  bool held_out_ended = true;             // no more was there
  std::unique_ptr<DataPrefetcher> train;  // ends before its set
};

absl::Status Corpus::Impl::OpenTrain(DataSet set, const DataConfig& data,
                                     const JsonValue* cursor) {
  train_set = std::move(set);
  for (const DataGroup& group : train_set.groups) {
    for (const auto& source : group.sources) {
      absl::StrAppend(&sources, sources.empty() ? "" : "; ",
                      source->Describe());
    }
    if (train_set.groups.size() > 1) {
      absl::StrAppend(&sources, " (weight ", group.weight, ")");
    }
  }
  DataStreamOptions stream_options = StreamOptions(data, options);
  stream_options.num_epochs = options.num_epochs;
  stream_options.split = splits() ? DataSplit::kTrain : DataSplit::kAll;
  auto stream = DataStream::Create(train_set.groups, stream_options);
  if (!stream.ok()) return stream.status();
  if (cursor != nullptr) {
    absl::Status found = (*stream)->Seek(*cursor);
    if (!found.ok()) return found;
  }
  train = std::make_unique<DataPrefetcher>(*std::move(stream), kPrefetchDepth);
  return train->Peek();
}

absl::Status Corpus::Impl::ReadHeldOut(std::vector<DataGroup> groups,
                                       const DataConfig& data) {
  DataStreamOptions stream_options = StreamOptions(data, options);
  stream_options.shuffle = false;
  stream_options.num_epochs = 1;
  stream_options.split = splits() ? DataSplit::kHeldOut : DataSplit::kAll;
  auto stream = DataStream::Create(std::move(groups), stream_options);
  if (!stream.ok()) return stream.status();
  held_out_ended = false;
  while (num_held_out_tokens < options.max_held_out_tokens) {
    Pack pack;
    const auto more = (*stream)->Next(&pack);
    if (!more.ok()) return more.status();
    held_out_ended = !*more;
    if (held_out_ended) break;
    num_held_out_tokens += pack.num_tokens;
    held_out.push_back(std::move(pack));
  }
  held_out_report = (*stream)->report();
  return absl::OkStatus();
}

std::string Corpus::Impl::HeldOutSummary() const {
  if (options.held_out_paths.empty() && !splits()) {
    return "held out: nothing (held_out_fraction is 0)";
  }
  if (held_out.empty()) {
    return absl::StrCat(
        "held out: nothing to predict; ", ToString(held_out_report),
        splits()
            ? absl::StrCat("; no record's hash is below held_out_fraction ",
                           options.held_out_fraction)
            : "");
  }
  return absl::StrCat(
      "held out: ", held_out.size(), " micro-batches, ", num_held_out_tokens,
      " tokens, from ", ToString(held_out_report),
      held_out_ended
          ? ""
          : absl::StrCat("; what is beyond max_held_out_tokens ",
                         options.max_held_out_tokens, " is left out"));
}

Corpus::Corpus(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Corpus::~Corpus() = default;

absl::StatusOr<std::unique_ptr<Corpus>> Corpus::Open(
    const std::string& tokenizer_dir, const DataConfig& data,
    int64_t vocab_size, const CorpusOptions& options, const JsonValue* cursor) {
  auto impl = std::make_unique<Impl>(options);
  auto set = OpenData(tokenizer_dir, data, vocab_size);
  if (!set.ok()) return set.status();
  absl::Status status;
  if (!options.held_out_paths.empty()) {
    DataConfig held_out = data;
    held_out.paths = options.held_out_paths;
    held_out.weights.clear();
    auto held_out_set = OpenData(tokenizer_dir, held_out, vocab_size);
    if (!held_out_set.ok()) return held_out_set.status();
    status = impl->ReadHeldOut(held_out_set->groups, data);
  } else if (impl->splits()) {
    status = impl->ReadHeldOut(set->groups, data);
  }
  if (status.ok()) status = impl->OpenTrain(*std::move(set), data, cursor);
  if (!status.ok()) return status;
  return std::unique_ptr<Corpus>(new Corpus(std::move(impl)));
}

absl::StatusOr<bool> Corpus::NextTrain(Device& device, Batch* batch) {
  Pack pack;
  auto more = impl_->train->Next(&pack);
  if (more.ok() && *more) *batch = ToDevice(pack, device);
  return more;
}

JsonValue Corpus::Cursor() const { return impl_->train->Cursor(); }
const DataReport& Corpus::report() const { return impl_->train->report(); }

int64_t Corpus::num_held_out_batches() const {
  return static_cast<int64_t>(impl_->held_out.size());
}

Batch Corpus::HeldOut(Device& device, int64_t index) const {
  return ToDevice(impl_->held_out[static_cast<size_t>(index)], device);
}

const DataReport& Corpus::held_out_report() const {
  return impl_->held_out_report;
}

std::vector<std::string> Corpus::Summary() const {
  return {absl::StrCat("data: ", impl_->sources), impl_->HeldOutSummary()};
}

}  // namespace espalier
