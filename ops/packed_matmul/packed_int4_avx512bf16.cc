#include <immintrin.h>

#include <cstdint>

#include "espalier/ops/packed_matmul/internal/pack_avx512.h"
#include "espalier/runtime/packed_weight.h"

namespace espalier::packed {
namespace {

#include "espalier/ops/packed_matmul/internal/formats_avx512-inl.h"
#include "espalier/ops/packed_matmul/internal/panel_avx512-inl.h"

constexpr int64_t kAheadBytes = 6144;
int64_t PanelScratchBytes(const PackedView& weight);
struct Panel;
void PreparePanel(const PackedView& weight, int64_t strip, char* scratch,
                  Panel* panel);

#include "espalier/ops/packed_matmul/internal/fused-inl.h"

struct PanelScales {
  const Panel& panel;
  explicit PanelScales(const Panel& panel) : panel(panel) {}
  Int4::Scales At(int64_t k, int t) const {
    return Int4::MakeScales(ScaleValues(
        panel.scales, kPackedStrip * (k / panel.group * panel.width + t)));
  }
};

int64_t CodesBytes(const PackedView& weight) {
  return 64 * kPanelStrips * NumUnits<Int4>(weight);
}

int64_t PanelScratchBytes(const PackedView& weight) {
  if (weight.layout == PackedLayout::kLanes) return 0;
  return CodesBytes(weight) +
         kPanelColumns * weight.scales.shape[1] * SizeOf(weight.scales.dtype);
}

void PreparePanel(const PackedView& weight, int64_t strip, char* scratch,
                  Panel* panel) {
  panel->width = PanelWidth(weight, strip);
  panel->scales = weight.scales;
  panel->group = weight.group;
  const int64_t groups = (weight.in + weight.group - 1) / weight.group;
  if (weight.layout == PackedLayout::kLanes) {
    panel->codes = static_cast<const uint8_t*>(weight.codes.pointer) +
                   64 * strip * NumUnits<Int4>(weight);
    panel->scales.pointer =
        static_cast<uint8_t*>(weight.scales.pointer) +
        kPackedStrip * strip * groups * SizeOf(weight.scales.dtype);
    return;
  }
  auto* codes = reinterpret_cast<uint8_t*>(scratch);
  void* scales = codes + CodesBytes(weight);
  LayOutLines<Int4>(weight, strip, panel->width, codes);
  if (weight.scales.dtype == kF32) {
    LayOutScales(weight, strip, panel->width, static_cast<uint32_t*>(scales));
  } else {
    LayOutScales(weight, strip, panel->width, static_cast<uint16_t*>(scales));
  }
  panel->codes = codes;
  panel->scales.pointer = scales;
}

}  // namespace

bool FusedInt4(const FusedArgs& args) {
  if (args.k == 0) return false;
  RunFused<Int4, PanelScales>(args);
  return true;
}
int64_t FusedScratchInt4(const void* source, int64_t m) {
  return FusedScratch(*static_cast<const PackedView*>(source), m);
}

}  // namespace espalier::packed
