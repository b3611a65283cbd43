#include <immintrin.h>

#include <cstdint>

#include "espalier/ops/packed_matmul/internal/pack_avx512.h"
#include "espalier/runtime/ceil_div.h"
#include "espalier/runtime/packed_lanes.h"
#include "espalier/runtime/packed_weight.h"

namespace espalier::packed {
namespace {

#include "espalier/ops/packed_matmul/internal/formats_avx512-inl.h"
#include "espalier/ops/packed_matmul/internal/panel_avx512-inl.h"

constexpr int64_t kAheadBytes = 8192;
int64_t TaskScratchBytes(const PackedView& weight);
void PrepareTask(const FusedArgs& args, char* scratch);
int64_t PanelScratchBytes(const PackedView& weight);
struct Panel;
void PreparePanel(const PackedView& weight, int64_t strip,
                  const char* task_scratch, char* scratch, Panel* panel);

#include "espalier/ops/packed_matmul/internal/fused-inl.h"

// Tables of a task: [block of rows % 3][in / 128]. Tasks begin at multiples of
// kProductChunk, which is three blocks.
constexpr int64_t kTaskBlocks = kProductChunk / kFp8BlockSide;

struct PanelTables {
  const ByteTable* tables;
  int64_t row;
  int64_t width;
  explicit PanelTables(const Panel& panel)
      : tables(panel.tables), row(panel.first_row), width(panel.group) {}
  static int64_t Bytes(const PackedView&) { return 0; }
  static void Prepare(Panel*, int64_t, char*) {}
  Fp8::Scales At(int64_t k, int t) const {
    const int64_t block = (row + t * kPackedStrip) / kFp8BlockSide;
    return tables + block % kTaskBlocks * width + k / kFp8BlockSide;
  }
};

int64_t TaskScratchBytes(const PackedView& weight) {
  return kTaskBlocks * weight.scales.shape[1] *
         static_cast<int64_t>(sizeof(ByteTable));
}

void PrepareTask(const FusedArgs& args, char* scratch) {
  const PackedView& weight = *static_cast<const PackedView*>(args.source);
  const int64_t width = weight.scales.shape[1];
  const int64_t first = args.lane_begin / kFp8BlockSide;
  const int64_t end = args.lane_begin + args.num_lanes;
  for (int64_t block = first; block * kFp8BlockSide < end; ++block) {
    auto* tables =
        reinterpret_cast<ByteTable*>(scratch) + block % kTaskBlocks * width;
    for (int64_t k = 0; k < width; ++k) {
      MakeTable(ScaleValue(weight.scales, block * weight.scales.strides[0] +
                                              k * weight.scales.strides[1]),
                tables + k);
    }
  }
}

int64_t PanelScratchBytes(const PackedView& weight) {
  if (weight.layout == PackedLayout::kLanes) return 0;
  return 64 * kPanelStrips * NumUnits<Fp8>(weight);
}

void PreparePanel(const PackedView& weight, int64_t strip,
                  const char* task_scratch, char* scratch, Panel* panel) {
  panel->width = PanelWidth(weight, strip);
  panel->first_row = strip * kPackedStrip;
  panel->tables = reinterpret_cast<const ByteTable*>(task_scratch);
  panel->group = weight.scales.shape[1];
  if (weight.layout == PackedLayout::kLanes) {
    panel->codes = static_cast<const uint8_t*>(weight.codes.pointer) +
                   64 * strip * NumUnits<Fp8>(weight);
    return;
  }
  auto* codes = reinterpret_cast<uint8_t*>(scratch);
  LayOutLines<Fp8>(weight, strip, panel->width, codes);
  panel->codes = codes;
}

}  // namespace

bool FusedFp8(const FusedArgs& args) {
  if (args.k == 0) return false;
  RunFused<Fp8, PanelTables, PanelTables>(args);
  return true;
}
int64_t FusedScratchFp8(const void* source, int64_t m) {
  return FusedScratch<PanelTables>(*static_cast<const PackedView*>(source), m);
}

}  // namespace espalier::packed
