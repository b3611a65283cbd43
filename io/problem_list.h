#ifndef ESPALIER_IO_PROBLEM_LIST_H_
#define ESPALIER_IO_PROBLEM_LIST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "espalier/io/json.h"

namespace espalier {

// What is wrong with a folder, counted by kind; of each kind the first
// messages are kept.
class ProblemList {
 public:
  struct Kind {
    std::string name;  // "missing_tensor"
    int64_t count = 0;
    std::vector<std::string> first;
  };

  explicit ProblemList(int64_t max_messages = 10)
      : max_messages_(max_messages) {}

  // Whether a message of this kind would be kept; making it costs time.
  bool Keeps(absl::string_view kind) const;
  void Add(absl::string_view kind, std::string message);
  // One more, whose message Keeps has turned down.
  void Count(absl::string_view kind) { Add(kind, std::string()); }

  bool empty() const { return kinds_.empty(); }
  int64_t total() const;
  int64_t CountOf(absl::string_view kind) const;
  // In the order of their first problem.
  const std::vector<Kind>& kinds() const { return kinds_; }
  // {"missing_tensor": {"count": 3, "first": ["...", ...]}, ...}
  JsonValue ToJson() const;

 private:
  const Kind* Find(absl::string_view kind) const;

  int64_t max_messages_;
  std::vector<Kind> kinds_;
};

}  // namespace espalier

#endif  // ESPALIER_IO_PROBLEM_LIST_H_
