#include "espalier/io/data_stream.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

#include "espalier/io/internal/sample_drawer.h"
#include "espalier/io/json_object.h"

namespace espalier {

namespace {

constexpr int64_t kCursorVersion = 1;

struct ReportField {
  const char* name;
  int64_t DataReport::*value;
};

constexpr ReportField kReportFields[] = {
    {"num_samples", &DataReport::num_samples},
    {"num_tokens", &DataReport::num_tokens},
    {"num_trained_tokens", &DataReport::num_trained_tokens},
    {"num_pieces", &DataReport::num_pieces},
    {"num_kept_tokens", &DataReport::num_kept_tokens},
    {"num_long_samples", &DataReport::num_long_samples},
    {"num_truncated_tokens", &DataReport::num_truncated_tokens},
    {"num_dropped_samples", &DataReport::num_dropped_samples},
    {"num_dropped_tokens", &DataReport::num_dropped_tokens},
    {"num_untrained_samples", &DataReport::num_untrained_samples},
    {"num_untrained_tokens", &DataReport::num_untrained_tokens},
    {"num_other_split", &DataReport::num_other_split},
    {"num_bad_records", &DataReport::num_bad_records},
    {"num_packs", &DataReport::num_packs},
};

absl::Status CheckOptions(const std::vector<DataGroup>& groups,
                          const DataStreamOptions& options) {
  const auto error = [](const auto&... parts) {
    return absl::InvalidArgumentError(absl::StrCat(parts...));
  };
  if (options.pack_tokens < 2) {
    return error("pack_tokens is ", options.pack_tokens, ", expected >= 2");
  }
  if (options.max_sample_tokens < 0 || options.max_sample_tokens == 1 ||
      options.max_sample_tokens > options.pack_tokens) {
    return error("max_sample_tokens is ", options.max_sample_tokens,
                 ", expected 2 .. pack_tokens = ", options.pack_tokens,
                 ", or 0 for that");
  }
  if (options.max_open_packs < 1 || options.max_open_packs > 4096) {
    return error("max_open_packs is ", options.max_open_packs,
                 ", expected 1 .. 4096");
  }
  if (options.num_epochs < 0) {
    return error("num_epochs is ", options.num_epochs, ", expected >= 0");
  }
  if (!(options.held_out_fraction >= 0 && options.held_out_fraction < 1)) {
    return error("held_out_fraction is ", options.held_out_fraction,
                 ", expected 0 <= fraction < 1");
  }
  if (groups.empty()) return error("no data was given");
  for (const DataGroup& group : groups) {
    if (!(group.weight > 0) || !std::isfinite(group.weight)) {
      return error("a data weight is ", group.weight, ", expected > 0");
    }
    int64_t size = 0;
    std::string names;
    for (const auto& source : group.sources) {
      size += source->size();
      absl::StrAppend(&names, names.empty() ? "" : ", ", source->Describe());
    }
    if (size == 0) return error("no record in ", names);
  }
  return absl::OkStatus();
}

// Packs of so many pieces each, from *next on.
JsonValue PacksToJson(const std::vector<int64_t>& sizes,
                      std::vector<PieceRef>::const_iterator* next) {
  JsonValue::Array all;
  for (const int64_t size : sizes) {
    JsonValue::Array pieces;
    for (int64_t i = 0; i < size; ++i) {
      const PieceRef& ref = *(*next)++;
      pieces.push_back(
          JsonValue::Array{int64_t{ref.group}, ref.sample, ref.begin, ref.end});
    }
    all.emplace_back(std::move(pieces));
  }
  return JsonValue(std::move(all));
}

void AddPacks(const std::vector<Pack>& packs, std::vector<int64_t>* sizes,
              std::vector<PieceRef>* pieces) {
  size_t count = pieces->size();
  for (const Pack& pack : packs) count += pack.pieces.size();
  pieces->reserve(count);
  for (const Pack& pack : packs) {
    sizes->push_back(static_cast<int64_t>(pack.pieces.size()));
    for (const Piece& piece : pack.pieces) pieces->push_back(piece.ref);
  }
}

absl::Status CursorError(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("cursor: ", what));
}

absl::StatusOr<std::vector<int64_t>> Integers(const JsonValue& value,
                                              size_t count) {
  const JsonValue::Array* array = value.AsArray();
  if (array == nullptr || array->size() != count) {
    return CursorError(absl::StrCat("expected ", count, " integers"));
  }
  std::vector<int64_t> integers;
  for (const JsonValue& item : *array) {
    if (item.AsInt() == nullptr) return CursorError("expected an integer");
    integers.push_back(*item.AsInt());
  }
  return integers;
}

}  // namespace

class DataStream::Impl {
 public:
  Impl(std::vector<DataGroup> groups, const DataStreamOptions& options)
      : options(options),
        drawer(std::move(groups), options),
        packer(options.pack_tokens, options.max_open_packs),
        data(std::make_shared<const std::string>(Fingerprint())) {}

  std::string Fingerprint() const {
    return absl::StrCat(
        drawer.Describe(), "pack_tokens ", options.pack_tokens,
        ", max_sample_tokens ", options.max_sample_tokens, ", long_samples ",
        static_cast<int>(options.long_samples), ", max_open_packs ",
        options.max_open_packs, ", shuffle ", options.shuffle, ", seed ",
        options.seed, ", num_epochs ", options.num_epochs, ", split ",
        static_cast<int>(options.split), ", held_out_fraction ",
        options.held_out_fraction);
  }

  absl::StatusOr<bool> Fill() {
    std::vector<Piece> pieces;
    while (ready.empty() && !ended) {
      pieces.clear();
      const auto more = drawer.Draw(&pieces, &report);
      if (!more.ok()) return more.status();
      for (Piece& piece : pieces) packer.Add(std::move(piece), &ready);
      if (!*more) {
        packer.Flush(&ready);
        ended = true;
      }
    }
    return !ready.empty();
  }

  absl::StatusOr<std::vector<Pack>> ReadPacks(const JsonValue* json) const;

  const DataStreamOptions options;
  internal::SampleDrawer drawer;
  SamplePacker packer;
  const std::shared_ptr<const std::string> data;
  std::vector<Pack> ready;  // closed, not handed out
  bool ended = false;
  DataReport report;
};

absl::StatusOr<std::vector<Pack>> DataStream::Impl::ReadPacks(
    const JsonValue* json) const {
  if (json == nullptr || json->AsArray() == nullptr) {
    return CursorError("expected an array of packs");
  }
  std::vector<Pack> packs;
  for (const JsonValue& item : *json->AsArray()) {
    Pack& pack = packs.emplace_back();
    if (item.AsArray() == nullptr || item.AsArray()->empty()) {
      return CursorError("expected an array of pieces");
    }
    for (const JsonValue& entry : *item.AsArray()) {
      const auto ref = Integers(entry, 4);
      if (!ref.ok()) return ref.status();
      auto piece = drawer.Make(
          {static_cast<int32_t>((*ref)[0]), (*ref)[1], (*ref)[2], (*ref)[3]});
      if (!piece.ok()) return piece.status();
      pack.num_tokens += piece->ref.size();
      pack.pieces.push_back(*std::move(piece));
    }
    if (pack.num_tokens > options.pack_tokens) {
      return CursorError("a pack is above its budget");
    }
  }
  return packs;
}

JsonValue ToJson(const DataReport& report) {
  JsonValue json;
  for (const ReportField& field : kReportFields) {
    json.Set(field.name, report.*field.value);
  }
  json.Set("first_bad_record", report.first_bad_record);
  return json;
}

JsonValue ToJson(const DataPosition& position) {
  JsonValue cursor;
  cursor.Set("version", kCursorVersion);
  cursor.Set("data", *position.data);
  JsonValue::Array groups;
  for (const GroupPosition& at : position.groups) {
    groups.push_back(JsonValue::Array{at.epoch, at.position, at.num_tokens});
  }
  cursor.Set("groups", JsonValue(std::move(groups)));
  auto next = position.pieces.begin();
  cursor.Set("open", PacksToJson(position.open, &next));
  cursor.Set("ready", PacksToJson(position.ready, &next));
  cursor.Set("ended", position.ended);
  cursor.Set("report", ToJson(position.report));
  return cursor;
}

DataStream::DataStream(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DataStream::~DataStream() = default;
const DataReport& DataStream::report() const { return impl_->report; }

absl::StatusOr<std::unique_ptr<DataStream>> DataStream::Create(
    std::vector<DataGroup> groups, const DataStreamOptions& options) {
  if (absl::Status status = CheckOptions(groups, options); !status.ok()) {
    return status;
  }
  return std::unique_ptr<DataStream>(
      new DataStream(std::make_unique<Impl>(std::move(groups), options)));
}

absl::StatusOr<bool> DataStream::Next(Pack* pack) {
  auto more = impl_->Fill();
  if (!more.ok() || !*more) return more;
  *pack = std::move(impl_->ready.front());
  impl_->ready.erase(impl_->ready.begin());
  ++impl_->report.num_packs;
  return true;
}

absl::StatusOr<bool> DataStream::NextStep(int64_t packs_per_step, int64_t rank,
                                          int64_t num_ranks,
                                          std::vector<Pack>* packs) {
  packs->clear();
  if (num_ranks < 1 || rank < 0 || rank >= num_ranks ||
      packs_per_step < num_ranks || packs_per_step % num_ranks != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        packs_per_step, " packs a step for rank ", rank, " of ", num_ranks,
        ", expected a multiple of the number of ranks"));
  }
  const int64_t share = packs_per_step / num_ranks;
  bool any = false;
  for (int64_t i = 0; i < packs_per_step; ++i) {
    Pack pack;
    const auto more = Next(&pack);
    if (!more.ok()) return more.status();
    if (!*more) break;
    any = true;
    if (i / share == rank) packs->push_back(std::move(pack));
  }
  return any;
}

DataPosition DataStream::Position() const {
  DataPosition position;
  position.data = impl_->data;
  position.groups = impl_->drawer.positions();
  AddPacks(impl_->packer.open(), &position.open, &position.pieces);
  AddPacks(impl_->ready, &position.ready, &position.pieces);
  position.ended = impl_->ended;
  position.report = impl_->report;
  return position;
}

absl::Status DataStream::Seek(const JsonValue& cursor) {
  auto json = JsonObject::From(cursor, "cursor");
  if (!json.ok()) return json.status();
  int64_t version = 0;
  absl::Status status = json->Get("version", &version);
  if (!status.ok()) return status;
  if (version != kCursorVersion) {
    return json->Error(
        "version", absl::StrCat("is ", version, ", expected ", kCursorVersion));
  }
  std::string data;
  bool ended = false;
  JsonObject report_json;
  status = json->Get("data", &data);
  if (status.ok()) status = json->Get("ended", &ended);
  if (status.ok()) status = json->Get("report", &report_json);
  if (!status.ok()) return status;
  if (data != *impl_->data) {
    return absl::FailedPreconditionError(
        absl::StrCat("the data is not what the run was saved with; it was\n",
                     data, "\nand is\n", *impl_->data));
  }
  DataReport report;
  for (const ReportField& field : kReportFields) {
    status = report_json.Get(field.name, &(report.*field.value));
    if (!status.ok()) return status;
  }
  status = report_json.Get("first_bad_record", &report.first_bad_record);
  if (!status.ok()) return status;

  const JsonValue* groups = json->GetValue("groups");
  if (groups == nullptr || groups->AsArray() == nullptr) {
    return CursorError("groups is missing");
  }
  std::vector<GroupPosition> positions;
  for (const JsonValue& item : *groups->AsArray()) {
    const auto at = Integers(item, 3);
    if (!at.ok()) return at.status();
    positions.push_back({(*at)[0], (*at)[1], (*at)[2]});
  }
  auto open = impl_->ReadPacks(json->GetValue("open"));
  if (!open.ok()) return open.status();
  auto ready = impl_->ReadPacks(json->GetValue("ready"));
  if (!ready.ok()) return ready.status();
  status = impl_->drawer.Seek(std::move(positions));
  if (!status.ok()) return status;
  impl_->packer.Restore(*std::move(open));
  impl_->ready = *std::move(ready);
  impl_->ended = ended;
  impl_->report = std::move(report);
  return absl::OkStatus();
}

}  // namespace espalier
