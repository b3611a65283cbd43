#ifndef ESPALIER_AUTOGRAD_SAVED_HOOKS_H_
#define ESPALIER_AUTOGRAD_SAVED_HOOKS_H_

#include <memory>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

#include "espalier/autograd/mode.h"
#include "espalier/runtime/tensor.h"

namespace espalier {

namespace internal {
struct MovedBytes;
}

namespace autograd {

class Node;

// Bytes that hooks took away, kept until the graph lets go of them.
class PackedBytes {
 public:
  virtual ~PackedBytes() = default;
  // The same bytes, u8 of the same size, on the device they came from; called
  // at most once, before the first Backward that reads them. May be read-only.
  virtual Tensor Unpack() = 0;
};

// Decides where saved tensors wait for backward.
class SavedTensorHooks {
 public:
  virtual ~SavedTensorHooks() = default;
  // `bytes`: the whole storage behind a saved tensor, u8. Returns it packed, or
  // null to leave it where it is. `name`: of the member that saved it first.
  virtual std::unique_ptr<PackedBytes> Pack(absl::string_view name,
                                            const Tensor& bytes) = 0;
};

// In its lifetime nodes recorded on this thread give their saved tensors to
// `hooks`; null turns outer hooks off. Nestable. Each storage is packed once,
// however many nodes save views of it, and comes back once. Storages of leaf
// variables, mapped files and lent memory stay. Packed when the node is
// recorded: what the caller still holds is freed when the caller lets go.
// `hooks` outlives the scope, not the graph. Values keep their bits.
class SavedTensorScope {
 public:
  explicit SavedTensorScope(SavedTensorHooks* hooks);
  ~SavedTensorScope();
  SavedTensorScope(const SavedTensorScope&) = delete;
  SavedTensorScope& operator=(const SavedTensorScope&) = delete;

  // Called by recording.
  void PackNode(Node& node);

 private:
  struct Known {
    std::weak_ptr<const void> storage;  // tells a reused address
    std::weak_ptr<internal::MovedBytes> moved;
  };
  std::shared_ptr<internal::MovedBytes> Move(absl::string_view name,
                                             const Tensor& tensor);

  SavedTensorHooks* const hooks_;
  absl::flat_hash_map<const void*, Known> known_;
  internal::ModeScope<SavedTensorScope*> scope_;
};

}  // namespace autograd
}  // namespace espalier

#endif  // ESPALIER_AUTOGRAD_SAVED_HOOKS_H_
