#include "espalier/io/problem_list.h"

#include <algorithm>
#include <utility>

namespace espalier {

const ProblemList::Kind* ProblemList::Find(absl::string_view kind) const {
  const auto found =
      std::find_if(kinds_.begin(), kinds_.end(),
                   [&](const Kind& k) { return k.name == kind; });
  return found == kinds_.end() ? nullptr : &*found;
}

bool ProblemList::Keeps(absl::string_view kind) const {
  const Kind* found = Find(kind);
  return found == nullptr ||
         static_cast<int64_t>(found->first.size()) < max_messages_;
}

void ProblemList::Add(absl::string_view kind, std::string message) {
  Kind* found = const_cast<Kind*>(Find(kind));
  if (found == nullptr) {
    kinds_.push_back({std::string(kind), 0, {}});
    found = &kinds_.back();
  }
  ++found->count;
  if (!message.empty() &&
      static_cast<int64_t>(found->first.size()) < max_messages_) {
    found->first.push_back(std::move(message));
  }
}

int64_t ProblemList::total() const {
  int64_t total = 0;
  for (const Kind& kind : kinds_) total += kind.count;
  return total;
}

int64_t ProblemList::CountOf(absl::string_view kind) const {
  const Kind* found = Find(kind);
  return found == nullptr ? 0 : found->count;
}

JsonValue ProblemList::ToJson() const {
  JsonValue::Object object;
  for (const Kind& kind : kinds_) {
    JsonValue::Array first(kind.first.begin(), kind.first.end());
    object.push_back(
        {kind.name, JsonValue::Object{{"count", kind.count},
                                      {"first", std::move(first)}}});
  }
  return object;
}

}  // namespace espalier
