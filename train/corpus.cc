#include "espalier/train/internal/corpus.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "espalier/io/text_data.h"
#include "espalier/io/tokenizer.h"
#include "espalier/runtime/check.h"

namespace espalier {

namespace {

Batch ToDevice(TokenBatch tokens, Device& device) {
  Batch batch;
  const Shape shape{static_cast<int64_t>(tokens.ids.size())};
  batch.ids = Tensor::FromHost<int32_t>(device, shape, tokens.ids);
  batch.positions = Tensor::FromHost<int32_t>(device, shape, tokens.positions);
  batch.labels = Tensor::FromHost<int32_t>(device, shape, tokens.labels);
  batch.cu_seqlens = std::make_shared<const std::vector<int32_t>>(
      std::move(tokens.cu_seqlens));
  batch.num_trained = static_cast<int64_t>(
      std::count_if(tokens.labels.begin(), tokens.labels.end(),
                    [](int32_t label) { return label != kIgnoreLabel; }));
  return batch;
}

// Documents, their samples and how one pass packs them.
struct Part {
  TokenDocuments documents;
  std::vector<TokenSample> samples;
  std::vector<SamplePack> packs;

  absl::Status Pack(const std::vector<int64_t>& order, int64_t budget) {
    auto packed = PackSamples(samples, order, budget);
    if (!packed.ok()) return packed.status();
    packs = *std::move(packed);
    return absl::OkStatus();
  }
  Batch Get(size_t index, Device& device) const {
    return ToDevice(MakeTokenBatch(documents, samples, packs[index]), device);
  }
};

}  // namespace

class Corpus::Impl {
 public:
  explicit Impl(const CorpusOptions& options) : options(options) {}

  absl::Status Read(const std::string& tokenizer_dir,
                    const std::string& data_path, int64_t vocab_size);
  absl::Status StartEpoch();

  const CorpusOptions options;
  Part train, held_out;
  TextFileReport report;
  size_t next_pack = 0;
  uint64_t epoch = 0;
};

absl::Status Corpus::Impl::Read(const std::string& tokenizer_dir,
                                const std::string& data_path,
                                int64_t vocab_size) {
  const auto tokenizer = LoadTokenizer(tokenizer_dir);
  if (!tokenizer.ok()) return tokenizer.status();
  const auto documents =
      ReadTokenDocuments(data_path, **tokenizer, TextFileOptions(), &report);
  if (!documents.ok()) return documents.status();
  const auto largest =
      std::max_element(documents->tokens.begin(), documents->tokens.end());
  if (largest != documents->tokens.end() && *largest >= vocab_size) {
    return absl::InvalidArgumentError(
        absl::StrCat(tokenizer_dir, ": token id ", *largest,
                     ", expected below the model's vocab_size ", vocab_size));
  }
  auto split =
      SplitHeldOut(*documents, options.held_out_fraction, options.seed);
  if (!split.ok()) return split.status();
  train.documents = std::move(split->train);
  held_out.documents = std::move(split->held_out);
  for (Part* part : {&train, &held_out}) {
    part->samples = CutSamples(part->documents, options.max_sample_tokens);
  }
  std::vector<int64_t> in_order(held_out.samples.size());
  std::iota(in_order.begin(), in_order.end(), 0);
  const absl::Status packed =
      held_out.Pack(in_order, options.micro_batch_tokens);
  return packed.ok() ? StartEpoch() : packed;
}

absl::Status Corpus::Impl::StartEpoch() {
  next_pack = 0;
  return train.Pack(ShuffledOrder(static_cast<int64_t>(train.samples.size()),
                                  options.seed, epoch++),
                    options.micro_batch_tokens);
}

Corpus::Corpus(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Corpus::~Corpus() = default;

absl::StatusOr<std::unique_ptr<Corpus>> Corpus::Open(
    const std::string& tokenizer_dir, const std::string& data_path,
    int64_t vocab_size, const CorpusOptions& options) {
  auto impl = std::make_unique<Impl>(options);
  const absl::Status status = impl->Read(tokenizer_dir, data_path, vocab_size);
  if (!status.ok()) return status;
  return std::unique_ptr<Corpus>(new Corpus(std::move(impl)));
}

Batch Corpus::NextTrain(Device& device) {
  if (impl_->next_pack == impl_->train.packs.size()) {
    const absl::Status started = impl_->StartEpoch();
    if (!started.ok()) internal::Fail(started);
  }
  return impl_->train.Get(impl_->next_pack++, device);
}

int64_t Corpus::num_held_out_batches() const {
  return static_cast<int64_t>(impl_->held_out.packs.size());
}

Batch Corpus::HeldOut(Device& device, int64_t index) const {
  return impl_->held_out.Get(static_cast<size_t>(index), device);
}

std::string Corpus::Summary() const {
  const auto describe = [](const Part& part) {
    return absl::StrCat(part.documents.size(), " documents in ",
                        part.samples.size(), " samples, ",
                        part.documents.tokens.size(), " tokens");
  };
  return absl::StrCat("data: ", describe(impl_->train), "; held out ",
                      describe(impl_->held_out), "; ", impl_->report.num_empty,
                      " empty documents left out");
}

}  // namespace espalier
