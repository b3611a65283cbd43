#include "espalier/runtime/internal/slabs.h"

#include <iterator>
#include <utility>

namespace espalier::internal {

char* Slabs::Take(int64_t block_bytes,
                  absl::FunctionRef<char*(int64_t)> new_slab) {
  Class& size_class = classes_[static_cast<size_t>(SizeClass(block_bytes))];
  if (size_class.with_space.empty()) {
    char* const data = new_slab(slab_bytes_);
    if (data == nullptr) return nullptr;
    Slab& slab = slabs_[data];
    // The last number comes first: low addresses are used first.
    for (int64_t i = slab_bytes_ / block_bytes; i > 0; --i) {
      slab.free.push_back(static_cast<uint16_t>(i - 1));
    }
    size_class.with_space.insert(data);
    size_class.empty.insert(data);
  }
  char* const data = *size_class.with_space.begin();
  Slab& slab = slabs_.find(data)->second;
  const int64_t number = slab.free.back();
  slab.free.pop_back();
  if (slab.used++ == 0) size_class.empty.erase(data);
  if (slab.free.empty()) size_class.with_space.erase(data);
  return data + number * block_bytes;
}

char* Slabs::Give(char* data, int64_t block_bytes) {
  Class& size_class = classes_[static_cast<size_t>(SizeClass(block_bytes))];
  const auto entry = std::prev(slabs_.upper_bound(data));
  char* const begin = entry->first;
  Slab& slab = entry->second;
  if (slab.free.empty()) size_class.with_space.insert(begin);
  slab.free.push_back(static_cast<uint16_t>((data - begin) / block_bytes));
  if (--slab.used > 0) return nullptr;
  size_class.empty.insert(begin);
  if (size_class.empty.size() == 1) return nullptr;
  char* const surplus = *size_class.empty.rbegin();
  Forget(size_class, surplus);
  return surplus;
}

std::vector<char*> Slabs::TakeEmpty() {
  std::vector<char*> taken;
  for (Class& size_class : classes_) {
    while (!size_class.empty.empty()) {
      char* const slab = *size_class.empty.begin();
      Forget(size_class, slab);
      taken.push_back(slab);
    }
  }
  return taken;
}

void Slabs::Forget(Class& size_class, char* slab) {
  size_class.with_space.erase(slab);
  size_class.empty.erase(slab);
  slabs_.erase(slab);
}

}  // namespace espalier::internal
