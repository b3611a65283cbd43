#include <immintrin.h>

#include <cstdint>

#include "espalier/ops/packed_matmul/internal/pack_avx512.h"
#include "espalier/runtime/packed_weight.h"

namespace espalier::packed {
namespace {

#include "espalier/ops/packed_matmul/internal/formats_avx512-inl.h"
#include "espalier/ops/packed_matmul/internal/panel_avx512-inl.h"

constexpr int64_t kAheadBytes = 8192;
int64_t PanelScratchBytes(const PackedView& weight);
struct Panel;
void PreparePanel(const PackedView& weight, int64_t strip, char* scratch,
                  Panel* panel);

#include "espalier/ops/packed_matmul/internal/fused-inl.h"

struct PanelTables {
  const E4m3Table* tables;
  int64_t row;
  explicit PanelTables(const Panel& panel)
      : tables(panel.tables), row(panel.first_row) {}
  Fp8::Scales At(int64_t k, int t) const {
    return tables + k / kFp8BlockSide * 2 +
           ((row + t * kPackedStrip) / kFp8BlockSide - row / kFp8BlockSide);
  }
};

int64_t TablesBytes(const PackedView& weight) {
  return 2 * weight.scales.shape[1] * static_cast<int64_t>(sizeof(E4m3Table));
}

int64_t PanelScratchBytes(const PackedView& weight) {
  const int64_t tables = TablesBytes(weight);
  if (weight.layout == PackedLayout::kLanes) return tables;
  return tables + 64 * kPanelStrips * NumUnits<Fp8>(weight);
}

void PreparePanel(const PackedView& weight, int64_t strip, char* scratch,
                  Panel* panel) {
  panel->width = PanelWidth(weight, strip);
  panel->first_row = strip * kPackedStrip;
  // A panel of 48 features meets at most two blocks of scales.
  auto* tables = reinterpret_cast<E4m3Table*>(scratch);
  const int64_t first = panel->first_row / kFp8BlockSide;
  const int64_t last =
      (Least(panel->first_row + kPanelColumns, weight.out) - 1) / kFp8BlockSide;
  for (int64_t k = 0; k < weight.scales.shape[1]; ++k) {
    for (int64_t block = first; block <= last; ++block) {
      MakeTable(ScaleValue(weight.scales, block * weight.scales.strides[0] +
                                              k * weight.scales.strides[1]),
                tables + 2 * k + block - first);
    }
  }
  panel->tables = tables;
  if (weight.layout == PackedLayout::kLanes) {
    panel->codes = static_cast<const uint8_t*>(weight.codes.pointer) +
                   64 * strip * NumUnits<Fp8>(weight);
    return;
  }
  auto* codes = reinterpret_cast<uint8_t*>(scratch + TablesBytes(weight));
  LayOutLines<Fp8>(weight, strip, panel->width, codes);
  panel->codes = codes;
}

}  // namespace

bool FusedFp8(const FusedArgs& args) {
  if (args.k == 0) return false;
  RunFused<Fp8, PanelTables>(args);
  return true;
}
int64_t FusedScratchFp8(const void* source, int64_t m) {
  return FusedScratch(*static_cast<const PackedView*>(source), m);
}

}  // namespace espalier::packed
