#include "espalier/autograd/mode.h"

namespace espalier::internal {

AutogradMode& CurrentMode() {
  static thread_local AutogradMode mode;
  return mode;
}

}  // namespace espalier::internal
