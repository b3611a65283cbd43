#include "espalier/io/internal/weight_view.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

#include "espalier/io/internal/text.h"

namespace espalier::internal {

namespace {

constexpr absl::string_view kProjFamilies[] = {
    "qwen2_moe", "qwen3_moe",     "qwen3_next",  "qwen3_5_moe",
    "olmoe",     "deepseek_v2",   "deepseek_v3", "deepseek_v32",
    "glm4_moe",  "glm4_moe_lite", "glm_moe_dsa", "glm5_next"};

WeightView Whole(SourceWeight weight, size_t index) {
  WeightView view;
  view.name = std::string(weight.name);
  view.shape = std::move(weight.shape);
  view.dtype = weight.dtype;
  view.pieces = {{index, 0, view.rows()}};
  return view;
}

// "PREFIX.7.w1.weight" -> expert 7 of "...PREFIX", "w1".
bool SplitName(absl::string_view name, const ExpertNames& names,
               std::string* module, int64_t* expert, std::string* projection) {
  if (!absl::ConsumeSuffix(&name, ".weight")) return false;
  const size_t dot = name.rfind('.');
  if (dot == absl::string_view::npos) return false;
  *projection = std::string(name.substr(dot + 1));
  name = name.substr(0, dot);
  const size_t number = name.rfind('.');
  if (number == absl::string_view::npos ||
      !absl::SimpleAtoi(name.substr(number + 1), expert) || *expert < 0 ||
      absl::StrCat(*expert) != name.substr(number + 1)) {
    return false;
  }
  *module = std::string(name.substr(0, number));
  return absl::EndsWith(*module, absl::StrCat(".", names.prefix)) &&
         (*projection == names.gate || *projection == names.up ||
          *projection == names.down);
}

absl::Status Bad(absl::string_view name, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("tensor ", Quote(name), ": ", what));
}

// Columns [first, first + count) of one slice, as rows.
absl::Status ReadColumns(const WeightSource& source,
                         const WeightView::Piece& piece, int64_t slice,
                         int64_t height, int64_t width, int64_t first,
                         int64_t count, float* out) {
  const int64_t step =
      std::clamp<int64_t>((int64_t{1} << 19) / width, 1, height);
  std::vector<float> rows(static_cast<size_t>(step * width));
  for (int64_t r = 0; r < height; r += step) {
    const int64_t n = std::min(step, height - r);
    absl::Status s = source.ReadRows(
        piece.weight, slice * height + r, n,
        absl::MakeSpan(rows.data(), static_cast<size_t>(n * width)));
    if (!s.ok()) return s;
    for (int64_t c = 0; c < count; ++c) {
      for (int64_t i = 0; i < n; ++i) {
        out[c * height + r + i] =
            rows[static_cast<size_t>(i * width + first + c)];
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ExpertNames> ExpertNamesOf(const std::string& model_type) {
  if (std::find(std::begin(kProjFamilies), std::end(kProjFamilies),
                model_type) != std::end(kProjFamilies)) {
    return ExpertNames{"mlp.experts", "gate_proj", "up_proj", "down_proj"};
  }
  if (model_type == "mixtral") {
    return ExpertNames{"block_sparse_moe.experts", "w1", "w3", "w2"};
  }
  return absl::UnimplementedError(
      absl::StrCat("experts of model_type ", Quote(model_type),
                   " have one layout only; two are known for mixtral, ",
                   absl::StrJoin(kProjFamilies, ", ")));
}

int64_t WeightView::rows() const {
  int64_t rows = 1;
  const size_t dims = shape.size() < 2 ? shape.size() : shape.size() - 1;
  for (size_t i = 0; i < dims; ++i) rows *= shape[i];
  return rows;
}

absl::Status ReadView(const WeightSource& source, const WeightView& view,
                      int64_t start, int64_t count, absl::Span<float> out) {
  const int64_t columns = view.columns();
  float* target = out.data();
  if (view.transposed) {
    const int64_t height = view.shape[2];  // of the source
    const int64_t width = view.shape[1];
    while (count > 0) {
      const int64_t first = start % width;
      const int64_t n = std::min(count, width - first);
      absl::Status s = ReadColumns(source, view.pieces[0], start / width,
                                   height, width, first, n, target);
      if (!s.ok()) return s;
      start += n;
      count -= n;
      target += n * height;
    }
    return absl::OkStatus();
  }
  for (const WeightView::Piece& piece : view.pieces) {
    if (count == 0) break;
    if (start >= piece.rows) {
      start -= piece.rows;
      continue;
    }
    const int64_t n = std::min(count, piece.rows - start);
    absl::Status s = source.ReadRows(
        piece.weight, piece.first + start, n,
        absl::MakeSpan(target, static_cast<size_t>(n * columns)));
    if (!s.ok()) return s;
    start = 0;
    count -= n;
    target += n * columns;
  }
  return absl::OkStatus();
}

absl::Status WeightViews::Stack() {
  const std::vector<absl::string_view>& names = source_->names();
  for (size_t i = 0; i < names.size(); ++i) {
    by_name_.emplace(names[i], static_cast<uint32_t>(i));
  }
  absl::flat_hash_set<std::string> done;
  for (size_t i = 0; i < names.size(); ++i) {
    std::string module;
    std::string projection;
    int64_t expert = 0;
    if (!SplitName(names[i], names_, &module, &expert, &projection)) {
      Add(Kind::kWhole, i);
      continue;
    }
    if (!done.insert(module).second) continue;
    absl::Status s = StackModule(module, {names_.gate, names_.up},
                                 absl::StrCat(module, ".gate_up_proj"));
    if (s.ok()) {
      s = StackModule(module, {names_.down},
                      absl::StrCat(module, ".down_proj"));
    }
    if (!s.ok()) return s;
  }
  by_name_ = {};
  if (!done.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "no tensors of separate experts (", names_.prefix, ".#.", names_.gate,
      ".weight): they are stacked already, or this is no "
      "mixture of experts"));
}

absl::Status WeightViews::StackModule(
    absl::string_view module, const std::vector<std::string>& projections,
    absl::string_view name) {
  WeightView view;
  view.name = std::string(name);
  SourceWeight first;
  int64_t experts = 0;
  for (;; ++experts) {
    for (const std::string& projection : projections) {
      const std::string part =
          absl::StrCat(module, ".", experts, ".", projection, ".weight");
      const auto found = by_name_.find(part);
      if (found == by_name_.end()) {
        if (projection == projections[0] && experts > 0) break;
        return Bad(part, "is missing");
      }
      absl::StatusOr<SourceWeight> weight = source_->Weight(found->second);
      if (!weight.ok()) return weight.status();
      if (view.pieces.empty()) first = *weight;
      if (weight->shape.size() != 2 || weight->shape != first.shape ||
          weight->dtype != first.dtype || !weight->is_float) {
        return Bad(part, absl::StrCat(ToString(weight->dtype), " [",
                                      absl::StrJoin(weight->shape, ", "),
                                      "] differs from expert 0"));
      }
      view.pieces.push_back({found->second, 0, weight->shape[0]});
    }
    if (static_cast<int64_t>(view.pieces.size()) ==
        experts * static_cast<int64_t>(projections.size())) {
      break;
    }
  }
  // No expert beyond a hole.
  for (const absl::string_view weight : source_->names()) {
    std::string other;
    std::string projection;
    int64_t expert = 0;
    if (absl::StartsWith(weight, module) &&
        SplitName(weight, names_, &other, &expert, &projection) &&
        other == module && expert >= experts) {
      return Bad(absl::StrCat(module, ".", experts, ".", projection, ".weight"),
                 "is missing");
    }
  }
  view.dtype = first.dtype;
  view.shape = {experts,
                first.shape[0] * static_cast<int64_t>(projections.size()),
                first.shape[1]};
  Add(Kind::kStacked, stacked_.size());
  stacked_.push_back(std::move(view));
  return absl::OkStatus();
}

absl::Status WeightViews::Separate() {
  const std::vector<absl::string_view>& names = source_->names();
  const std::string module_end = absl::StrCat(".", names_.prefix);
  bool any = false;
  for (size_t i = 0; i < names.size(); ++i) {
    absl::string_view module = names[i];
    const bool fused = absl::ConsumeSuffix(&module, ".gate_up_proj");
    if ((!fused && !absl::ConsumeSuffix(&module, ".down_proj")) ||
        !absl::EndsWith(module, module_end)) {
      Add(Kind::kWhole, i);
      continue;
    }
    any = true;
    const absl::StatusOr<SourceWeight> weight = source_->Weight(i);
    if (!weight.ok()) return weight.status();
    constexpr int64_t kMaxExperts = int64_t{1} << 20;
    if (weight->shape.size() != 3 || !weight->is_float ||
        weight->shape[0] > kMaxExperts ||
        (fused && weight->shape[1] % 2 != 0)) {
      return Bad(weight->name,
                 absl::StrCat("[", absl::StrJoin(weight->shape, ", "),
                              "], expected [experts, out, in]"));
    }
    for (int64_t part = 0; part < weight->shape[0] * (fused ? 2 : 1); ++part) {
      Add(Kind::kSeparate, i, static_cast<size_t>(part));
    }
  }
  if (any) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "no tensors of stacked experts (", names_.prefix,
      ".gate_up_proj): they are separate already, or this is no mixture of "
      "experts"));
}

absl::StatusOr<WeightView> WeightViews::SeparatePart(const Item& item) const {
  const absl::StatusOr<SourceWeight> weight = source_->Weight(item.index);
  if (!weight.ok()) return weight.status();
  absl::string_view module = weight->name;
  const bool fused = absl::ConsumeSuffix(&module, ".gate_up_proj");
  if (!fused) absl::ConsumeSuffix(&module, ".down_proj");
  const uint32_t per_expert = fused ? 2 : 1;
  const int64_t rows = weight->shape[1] / per_expert;
  const std::string& projection = !fused                        ? names_.down
                                  : item.part % per_expert == 0 ? names_.gate
                                                                : names_.up;
  return WeightView{absl::StrCat(module, ".", item.part / per_expert, ".",
                                 projection, ".weight"),
                    {rows, weight->shape[2]},
                    weight->dtype,
                    {{item.index, int64_t{item.part} * rows, rows}},
                    false};
}

absl::StatusOr<WeightView> WeightViews::Get(size_t index) const {
  const Item& item = items_[index];
  switch (static_cast<Kind>(item.kind)) {
    case Kind::kStacked:
      return stacked_[item.index];
    case Kind::kSeparate:
      return SeparatePart(item);
    case Kind::kWhole:
      break;
  }
  absl::StatusOr<SourceWeight> weight = source_->Weight(item.index);
  if (!weight.ok()) return weight.status();
  return Whole(*std::move(weight), item.index);
}

absl::StatusOr<WeightViews> WeightViews::Make(const WeightSource& source,
                                              ExpertLayout layout) {
  WeightViews views(source);
  views.items_.reserve(source.names().size());
  if (layout == ExpertLayout::kKeep) {
    for (size_t i = 0; i < source.names().size(); ++i) {
      views.Add(Kind::kWhole, i);
    }
    return views;
  }
  const JsonValue* config = &source.config();
  if (const JsonValue* text = config->Find("text_config"); text != nullptr) {
    config = text;
  }
  const JsonValue* type = config->Find("model_type");
  if (type == nullptr || type->AsString() == nullptr) {
    return absl::InvalidArgumentError(
        "config.json has no model_type; the layout of experts depends on it");
  }
  absl::StatusOr<ExpertNames> names = ExpertNamesOf(*type->AsString());
  if (!names.ok() && absl::EndsWith(*type->AsString(), "_text")) {
    names = ExpertNamesOf(
        std::string(absl::StripSuffix(*type->AsString(), "_text")));
  }
  if (!names.ok()) return names.status();
  views.names_ = *std::move(names);
  const absl::Status status =
      layout == ExpertLayout::kStacked ? views.Stack() : views.Separate();
  if (!status.ok()) return status;
  return views;
}

}  // namespace espalier::internal
