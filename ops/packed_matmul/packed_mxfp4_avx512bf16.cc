#include <immintrin.h>

#include <cstdint>

#include "espalier/ops/packed_matmul/internal/pack_avx512.h"
#include "espalier/runtime/packed_weight.h"

namespace espalier::packed {
namespace {

#include "espalier/ops/packed_matmul/internal/formats_avx512-inl.h"
#include "espalier/ops/packed_matmul/internal/panel_avx512-inl.h"

constexpr int64_t kAheadBytes = 1536;
int64_t PanelScratchBytes(const PackedView& weight);
bool Plain(const FusedArgs& args);
struct Panel;
void PreparePanel(const PackedView& weight, int64_t strip, char* scratch,
                  Panel* panel);

#include "espalier/ops/packed_matmul/internal/fused-inl.h"

struct PanelScales {
  const uint8_t* scales;
  int64_t width;
  explicit PanelScales(const Panel& panel)
      : scales(static_cast<const uint8_t*>(panel.scales.pointer)),
        width(panel.width) {}
  Mxfp4::Scales At(int64_t k, int t) const {
    return Mxfp4::MakeScales(_mm_loadu_si128(reinterpret_cast<const __m128i*>(
        scales + kPackedStrip * (k / 32 * width + t))));
  }
};

int64_t PanelScratchBytes(const PackedView& weight) {
  if (weight.layout == PackedLayout::kLanes) return 0;
  return kPanelColumns * (weight.in / 2 + weight.in / 32);
}

void PreparePanel(const PackedView& weight, int64_t strip, char* scratch,
                  Panel* panel) {
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

// Whether no scale of `count` bytes is outside 2..252.
bool PlainBytes(const uint8_t* scales, int64_t count) {
  __mmask64 odd = 0;
  for (int64_t i = 0; i < count; i += 64) {
    const __mmask64 mask = BytesMask(count - i);
    const __m512i low = _mm512_sub_epi8(
        _mm512_maskz_loadu_epi8(mask, scales + i), _mm512_set1_epi8(2));
    odd |= _mm512_mask_cmpgt_epu8_mask(
        mask, low, _mm512_set1_epi8(static_cast<char>(250)));
  }
  return odd == 0;
}

bool Plain(const FusedArgs& args) {
  const PackedView& weight = *static_cast<const PackedView*>(args.source);
  const int64_t groups = weight.in / 32;
  const auto* scales = static_cast<const uint8_t*>(weight.scales.pointer);
  if (weight.layout == PackedLayout::kLanes) {
    const int64_t strips = (args.num_lanes + kPackedStrip - 1) / kPackedStrip;
    return PlainBytes(scales + args.lane_begin * groups,
                      strips * kPackedStrip * groups);
  }
  for (int64_t i = 0; i < args.num_lanes; ++i) {
    if (!PlainBytes(scales + (args.lane_begin + i) * weight.scales.strides[0],
                    groups)) {
      return false;
    }
  }
  return true;
}

}  // namespace

bool FusedMxfp4(const FusedArgs& args) {
  return RunFused<Mxfp4, PanelScales>(args);
}
int64_t FusedScratchMxfp4(const void* source, int64_t m) {
  return FusedScratch(*static_cast<const PackedView*>(source), m);
}

}  // namespace espalier::packed
