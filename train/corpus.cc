#include "espalier/train/internal/corpus.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "espalier/io/text_documents.h"
#include "espalier/io/tokenizer.h"
#include "espalier/runtime/rng.h"

namespace espalier {

namespace {

constexpr int32_t kIgnored = -100;
constexpr uint64_t kSplitStream = 0x5b1;     // which documents are held out
constexpr uint64_t kEpochStream = 0x3e70c0;  // plus the epoch's number

using Tokens = std::vector<int32_t>;

// Documents that fit one micro-batch together.
using Pack = std::vector<const Tokens*>;

int64_t Length(const Tokens& tokens) {
  return static_cast<int64_t>(tokens.size());
}

// Fills packs in the order given; a document that does not fit starts the next.
std::vector<Pack> PackInOrder(const std::vector<Tokens>& documents,
                              const std::vector<int64_t>& order,
                              int64_t budget) {
  std::vector<Pack> packs;
  int64_t used = budget;
  for (const int64_t index : order) {
    const Tokens& document = documents[static_cast<size_t>(index)];
    if (used + Length(document) > budget) {
      packs.emplace_back();
      used = 0;
    }
    packs.back().push_back(&document);
    used += Length(document);
  }
  return packs;
}

Batch MakeBatch(const Pack& pack, Device& device) {
  Tokens ids;
  Tokens positions;
  Tokens labels;
  std::vector<int32_t> bounds = {0};
  Batch batch;
  for (const Tokens* document : pack) {
    for (size_t i = 0; i < document->size(); ++i) {
      ids.push_back((*document)[i]);
      positions.push_back(static_cast<int32_t>(i));
      labels.push_back(i + 1 < document->size() ? (*document)[i + 1]
                                                : kIgnored);
    }
    batch.num_trained += Length(*document) - 1;
    bounds.push_back(static_cast<int32_t>(ids.size()));
  }
  const Shape shape{Length(ids)};
  batch.ids = Tensor::FromHost<int32_t>(device, shape, ids);
  batch.positions = Tensor::FromHost<int32_t>(device, shape, positions);
  batch.labels = Tensor::FromHost<int32_t>(device, shape, labels);
  batch.cu_seqlens =
      std::make_shared<const std::vector<int32_t>>(std::move(bounds));
  return batch;
}

}  // namespace

class Corpus::Impl {
 public:
  explicit Impl(const CorpusOptions& options) : options(options) {}

  absl::Status Read(const std::string& tokenizer_dir,
                    const std::string& data_path, int64_t vocab_size);
  absl::Status Split(const std::string& data_path);
  void StartEpoch();

  const CorpusOptions options;
  std::vector<Tokens> train, held_out;
  std::vector<Pack> packs;  // of the epoch
  std::vector<Pack> held_out_packs;
  size_t next_pack = 0;
  uint64_t epoch = 0;
  int64_t num_tokens = 0;
  int64_t num_cut_documents = 0;
  int64_t num_cut_tokens = 0;
  int64_t num_too_short = 0;
};

absl::Status Corpus::Impl::Read(const std::string& tokenizer_dir,
                                const std::string& data_path,
                                int64_t vocab_size) {
  const auto tokenizer = LoadTokenizer(tokenizer_dir);
  if (!tokenizer.ok()) return tokenizer.status();
  const auto documents = ReadTextDocuments(data_path);
  if (!documents.ok()) return documents.status();
  for (size_t i = 0; i < documents->size(); ++i) {
    const auto text = (*tokenizer)->Encode((*documents)[i]);
    if (!text.ok()) {
      return absl::Status(text.status().code(),
                          absl::StrCat(data_path, ": document ", i + 1, ": ",
                                       text.status().message()));
    }
    Tokens tokens;
    if (const auto bos = (*tokenizer)->bos_id()) tokens.push_back(*bos);
    tokens.insert(tokens.end(), text->begin(), text->end());
    if (const auto eos = (*tokenizer)->eos_id()) tokens.push_back(*eos);
    if (Length(tokens) > options.max_document_tokens) {
      ++num_cut_documents;
      num_cut_tokens += Length(tokens) - options.max_document_tokens;
      tokens.resize(static_cast<size_t>(options.max_document_tokens));
    }
    const auto largest = std::max_element(tokens.begin(), tokens.end());
    if (largest != tokens.end() && *largest >= vocab_size) {
      return absl::InvalidArgumentError(
          absl::StrCat(tokenizer_dir, ": token id ", *largest,
                       ", expected below the model's vocab_size ", vocab_size));
    }
    if (Length(tokens) < 2) {
      ++num_too_short;
      continue;
    }
    num_tokens += Length(tokens);
    train.push_back(std::move(tokens));
  }
  return absl::OkStatus();
}

absl::Status Corpus::Impl::Split(const std::string& data_path) {
  const auto count = static_cast<int64_t>(train.size());
  auto num_held_out = static_cast<int64_t>(
      std::llround(options.held_out_fraction * static_cast<double>(count)));
  if (options.held_out_fraction > 0 && count > 1) {
    num_held_out = std::clamp<int64_t>(num_held_out, 1, count - 1);
  }
  if (count - num_held_out < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(data_path, ": no document is left to train on"));
  }
  std::vector<bool> chosen(train.size(), false);
  const std::vector<int64_t> order =
      RandomPermutation(Rng{options.seed, kSplitStream}, count);
  for (int64_t i = 0; i < num_held_out; ++i) {
    chosen[static_cast<size_t>(order[static_cast<size_t>(i)])] = true;
  }
  std::vector<Tokens> kept;
  for (size_t i = 0; i < train.size(); ++i) {
    (chosen[i] ? held_out : kept).push_back(std::move(train[i]));
  }
  train = std::move(kept);
  std::vector<int64_t> in_order(held_out.size());
  std::iota(in_order.begin(), in_order.end(), 0);
  held_out_packs = PackInOrder(held_out, in_order, options.micro_batch_tokens);
  return absl::OkStatus();
}

void Corpus::Impl::StartEpoch() {
  packs = PackInOrder(train,
                      RandomPermutation(Rng{options.seed, kEpochStream + epoch},
                                        static_cast<int64_t>(train.size())),
                      options.micro_batch_tokens);
  next_pack = 0;
  ++epoch;
}

Corpus::Corpus(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Corpus::~Corpus() = default;

absl::StatusOr<std::unique_ptr<Corpus>> Corpus::Open(
    const std::string& tokenizer_dir, const std::string& data_path,
    int64_t vocab_size, const CorpusOptions& options) {
  auto impl = std::make_unique<Impl>(options);
  absl::Status status = impl->Read(tokenizer_dir, data_path, vocab_size);
  if (status.ok()) status = impl->Split(data_path);
  if (!status.ok()) return status;
  return std::unique_ptr<Corpus>(new Corpus(std::move(impl)));
}

Batch Corpus::NextTrain(Device& device) {
  if (impl_->next_pack == impl_->packs.size()) impl_->StartEpoch();
  return MakeBatch(impl_->packs[impl_->next_pack++], device);
}

int64_t Corpus::num_held_out_batches() const {
  return static_cast<int64_t>(impl_->held_out_packs.size());
}

Batch Corpus::HeldOut(Device& device, int64_t index) const {
  return MakeBatch(impl_->held_out_packs[static_cast<size_t>(index)], device);
}

std::string Corpus::Summary() const {
  return absl::StrCat("data: ", impl_->train.size(), " documents to train on, ",
                      impl_->held_out.size(), " held out, ", impl_->num_tokens,
                      " tokens; ", impl_->num_cut_documents,
                      " documents cut by ", impl_->num_cut_tokens, " tokens, ",
                      impl_->num_too_short, " too short");
}

}  // namespace espalier
