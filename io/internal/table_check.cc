#include "espalier/io/internal/table_check.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "espalier/io/internal/text.h"

namespace espalier::internal {

namespace {

std::vector<int64_t> WithoutOnes(absl::Span<const int64_t> shape) {
  std::vector<int64_t> kept;
  for (const int64_t extent : shape) {
    if (extent != 1) kept.push_back(extent);
  }
  return kept;
}

std::string DTypeNames(uint32_t dtypes) {
  std::vector<absl::string_view> names;
  for (int i = 0; i <= static_cast<int>(SafetensorsDType::kU64); ++i) {
    if ((dtypes >> i & 1) != 0) {
      names.push_back(ToString(static_cast<SafetensorsDType>(i)));
    }
  }
  return absl::StrJoin(names, " or ");
}

class TableCheck {
 public:
  TableCheck(const TensorCatalog& catalog, const FamilyTable& table,
             ProblemList* problems, ProblemList* notes)
      : catalog_(catalog), table_(table), problems_(problems), notes_(notes) {
    present_.resize(table.rules().size());
    for (size_t r = 0; r < present_.size(); ++r) {
      present_[r].resize(static_cast<size_t>(table.rules()[r].num_instances()),
                         0);
    }
  }

  int64_t Run() {
    for (const TensorCatalog::Tensor& tensor : catalog_.tensors()) {
      CheckTensor(tensor);
    }
    NoteGroups();
    for (uint32_t r = 0; r < present_.size(); ++r) CheckRule(r);
    return num_matched_;
  }

 private:
  void CheckTensor(const TensorCatalog::Tensor& tensor) {
    const absl::string_view name = catalog_.NameOf(tensor);
    FamilyTable::Match match;
    if (!table_.Find(name, tensor.dtype, &match)) {
      const bool beside = table_.IsBesideTable(name);
      ProblemList* list = beside ? notes_ : problems_;
      const absl::string_view kind =
          beside ? "beside_table" : "unexpected_tensor";
      if (!list->Keeps(kind)) return list->Count(kind);
      return list->Add(
          kind, absl::StrCat(Quote(name), " ", catalog_.Describe(tensor), " (",
                             FileOf(tensor), ")"));
    }
    ++num_matched_;
    const TensorRule& rule = table_.rules()[match.rule];
    const StoredPart& part = rule.parts[match.part];
    present_[match.rule][match.instance] |=
        static_cast<uint16_t>(1 << match.part);
    if (!ShapeFits(part, catalog_.ShapeOf(tensor))) {
      problems_->Add(
          "wrong_shape",
          absl::StrCat(Quote(name), ": shape [",
                       absl::StrJoin(catalog_.ShapeOf(tensor), ", "),
                       "], expected [", absl::StrJoin(part.shape, ", "), "] (",
                       FileOf(tensor), ")"));
    }
    if ((part.dtypes >> static_cast<int>(tensor.dtype) & 1) == 0) {
      problems_->Add(
          "wrong_dtype",
          absl::StrCat(Quote(name), ": ", ToString(tensor.dtype), ", expected ",
                       DTypeNames(part.dtypes), " (", FileOf(tensor), ")"));
    } else if (part.form == 0 && rule.dtype == SafetensorsDType::kF32 &&
               BitsOf(tensor.dtype) < 32) {
      notes_->Add("low_precision",
                  absl::StrCat(Quote(name), ": ", ToString(tensor.dtype),
                               ", the release keeps F32"));
    }
  }

  const std::string& FileOf(const TensorCatalog::Tensor& tensor) const {
    return catalog_.files()[tensor.file].name;
  }

  // Optional parts of the model, of which nothing is there.
  void NoteGroups() {
    for (size_t r = 0; r < present_.size(); ++r) {
      const TensorRule& rule = table_.rules()[r];
      if (rule.group > 0 &&
          std::any_of(present_[r].begin(), present_[r].end(),
                      [](uint16_t mask) { return mask != 0; })) {
        groups_.insert(rule.group);
      }
    }
    std::set<int> noted;
    for (const TensorRule& rule : table_.rules()) {
      if (rule.group == 0 || groups_.count(rule.group) != 0 ||
          !noted.insert(rule.group).second) {
        continue;
      }
      notes_->Add("absent_part",
                  absl::StrCat("no ", ToString(rule.role), " tensors"));
    }
  }

  void CheckRule(uint32_t r) {
    const TensorRule& rule = table_.rules()[r];
    const bool may_lack =
        rule.optional || (rule.group > 0 && groups_.count(rule.group) == 0);
    for (size_t i = 0; i < present_[r].size(); ++i) {
      const uint16_t mask = present_[r][i];
      if (mask == 0) {
        if (may_lack || HeadStandsIn(rule)) continue;
        CheckParts(rule, rule.parts[PreferredPart(rule)].form, mask, i);
        continue;
      }
      CheckForms(rule, mask, i);
    }
  }

  // Tied weights may be stored under either name.
  bool HeadStandsIn(const TensorRule& rule) const {
    if (rule.role != TensorRole::kEmbedding || !table_.facts().tied_head) {
      return false;
    }
    for (size_t r = 0; r < present_.size(); ++r) {
      if (table_.rules()[r].role == TensorRole::kHead && !present_[r].empty() &&
          present_[r][0] != 0) {
        return true;
      }
    }
    return false;
  }

  // Packed where the release is: routed experts.
  static size_t PreferredPart(const TensorRule& rule) {
    if (rule.role != TensorRole::kExpert) return 0;
    for (size_t p = 0; p < rule.parts.size(); ++p) {
      if (rule.parts[p].form == 1 && rule.parts[p].primary) return p;
    }
    return 0;
  }

  void CheckForms(const TensorRule& rule, uint16_t mask, size_t instance) {
    int form = -1;
    for (size_t p = 0; p < rule.parts.size(); ++p) {
      if (!rule.parts[p].primary || (mask >> p & 1) == 0) continue;
      if (form >= 0) {
        problems_->Add(
            "two_forms",
            absl::StrCat(Quote(table_.NameOf(rule, rule.name,
                                             static_cast<int64_t>(instance))),
                         " is stored as ",
                         rule.form_names[static_cast<size_t>(form)], " and as ",
                         rule.form_names[rule.parts[p].form]));
        return;
      }
      form = rule.parts[p].form;
    }
    // Scales without codes belong to the form that the weight should have.
    if (form < 0) form = rule.parts[PreferredPart(rule)].form;
    CheckParts(rule, form, mask, instance);
    // Parts of another form have no weight to belong to.
    for (size_t p = 0; p < rule.parts.size(); ++p) {
      if ((mask >> p & 1) == 0 || rule.parts[p].form == form) continue;
      problems_->Add(
          "unexpected_tensor",
          absl::StrCat(Quote(table_.NameOf(rule, rule.parts[p].pattern,
                                           static_cast<int64_t>(instance))),
                       ": the weight is stored as ",
                       rule.form_names[static_cast<size_t>(form)]));
    }
  }

  // One of each set of alternatives must be there.
  void CheckParts(const TensorRule& rule, int form, uint16_t mask,
                  size_t instance) {
    for (const StoredPart& part : rule.parts) {
      if (part.form != form || !part.required) continue;
      bool found = false;
      bool first = true;
      for (size_t q = 0; q < rule.parts.size(); ++q) {
        const StoredPart& other = rule.parts[q];
        if (other.form != form || other.alternative != part.alternative) {
          continue;
        }
        found = found || (mask >> q & 1) != 0;
        if (&other < &part) first = false;
      }
      if (!found && first) Missing(rule, part.pattern, instance);
    }
  }

  void Missing(const TensorRule& rule, absl::string_view pattern,
               size_t instance) {
    if (!problems_->Keeps("missing_tensor")) {
      return problems_->Count("missing_tensor");
    }
    problems_->Add(
        "missing_tensor",
        Quote(table_.NameOf(rule, pattern, static_cast<int64_t>(instance))));
  }

  const TensorCatalog& catalog_;
  const FamilyTable& table_;
  ProblemList* const problems_;
  ProblemList* const notes_;
  std::vector<std::vector<uint16_t>> present_;  // [rule][instance]: parts
  std::set<int> groups_;                        // that have tensors
  int64_t num_matched_ = 0;
};

}  // namespace

bool ShapeFits(const StoredPart& part, absl::Span<const int64_t> shape) {
  if (part.any_shape || shape == absl::MakeConstSpan(part.shape)) return true;
  return part.squeeze && WithoutOnes(shape) == WithoutOnes(part.shape);
}

int64_t CheckAgainstTable(const TensorCatalog& catalog,
                          const FamilyTable& table, ProblemList* problems,
                          ProblemList* notes) {
  return TableCheck(catalog, table, problems, notes).Run();
}

}  // namespace espalier::internal
