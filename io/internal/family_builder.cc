#include "espalier/io/internal/family_builder.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace espalier {

namespace {

// Above it, products of two of them could overflow what shapes hold.
constexpr int64_t kMaxSize = int64_t{1} << 31;
// One config could otherwise name billions of tensors.
constexpr int64_t kMaxInstances = 2 * kMaxSafetensorsEntries;
// Elements of the whole model: sums of bits stay below 2^63.
constexpr int64_t kMaxElements = int64_t{1} << 56;
constexpr absl::string_view kExpertSet = "e";
constexpr absl::string_view kVisionSet = "v";
constexpr absl::string_view kPredictionSet = "mtp";

}  // namespace

void FamilyBuilder::Fail(absl::Status status) {
  if (status_.ok()) status_ = std::move(status);
}

void FamilyBuilder::Set(absl::string_view name, int64_t value) {
  if (value < 0 || value > kMaxSize) {
    Fail(absl::InvalidArgumentError(absl::StrCat(config_.where(), ": ", name,
                                                 " comes to ", value,
                                                 ", expected 0 to 2^31")));
    value = 0;
  }
  variables_[std::string(name)] = value;
}

int64_t FamilyBuilder::Get(absl::string_view name) const {
  const auto found = variables_.find(name);
  return found == variables_.end() ? 0 : found->second;
}

void FamilyBuilder::Read(const JsonObject& json, absl::string_view name,
                         absl::string_view key) {
  int64_t value = 0;
  absl::Status status = json.Get(key, &value);
  if (status.ok() && (value < 0 || value > kMaxSize)) {
    status =
        json.Error(key, absl::StrCat("is ", value, ", expected 0 to 2^31"));
    value = 0;
  }
  if (!status.ok()) Fail(std::move(status));
  variables_[std::string(name)] = value;
}

void FamilyBuilder::Read(absl::string_view name, absl::string_view key) {
  Read(config_, name, key);
}

void FamilyBuilder::ReadOr(const JsonObject& json, absl::string_view name,
                           absl::string_view key, int64_t value) {
  if (json.Has(key)) return Read(json, name, key);
  Set(name, value);
}

void FamilyBuilder::ReadOr(absl::string_view name, absl::string_view key,
                           int64_t value) {
  ReadOr(config_, name, key, value);
}

bool FamilyBuilder::ReadBool(absl::string_view key, bool value) {
  absl::Status status = config_.GetOptional(key, &value);
  if (!status.ok()) Fail(std::move(status));
  return value;
}

void FamilyBuilder::SetPrefix(std::string text, std::string head) {
  prefix_ = std::move(text);
  head_prefix_ = std::move(head);
}

void FamilyBuilder::SetLayers(absl::string_view set,
                              std::vector<int32_t> numbers) {
  sets_[std::string(set)] = std::move(numbers);
}

const std::vector<int32_t>& FamilyBuilder::Layers(absl::string_view set) {
  return sets_[std::string(set)];
}

std::vector<int64_t> FamilyBuilder::ReadInts(const JsonObject& json,
                                             absl::string_view key) {
  std::vector<int64_t> values;
  absl::Status status = json.GetOptional(key, &values);
  if (!status.ok()) Fail(std::move(status));
  return values;
}

std::vector<std::string> FamilyBuilder::ReadStrings(absl::string_view key) {
  std::vector<std::string> values;
  absl::Status status = config_.GetOptional(key, &values);
  if (!status.ok()) Fail(std::move(status));
  return values;
}

JsonObject FamilyBuilder::ReadObject(const JsonObject& json,
                                     absl::string_view key) {
  JsonObject object;
  absl::Status status = json.GetOptional(key, &object);
  if (!status.ok()) Fail(std::move(status));
  return object;
}

void FamilyBuilder::SetExperts(int64_t num_experts, int64_t top_k) {
  if (top_k > num_experts) {
    Fail(absl::InvalidArgumentError(absl::StrCat(
        config_.where(), ": ", top_k, " experts a token of ", num_experts)));
    return;
  }
  facts_.num_experts = num_experts;
  facts_.top_k = top_k;
  std::vector<int32_t> experts;
  constexpr int64_t kMaxExperts = 1'000'000;
  experts.reserve(static_cast<size_t>(std::min(num_experts, kMaxExperts)));
  for (int32_t e = 0; e < std::min(num_experts, kMaxExperts); ++e) {
    experts.push_back(e);
  }
  SetLayers(kExpertSet, std::move(experts));
}

void FamilyBuilder::Label(absl::string_view set, absl::string_view label) {
  std::vector<std::string>& kinds = facts_.layer_kinds;
  kinds.resize(static_cast<size_t>(facts_.num_layers));
  for (const int32_t layer : Layers(set)) {
    std::string& kind = kinds[static_cast<size_t>(layer)];
    absl::StrAppend(&kind, kind.empty() ? "" : ", ", label);
  }
}

// Sums and differences of products of integers and variables; "/" divides
// exactly.
int64_t FamilyBuilder::Evaluate(absl::string_view text) {
  int64_t sum = 0;
  int64_t product = 1;
  int64_t sign = 1;
  bool divide = false;
  size_t i = 0;
  while (i < text.size()) {
    const char c = text[i];
    if (c == ' ') {
      ++i;
    } else if (c == '+' || c == '-') {
      if (__builtin_add_overflow(sum, sign * product, &sum)) {
        Fail(absl::InvalidArgumentError(
            absl::StrCat(config_.where(), ": ", text, " overflows")));
        return 0;
      }
      sign = c == '+' ? 1 : -1;
      product = 1;
      ++i;
    } else if (c == '*' || c == '/') {
      divide = c == '/';
      ++i;
    } else {
      size_t end = i;
      while (end < text.size() &&
             (absl::ascii_isalnum(static_cast<unsigned char>(text[end])) ||
              text[end] == '_')) {
        ++end;
      }
      const absl::string_view word = text.substr(i, end - i);
      int64_t value = 0;
      if (word.empty() || (!absl::SimpleAtoi(word, &value) &&
                           variables_.find(word) == variables_.end())) {
        Fail(absl::InternalError(absl::StrCat("family table: \"", text, "\"")));
        return 0;
      }
      if (variables_.find(word) != variables_.end()) value = Get(word);
      if (divide && (value == 0 || product % value != 0)) {
        Fail(absl::InvalidArgumentError(
            absl::StrCat(config_.where(), ": ", text, " is no whole number")));
        return 0;
      }
      if (divide) {
        product /= value;
      } else if (__builtin_mul_overflow(product, value, &product)) {
        Fail(absl::InvalidArgumentError(
            absl::StrCat(config_.where(), ": ", text, " overflows")));
        return 0;
      }
      divide = false;
      i = end;
    }
  }
  if (__builtin_add_overflow(sum, sign * product, &sum)) {
    Fail(absl::InvalidArgumentError(
        absl::StrCat(config_.where(), ": ", text, " overflows")));
    return 0;
  }
  return sum;
}

std::vector<int64_t> FamilyBuilder::EvaluateList(absl::string_view text) {
  std::vector<int64_t> values;
  for (const absl::string_view item : absl::StrSplit(text, ',')) {
    values.push_back(Evaluate(item));
  }
  return values;
}

void FamilyBuilder::ParseSplit(absl::string_view text, TensorSplit* split) {
  if (text.empty()) return;
  const std::pair<absl::string_view, absl::string_view> halves =
      absl::StrSplit(text, absl::MaxSplits('|', 1));
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(halves.first, absl::MaxSplits('/', 1));
  split->dim = static_cast<int>(Evaluate(parts.first));
  split->unit = parts.second.empty() ? 1 : Evaluate(parts.second);
  if (!halves.second.empty()) split->blocks = EvaluateList(halves.second);
}

// Turns "{set}" into "#" and keeps the set. False: the row has no instance.
bool FamilyBuilder::FillHoles(const FamilyRow& row, bool prediction,
                              TensorRule* rule) {
  absl::string_view rest = row.name;
  if (absl::ConsumePrefix(&rest, "@")) {
    rule->name = prefix_;
  } else if (absl::ConsumePrefix(&rest, "^")) {
    rule->name = head_prefix_;
  }
  while (!rest.empty()) {
    const size_t open = rest.find('{');
    absl::StrAppend(&rule->name, rest.substr(0, open));
    if (open == absl::string_view::npos) break;
    const size_t close = rest.find('}', open);
    const absl::string_view set = rest.substr(open + 1, close - open - 1);
    const int hole = static_cast<int>(rule->holes.size());
    if (set == kExpertSet) {
      rule->expert_hole = hole;
    } else if (set != kVisionSet &&
               !absl::ascii_isdigit(static_cast<unsigned char>(set[0]))) {
      rule->layer_hole = hole;
    }
    int32_t number = 0;
    if (absl::SimpleAtoi(set, &number)) {
      rule->holes.push_back({number});
    } else {
      rule->holes.push_back(
          Layers(prediction && set != kExpertSet ? kPredictionSet : set));
    }
    if (rule->holes.back().empty()) return false;
    rule->name += '#';
    rest.remove_prefix(close + 1);
  }
  return true;
}

void FamilyBuilder::FillPlace(bool prediction, TensorRule* rule) const {
  switch (rule->role) {
    case TensorRole::kEmbedding:
      rule->place =
          facts_.tied_head ? PipelinePlace::kEvery : PipelinePlace::kFirst;
      break;
    case TensorRole::kVision:
      rule->place = PipelinePlace::kFirst;
      break;
    default:
      rule->place =
          rule->layer_hole >= 0 ? PipelinePlace::kLayer : PipelinePlace::kLast;
  }
  if (prediction) rule->place = PipelinePlace::kLast;
}

void FamilyBuilder::AddRow(const FamilyRow& row, int group, bool prediction) {
  if (!row.when.empty() && Get(row.when) == 0) return;
  TensorRule rule;
  if (!FillHoles(row, prediction, &rule)) return;
  rule.shape = EvaluateList(row.shape);
  rule.dtype = row.dtype;
  rule.role = row.role;
  rule.optional = row.optional;
  rule.group = group;
  ParseSplit(row.split, &rule.split);
  if (rule.role == TensorRole::kExpert && rule.expert_hole < 0) {
    rule.expert_dim = 0;
    rule.dense_transposed = transposed_experts_ && rule.shape.size() == 3;
  }
  FillPlace(prediction, &rule);
  if (prediction) rule.role = TensorRole::kPrediction;
  rules_.push_back(std::move(rule));
}

void FamilyBuilder::Add(absl::Span<const FamilyRow> rows) {
  for (const FamilyRow& row : rows) AddRow(row, 0, false);
}

void FamilyBuilder::AddTop() {
  Set("tied", facts_.tied_head ? 1 : 0);
  Set("untied", facts_.tied_head ? 0 : 1);
  Add(kTopRows);
}

void FamilyBuilder::AddGroup(absl::Span<const FamilyRow> rows) {
  ++num_groups_;
  for (const FamilyRow& row : rows) AddRow(row, num_groups_, false);
}

void FamilyBuilder::AddPrediction(absl::Span<const FamilyRow> rows,
                                  absl::Span<const absl::string_view> sets) {
  if (Layers(kPredictionSet).empty()) return;
  ++num_groups_;
  for (const FamilyRow& row : rows) {
    const size_t open = row.name.find('{');
    if (open == absl::string_view::npos) continue;
    const absl::string_view set =
        row.name.substr(open + 1, row.name.find('}') - open - 1);
    if (std::find(sets.begin(), sets.end(), set) != sets.end()) {
      AddRow(row, num_groups_, true);
    }
  }
}

absl::Status FamilyBuilder::CheckSizes() const {
  int64_t instances = 0;
  int64_t total = 0;
  for (const TensorRule& rule : rules_) {
    instances += rule.num_instances();
    int64_t elements = rule.num_instances();
    for (const int64_t extent : rule.shape) {
      if (extent < 1 || __builtin_mul_overflow(elements, extent, &elements)) {
        elements = kMaxElements + 1;
        break;
      }
    }
    total += std::min(elements, kMaxElements + 1);
    if (total > kMaxElements || rule.split.unit < 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          config_.where(), ": ", rule.name, " comes to shape [",
          absl::StrJoin(rule.shape, ", "), "] in units of ", rule.split.unit));
    }
    if (instances > kMaxInstances) {
      return absl::InvalidArgumentError(absl::StrCat(
          config_.where(), ": names more than ", kMaxInstances, " tensors"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<FamilyTable> FamilyBuilder::Finish(
    const QuantizationScheme& scheme) {
  if (!status_.ok()) return status_;
  absl::Status status = CheckSizes();
  if (!status.ok()) return status;
  for (TensorRule& rule : rules_) AddForms(scheme, &rule);
  facts_.layer_kinds.resize(static_cast<size_t>(facts_.num_layers));
  FamilyTable table;
  table.facts_ = std::move(facts_);
  table.rules_ = std::move(rules_);
  table.beside_ = std::move(beside_);
  table.Index();
  return table;
}

}  // namespace espalier
