#include "espalier/io/convert.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "espalier/io/checkpoint_writer.h"
#include "espalier/io/family_table.h"
#include "espalier/io/internal/convert_plan.h"
#include "espalier/io/internal/nested_folders.h"
#include "espalier/io/internal/shard_plan.h"
#include "espalier/io/internal/table_check.h"
#include "espalier/io/internal/text.h"
#include "espalier/io/internal/weight_source.h"
#include "espalier/io/tensor_catalog.h"
#include "espalier/io/weight_encoder.h"
#include "espalier/runtime/ceil_div.h"
#include "espalier/runtime/packed_weight.h"

namespace espalier {

namespace {

using internal::ConvertStep;
using internal::ConvertTask;
using internal::WeightSource;

// Elements of a piece. A transposed view decodes a slice for every piece.
constexpr int64_t kPieceElements = int64_t{1} << 21;
constexpr int64_t kTransposedElements = int64_t{1} << 24;
constexpr int64_t kCopyBytes = int64_t{1} << 22;

template <typename T>
absl::Span<const uint8_t> AsBytes(const std::vector<T>& values) {
  return absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(values.data()),
                             values.size() * sizeof(T));
}

class Converter {
 public:
  Converter(const WeightSource& source, const ConvertOptions& options,
            CheckpointWriter& writer)
      : source_(source),
        options_(options),
        writer_(writer),
        done_(writer.resumed_bytes()) {}

  absl::Status Run(const ConvertTask& task) {
    const absl::StatusOr<TensorGroup> tensors =
        internal::TensorsOf(source_, options_, task);
    if (!tensors.ok()) return tensors.status();
    if (writer_.IsWritten(tensors->front().name)) return absl::OkStatus();
    if (task.step == ConvertStep::kCopy) return Copy(*tensors);
    if (task.step == ConvertStep::kInt4) {
      const std::vector<int64_t> shape = {task.view.shape[0],
                                          task.view.shape[1]};
      absl::Status s = Append((*tensors)[2].name, AsBytes(shape));
      if (!s.ok()) return s;
    }
    const int64_t rows = task.view.rows();
    const int64_t columns = task.view.columns();
    if (rows == 0 || columns == 0) return absl::OkStatus();
    int64_t step = std::max<int64_t>(
        1, (task.view.transposed ? kTransposedElements : kPieceElements) /
               columns);
    if (task.step == ConvertStep::kFp8) {
      step = CeilDiv(step, kFp8BlockSide) * kFp8BlockSide;
    }
    std::vector<float> values;
    for (int64_t row = 0; row < rows; row += step) {
      const int64_t count = std::min(step, rows - row);
      values.resize(static_cast<size_t>(count * columns));
      absl::Status s = internal::ReadView(source_, task.view, row, count,
                                          absl::MakeSpan(values));
      if (!s.ok()) return s;
      s = Encode(task.step, *tensors, values, count, columns);
      if (!s.ok()) {
        return absl::Status(
            s.code(), absl::StrCat("tensor ", internal::Quote(task.view.name),
                                   " from row ", row, ": ", s.message()));
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Append(const std::string& name,
                      absl::Span<const uint8_t> bytes) {
    absl::Status s = writer_.Append(name, bytes);
    if (!s.ok()) return s;
    done_ += static_cast<int64_t>(bytes.size());
    if (options_.progress) options_.progress(done_, writer_.total_bytes());
    return absl::OkStatus();
  }

  absl::Status Copy(const TensorGroup& tensors) {
    std::vector<uint8_t> piece;
    for (const TensorSpec& spec : tensors) {
      int64_t bytes = BitsOf(spec.dtype);
      for (const int64_t extent : spec.shape) bytes *= extent;
      bytes /= 8;
      for (int64_t at = 0; at < bytes; at += kCopyBytes) {
        piece.resize(static_cast<size_t>(std::min(kCopyBytes, bytes - at)));
        absl::Status s =
            source_.ReadStored(spec.name, at, absl::MakeSpan(piece));
        if (s.ok()) s = Append(spec.name, piece);
        if (!s.ok()) return s;
      }
    }
    return absl::OkStatus();
  }

  absl::Status Encode(ConvertStep step, const TensorGroup& tensors,
                      const std::vector<float>& values, int64_t rows,
                      int64_t columns) {
    absl::Status s;
    if (step == ConvertStep::kFloats) {
      codes_.resize(values.size() *
                    static_cast<size_t>(BitsOf(tensors[0].dtype) / 8));
      s = EncodeFloats(tensors[0].dtype, values, codes_.data());
      return s.ok() ? Append(tensors[0].name, codes_) : s;
    }
    if (step == ConvertStep::kFp8) {
      codes_.resize(values.size());
      std::vector<float> scales(static_cast<size_t>(
          CeilDiv(rows, kFp8BlockSide) * CeilDiv(columns, kFp8BlockSide)));
      s = EncodeFp8Rows(values, rows, columns, absl::MakeSpan(codes_),
                        absl::MakeSpan(scales));
      if (s.ok()) s = Append(tensors[0].name, codes_);
      return s.ok() ? Append(tensors[1].name, AsBytes(scales)) : s;
    }
    if (step == ConvertStep::kInt4) {
      codes_.resize(static_cast<size_t>(rows * CeilDiv(columns, 8) * 4));
      std::vector<uint16_t> scales(
          static_cast<size_t>(rows * CeilDiv(columns, options_.int4_group)));
      s = EncodeInt4Rows(values, rows, columns, options_.int4_group,
                         absl::MakeSpan(codes_), absl::MakeSpan(scales));
      if (s.ok()) s = Append(tensors[0].name, codes_);
      return s.ok() ? Append(tensors[1].name, AsBytes(scales)) : s;
    }
    codes_.resize(values.size() / 2);
    std::vector<uint8_t> scales(values.size() / 32);
    s = EncodeMxfp4Rows(values, rows, columns, absl::MakeSpan(codes_),
                        absl::MakeSpan(scales));
    if (s.ok()) s = Append(tensors[0].name, codes_);
    return s.ok() ? Append(tensors[1].name, scales) : s;
  }

  const WeightSource& source_;
  const ConvertOptions& options_;
  CheckpointWriter& writer_;
  std::vector<uint8_t> codes_;
  int64_t done_;
};

absl::Status WriteOtherFiles(const WeightSource& source,
                             const JsonValue& config,
                             CheckpointWriter& writer) {
  for (const std::string& name : source.files()) {
    const auto file = source.catalog()->folder()->Open(name);
    absl::Status s = file.ok() ? writer.CopyFile(*file) : file.status();
    if (!s.ok()) return s;
  }
  if (config.AsObject() == nullptr || config.AsObject()->empty()) {
    return absl::OkStatus();
  }
  const absl::StatusOr<std::string> text = WriteJson(config);
  return text.ok() ? writer.AddFile("config.json", *text) : text.status();
}

// What a dry run tells of the folder that would be written.
absl::Status PlanShards(const TensorGroups& groups,
                        const ConvertOptions& options, ConvertReport& report) {
  if (options.max_shard_bytes < 1) {
    return absl::OutOfRangeError(
        absl::StrCat("max_shard_bytes is ", options.max_shard_bytes));
  }
  const absl::StatusOr<internal::ShardPlan> plan =
      internal::ShardPlan::Make(groups, options.max_shard_bytes);
  if (!plan.ok()) return plan.status();
  report.total_bytes = plan->total_bytes();
  report.num_shards = static_cast<int64_t>(plan->shards().size());
  for (const internal::ShardPlan::Shard& shard : plan->shards()) {
    report.shards.push_back({shard.file, shard.num_tensors, shard.data_bytes});
  }
  return absl::OkStatus();
}

// Holds a folder's tensors against its config.json.
absl::Status CheckTensors(const TensorCatalog& catalog, bool allow_mismatch,
                          std::vector<std::string>* notes) {
  const absl::StatusOr<FamilyTable> table =
      FamilyTable::Load(*catalog.folder());
  if (absl::IsUnimplemented(table.status()) ||
      absl::IsNotFound(table.status()) || (!table.ok() && allow_mismatch)) {
    notes->push_back(absl::StrCat("the tensors were not held against a list: ",
                                  table.status().message()));
    return absl::OkStatus();
  }
  if (!table.ok()) return table.status();
  ProblemList problems(/*max_messages=*/1);
  ProblemList ignored;
  internal::CheckAgainstTable(catalog, *table, &problems, &ignored);
  if (problems.empty()) return absl::OkStatus();
  std::vector<std::string> texts;
  for (const ProblemList::Kind& kind : problems.kinds()) {
    texts.push_back(absl::StrCat(kind.count, " ", kind.name,
                                 ", the first: ", kind.first[0]));
  }
  if (!allow_mismatch) {
    return absl::DataLossError(absl::StrCat(
        catalog.dir(), " does not hold the tensors of its config.json: ",
        absl::StrJoin(texts, "; "),
        "; see espalier verify, or allow the mismatch"));
  }
  for (std::string& text : texts) notes->push_back(std::move(text));
  return absl::OkStatus();
}

absl::StatusOr<ConvertReport> Convert(
    const absl::StatusOr<std::unique_ptr<WeightSource>>& weights,
    const std::string& output, const ConvertOptions& options) {
  if (options.int4_group != 32 && options.int4_group != 64 &&
      options.int4_group != 128) {
    return absl::OutOfRangeError(absl::StrCat(
        "int4_group is ", options.int4_group, ", expected 32, 64 or 128"));
  }
  if (!weights.ok()) return weights.status();
  std::vector<std::string> notes;
  if (const TensorCatalog* catalog = (*weights)->catalog();
      catalog != nullptr) {
    absl::Status s = CheckTensors(*catalog, options.allow_mismatch, &notes);
    if (!s.ok()) return s;
  }
  const absl::StatusOr<internal::ConvertPlan> plan =
      internal::ConvertPlan::Make(**weights, options);
  if (!plan.ok()) return plan.status();
  ConvertReport report = plan->report();
  report.notes = std::move(notes);
  report.notes.insert(report.notes.end(), (*weights)->notes().begin(),
                      (*weights)->notes().end());
  const TensorGroups groups = {
      static_cast<int64_t>(plan->size()),
      [&](int64_t index) { return plan->Tensors(static_cast<size_t>(index)); }};
  if (options.dry_run) {
    absl::Status status = PlanShards(groups, options, report);
    if (!status.ok()) return status;
    return report;
  }
  CheckpointWriterOptions writing;
  writing.max_shard_bytes = options.max_shard_bytes;
  writing.resume = options.resume;
  writing.fingerprint = absl::StrCat(
      "convert ", static_cast<int>(options.to), " ",
      static_cast<int>(options.experts), " ", options.int4_group, " ",
      absl::StrJoin(options.only, ","), " from ", (*weights)->fingerprint());
  absl::StatusOr<CheckpointWriter> writer =
      CheckpointWriter::CreateFrom(output, groups, writing);
  if (!writer.ok()) return writer.status();
  Converter converter(**weights, options, *writer);
  for (size_t i = 0; i < plan->size(); ++i) {
    const absl::StatusOr<ConvertTask> task = plan->Task(i);
    const absl::Status s = task.ok() ? converter.Run(*task) : task.status();
    if (!s.ok()) return s;
  }
  absl::Status s = WriteOtherFiles(**weights, plan->config(), *writer);
  if (s.ok()) s = writer->Finish();
  if (!s.ok()) return s;
  report.total_bytes = writer->total_bytes();
  report.resumed_bytes = writer->resumed_bytes();
  report.num_shards = writer->num_shards();
  return report;
}

}  // namespace

absl::StatusOr<ConvertTarget> ParseConvertTarget(absl::string_view text) {
  constexpr std::pair<absl::string_view, ConvertTarget> kNames[] = {
      {"keep", ConvertTarget::kKeep},  {"f32", ConvertTarget::kF32},
      {"bf16", ConvertTarget::kBF16},  {"f16", ConvertTarget::kF16},
      {"fp8", ConvertTarget::kFp8},    {"int4", ConvertTarget::kInt4},
      {"mxfp4", ConvertTarget::kMxfp4}};
  for (const auto& [name, target] : kNames) {
    if (name == text) return target;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(internal::Quote(text),
                   ", expected keep, f32, bf16, f16, fp8, int4 or mxfp4"));
}

absl::StatusOr<ExpertTarget> ParseExpertTarget(absl::string_view text) {
  if (text == "keep") return ExpertTarget::kKeep;
  if (text == "stacked") return ExpertTarget::kStacked;
  if (text == "separate") return ExpertTarget::kSeparate;
  return absl::InvalidArgumentError(absl::StrCat(
      internal::Quote(text), ", expected keep, stacked or separate"));
}

absl::StatusOr<ConvertReport> ConvertCheckpoint(const std::string& source,
                                                const std::string& output,
                                                const ConvertOptions& options) {
  absl::Status apart = internal::CheckApart(source, output);
  if (!apart.ok()) return apart;
  return Convert(WeightSource::Open(source), output, options);
}

absl::StatusOr<ConvertReport> ConvertCheckpoint(
    std::shared_ptr<const Folder> source, const std::string& output,
    const ConvertOptions& options) {
  absl::Status apart = internal::CheckApart(*source, output);
  if (!apart.ok()) return apart;
  return Convert(WeightSource::Open(std::move(source)), output, options);
}

}  // namespace espalier
