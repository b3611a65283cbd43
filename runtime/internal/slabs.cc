#include "espalier/runtime/internal/slabs.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace espalier::internal {

char* Slabs::Take(int64_t block_bytes,
                  absl::FunctionRef<char*(int64_t)> new_slab) {
  const int size_class = SizeClass(block_bytes);
  std::set<char*>& with_space = with_space_[static_cast<size_t>(size_class)];
  if (with_space.empty()) {
    char* const data = new_slab(slab_bytes_);
    if (data == nullptr) return nullptr;
    Slab& slab = slabs_[data];
    slab.size_class = size_class;
    // The last number comes first: low addresses are used first.
    for (int64_t i = slab_bytes_ / block_bytes; i > 0; --i) {
      slab.free.push_back(static_cast<uint16_t>(i - 1));
    }
    with_space.insert(data);
    empty_.push_back(data);
  }
  char* const data = *with_space.begin();
  Slab& slab = slabs_.find(data)->second;
  const int64_t number = slab.free.back();
  slab.free.pop_back();
  if (slab.used++ == 0) {
    empty_.erase(std::find(empty_.begin(), empty_.end(), data));
  }
  if (slab.free.empty()) with_space.erase(data);
  return data + number * block_bytes;
}

char* Slabs::Give(char* data, int64_t block_bytes) {
  const auto entry = std::prev(slabs_.upper_bound(data));
  char* const begin = entry->first;
  Slab& slab = entry->second;
  if (slab.free.empty()) {
    with_space_[static_cast<size_t>(slab.size_class)].insert(begin);
  }
  slab.free.push_back(static_cast<uint16_t>((data - begin) / block_bytes));
  if (--slab.used > 0) return nullptr;
  empty_.push_back(begin);
  if (empty_.size() <= kKeptEmpty) return nullptr;
  char* const surplus = Forget(slabs_.find(empty_.front()));
  empty_.erase(empty_.begin());
  return surplus;
}

std::vector<char*> Slabs::TakeEmpty() {
  for (char* const slab : empty_) Forget(slabs_.find(slab));
  return std::exchange(empty_, {});
}

char* Slabs::Forget(std::map<char*, Slab>::iterator slab) {
  char* const data = slab->first;
  with_space_[static_cast<size_t>(slab->second.size_class)].erase(data);
  slabs_.erase(slab);
  return data;
}

}  // namespace espalier::internal
