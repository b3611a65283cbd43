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

struct PanelScales {
  const uint8_t* scales;
  int64_t width;
  explicit PanelScales(const Panel& panel)
      : scales(static_cast<const uint8_t*>(panel.scales.pointer)),
        width(panel.width) {}
  static int64_t Bytes(const PackedView&) { return 0; }
  static void Prepare(Panel*, int64_t, char*) {}
  Mxfp4::Scales At(int64_t k, int t) const {
    return Mxfp4::MakeScales(_mm_loadu_si128(reinterpret_cast<const __m128i*>(
        scales + kPackedStrip * (k / 32 * width + t))));
  }
};

int64_t TaskScratchBytes(const PackedView&) { return 0; }
void PrepareTask(const FusedArgs&, char*) {}

int64_t PanelScratchBytes(const PackedView& weight) {
  if (weight.layout == PackedLayout::kLanes) return 0;
  return kPanelColumns * (weight.in / 2 + weight.in / 32);
}

void PreparePanel(const PackedView& weight, int64_t strip, const char*,
                  char* scratch, Panel* panel) {
  panel->width = PanelWidth(weight, strip);
  panel->scales = weight.scales;
  panel->group = 32;
  if (weight.layout == PackedLayout::kLanes) {
    panel->codes = static_cast<const uint8_t*>(weight.codes.pointer) +
                   64 * strip * (weight.in / 8);
    panel->scales.pointer = static_cast<uint8_t*>(weight.scales.pointer) +
                            kPackedStrip * strip * (weight.in / 32);
    return;
  }
  auto* codes = reinterpret_cast<uint8_t*>(scratch);
  uint8_t* scales = codes + kPanelColumns * weight.in / 2;
  LayOutLines<Mxfp4>(weight, strip, panel->width, codes);
  LayOutScales(weight, strip, panel->width, scales);
  panel->codes = codes;
  panel->scales.pointer = scales;
}

// Whether every scale of the task is in low..high.
bool ScalesWithin(const FusedArgs& args, int low, int high) {
  const PackedView& weight = *static_cast<const PackedView*>(args.source);
  const int64_t groups = weight.in / 32;
  const auto* scales = static_cast<const uint8_t*>(weight.scales.pointer);
  const __m512i first = _mm512_set1_epi8(static_cast<char>(low));
  const __m512i span = _mm512_set1_epi8(static_cast<char>(high - low));
  const auto within = [&](const uint8_t* from, int64_t count) {
    __mmask64 out = 0;
    for (int64_t i = 0; i < count; i += 64) {
      const __mmask64 mask = BytesMask(count - i);
      out |= _mm512_mask_cmpgt_epu8_mask(
          mask, _mm512_sub_epi8(_mm512_maskz_loadu_epi8(mask, from + i), first),
          span);
    }
    return out == 0;
  };
  if (weight.layout == PackedLayout::kLanes) {
    const int64_t strips = CeilDiv(args.num_lanes, kPackedStrip);
    return within(scales + args.lane_begin * groups,
                  strips * kPackedStrip * groups);
  }
  for (int64_t i = 0; i < args.num_lanes; ++i) {
    if (!within(scales + (args.lane_begin + i) * weight.scales.strides[0],
                groups)) {
      return false;
    }
  }
  return true;
}

bool Plain(const FusedArgs& args) { return ScalesWithin(args, 2, 252); }

// Unscaled words and sums in units of the scale at hand: a step of the scale
// is a product of the sums with a power of two, which is exact. Fewer
// instructions a word than adding to exponents; the same bits while sums stay
// above 2^-96.
struct Mxfp4Units {
  static constexpr int kLines = Mxfp4::kLines;
  static constexpr int kLineColumns = Mxfp4::kLineColumns;
  using Scales = __m512i;  // s in each lane

  static __m512i Word(__m512i index) {
    return _mm512_permutexvar_epi16(index, Load(kE2m1Unit));
  }
  static void Words(__m512i line, const Scales&, __m512i w[4]) {
    w[0] = Word(line);
    w[1] = Word(_mm512_srli_epi32(line, 4));
    w[2] = Word(_mm512_srli_epi32(line, 8));
    w[3] = Word(_mm512_srli_epi32(line, 12));
  }
  // 2^(from - to)
  static __m512 Ratio(__m512i from, __m512i to) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(
        _mm512_add_epi32(_mm512_sub_epi32(from, to), _mm512_set1_epi32(127)),
        23));
  }
  static constexpr bool kInUnits = true;
  static constexpr int kStripsAtOnce = 6;
  static __m512 Unit(const Scales& scales) {  // 2^(s - 127)
    return _mm512_castsi512_ps(_mm512_slli_epi32(scales, 23));
  }
};

struct PanelUnits {
  PanelScales scales;
  explicit PanelUnits(const Panel& panel) : scales(panel) {}
  Mxfp4Units::Scales At(int64_t k, int t) const {
    return _mm512_cvtepu8_epi32(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(
            scales.scales + kPackedStrip * (k / 32 * scales.width + t))));
  }
};

bool Moderate(const FusedArgs& args) { return ScalesWithin(args, 97, 157); }

}  // namespace

bool FusedMxfp4(const FusedArgs& args) {
  if (args.k == 0) return false;
  if (args.m <= 4 && Moderate(args)) {
    RunFusedLow<Mxfp4Units, PanelUnits>(args);
    return true;
  }
  if (!Plain(args)) return false;
  RunFused<Mxfp4, PanelScales, PanelScales>(args);
  return true;
}
int64_t FusedScratchMxfp4(const void* source, int64_t m) {
  return FusedScratch<PanelScales>(*static_cast<const PackedView*>(source), m);
}

}  // namespace espalier::packed
