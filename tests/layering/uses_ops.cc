// Compiles in a room above ops, and not below it.
#include "espalier/ops/rms_norm/rms_norm.h"
