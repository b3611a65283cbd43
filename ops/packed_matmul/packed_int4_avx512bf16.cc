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

constexpr int64_t kAheadBytes = 6144;
int64_t TaskScratchBytes(const PackedView& weight);
void PrepareTask(const FusedArgs& args, char* scratch);
int64_t PanelScratchBytes(const PackedView& weight);
struct Panel;
void PreparePanel(const PackedView& weight, int64_t strip,
                  const char* task_scratch, char* scratch, Panel* panel);

#include "espalier/ops/packed_matmul/internal/fused-inl.h"

int64_t NumGroups(const PackedView& weight) {
  return CeilDiv(weight.in, weight.group);
}

// Groups are of 32, 64 or 128.
int Shift(const Panel& panel) {
  return __builtin_ctzll(static_cast<uint64_t>(panel.group));
}

// Tables of one group at a time, for few rows.
struct PanelScales {
  const Panel& panel;
  int shift;
  alignas(64) ByteTable tables[kPanelStrips];
  explicit PanelScales(const Panel& panel)
      : panel(panel), shift(Shift(panel)) {}
  Int4::Scales At(int64_t k, int t) {
    if ((k & (panel.group - 1)) == 0) {
      Int4::MakeTable(
          ScaleValues(panel.scales,
                      kPackedStrip * ((k >> shift) * panel.width + t)),
          &tables[t]);
    }
    return &tables[t];
  }
};

// Tables of all groups: [group][strip].
struct PanelTables {
  const ByteTable* tables;
  int shift;
  int64_t width;
  explicit PanelTables(const Panel& panel)
      : tables(panel.tables), shift(Shift(panel)), width(panel.width) {}
  static int64_t Bytes(const PackedView& weight) {
    return kPanelStrips * NumGroups(weight) *
           static_cast<int64_t>(sizeof(ByteTable));
  }
  static void Prepare(Panel* panel, int64_t k, char* scratch) {
    auto* tables = reinterpret_cast<ByteTable*>(scratch);
    const int64_t count = CeilDiv(k, panel->group) * panel->width;
    for (int64_t i = 0; i < count; ++i) {
      Int4::MakeTable(ScaleValues(panel->scales, kPackedStrip * i), tables + i);
    }
    panel->tables = tables;
  }
  Int4::Scales At(int64_t k, int t) const {
    return tables + (k >> shift) * width + t;
  }
};

int64_t TaskScratchBytes(const PackedView&) { return 0; }
void PrepareTask(const FusedArgs&, char*) {}

int64_t CodesBytes(const PackedView& weight) {
  return 64 * kPanelStrips * NumUnits<Int4>(weight);
}

int64_t PanelScratchBytes(const PackedView& weight) {
  if (weight.layout == PackedLayout::kLanes) return 0;
  return CodesBytes(weight) +
         kPanelColumns * weight.scales.shape[1] * SizeOf(weight.scales.dtype);
}

void PreparePanel(const PackedView& weight, int64_t strip, const char*,
                  char* scratch, Panel* panel) {
  panel->width = PanelWidth(weight, strip);
  panel->scales = weight.scales;
  panel->group = weight.group;
  const int64_t groups = NumGroups(weight);
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

// Whether all exponents of `count` scales are below the highest, `exponent`.
template <typename T>
bool AllBelow(const T* from, int64_t count, T exponent) {
  T most = 0;
  for (int64_t i = 0; i < count; ++i) {
    const T x = from[i] & exponent;
    most = most < x ? x : most;
  }
  return most != exponent;
}

bool AreFinite(const View& scales, int64_t at, int64_t count) {
  const void* from = scales.pointer;
  if (scales.dtype == kF32) {
    return AllBelow<uint32_t>(static_cast<const uint32_t*>(from) + at, count,
                              0x7f800000u);
  }
  return AllBelow<uint16_t>(static_cast<const uint16_t*>(from) + at, count,
                            scales.dtype == kF16 ? 0x7c00 : 0x7f80);
}

bool Finite(const FusedArgs& args) {
  const PackedView& weight = *static_cast<const PackedView*>(args.source);
  const int64_t groups = NumGroups(weight);
  if (weight.layout == PackedLayout::kLanes) {
    const int64_t strips = CeilDiv(args.num_lanes, kPackedStrip);
    return AreFinite(weight.scales, args.lane_begin * groups,
                     strips * kPackedStrip * groups);
  }
  for (int64_t i = 0; i < args.num_lanes; ++i) {
    if (!AreFinite(weight.scales,
                   (args.lane_begin + i) * weight.scales.strides[0], groups)) {
      return false;
    }
  }
  return true;
}

}  // namespace

bool FusedInt4(const FusedArgs& args) {
  if (args.k == 0 || !Finite(args)) return false;
  RunFused<Int4, PanelScales, PanelTables>(args);
  return true;
}
int64_t FusedScratchInt4(const void* source, int64_t m) {
  return FusedScratch<PanelTables>(*static_cast<const PackedView*>(source), m);
}

}  // namespace espalier::packed
