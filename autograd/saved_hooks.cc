#include "espalier/autograd/saved_hooks.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "espalier/autograd/internal/moved_bytes.h"
#include "espalier/autograd/internal/state.h"
#include "espalier/autograd/node.h"
#include "espalier/runtime/check.h"

namespace espalier {

namespace internal {

void RestoreMoved(autograd::Node& node) {
  std::shared_ptr<MovedMembers>& moved = NodeAccess::Moved(node);
  if (moved == nullptr) return;
  size_t index = 0;
  auto next = moved->members.begin();
  node.ForEachSaved([&](absl::string_view name, Tensor& saved) {
    if (next == moved->members.end() || next->index != index++) return;
    MovedBytes& bytes = *next->moved;
    if (bytes.packed != nullptr) {
      const MemoryScope scope(*bytes.device, bytes.tag);
      bytes.bytes = bytes.packed->Unpack();
      bytes.packed = nullptr;
      ESPALIER_CHECK(bytes.bytes.dtype() == kU8 &&
                         bytes.bytes.num_bytes() == bytes.num_bytes &&
                         &bytes.bytes.device() == bytes.device,
                     node.name(), ": ", name, " came back as ",
                     ToString(bytes.bytes), ", expected ", bytes.num_bytes,
                     " bytes on ", ToString(bytes.device->type()));
    }
    saved = next->window.OnBytes(bytes.bytes);
    ++next;
  });
  moved = nullptr;
}

}  // namespace internal

namespace autograd {

SavedTensorScope::SavedTensorScope(SavedTensorHooks* hooks)
    : hooks_(hooks), scope_(&internal::AutogradMode::saved_scope, this) {}

SavedTensorScope::~SavedTensorScope() = default;

std::shared_ptr<internal::MovedBytes> SavedTensorScope::Move(
    absl::string_view name, const Tensor& tensor) {
  Known& known = known_[tensor.storage_id()];
  // The address is that of the storage seen before only if that one lives.
  if (!known.storage.expired()) {
    if (std::shared_ptr<internal::MovedBytes> moved = known.moved.lock()) {
      return moved;
    }
  }
  auto moved = std::make_shared<internal::MovedBytes>();
  moved->packed = hooks_->Pack(name, tensor.AsBytes());
  if (moved->packed == nullptr) return nullptr;
  moved->num_bytes = tensor.storage_bytes();
  moved->device = &tensor.device();
  moved->tag = tensor.device().memory_tag();
  known = {tensor.weak_storage(), moved};
  return moved;
}

void SavedTensorScope::PackNode(Node& node) {
  if (hooks_ == nullptr) return;
  const std::vector<const void*>& leaves =
      internal::NodeAccess::LeafStorages(node);
  auto all = std::make_shared<internal::MovedMembers>();
  size_t next_index = 0;
  node.ForEachSaved([&](absl::string_view name, Tensor& saved) {
    const size_t index = next_index++;
    if (!saved || saved.storage_kind() != StorageKind::kHeap ||
        saved.storage_bytes() == 0 ||
        std::find(leaves.begin(), leaves.end(), saved.storage_id()) !=
            leaves.end()) {
      return;
    }
    std::shared_ptr<internal::MovedBytes> moved = Move(name, saved);
    if (moved == nullptr) return;
    all->members.push_back({index, saved.WithoutBytes(), std::move(moved)});
    saved = Tensor();
  });
  if (!all->members.empty()) {
    internal::NodeAccess::Moved(node) = std::move(all);
  }
}

}  // namespace autograd
}  // namespace espalier
