#ifndef ESPALIER_AUTOGRAD_SAVED_H_
#define ESPALIER_AUTOGRAD_SAVED_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "espalier/autograd/variable.h"

namespace espalier::autograd {

// Nodes recorded in its lifetime are counted under its name. Regions nest:
// "layer 3" and in it "attention" count as "layer 3/attention".
class Region {
 public:
  explicit Region(absl::string_view name);
  // Under exactly this path; null for none.
  explicit Region(std::shared_ptr<const std::string> path);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  const std::shared_ptr<const std::string>& path() const { return path_; }

 private:
  const std::shared_ptr<const std::string> path_;
  const Region* const previous_;
};

// Bytes of the storages that a graph keeps for backward, by whom they belong
// to. A storage counts whole, and once, where it was saved first.
struct SavedBytes {
  int64_t activations = 0;  // on the heap, made by ops: freed by backward
  int64_t leaves = 0;       // on the heap, of leaf variables: parameters, ids
  int64_t mapped = 0;       // pages of files
  int64_t lent = 0;         // of the host application
  int64_t moved = 0;        // activations that SavedTensorHooks took away
  int64_t recomputed = 0;   // given up in selective regions, made again
};

struct SavedReport {
  struct Row {
    std::string region;  // path; empty outside of regions
    SavedBytes bytes;
    int64_t num_nodes = 0;
  };
  SavedBytes total;
  std::vector<Row> rows;  // in the order of recording
};

// What Backward(roots) would read and then release.
SavedReport CountSaved(absl::Span<const Variable> roots);

}  // namespace espalier::autograd

#endif  // ESPALIER_AUTOGRAD_SAVED_H_
