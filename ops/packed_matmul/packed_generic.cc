#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "espalier/ops/packed_matmul/internal/kernels.h"
#include "espalier/runtime/ceil_div.h"
#include "espalier/runtime/packed_lanes.h"

namespace espalier::packed {
namespace {

using gemm::Compute;
using gemm::kLanes;
using gemm::PackArgs;
using gemm::Tile;

constexpr std::array<float, 16> kE2m1 = {
    0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

constexpr std::array<float, 128> MakeE4m3() {
  std::array<float, 128> values{};
  for (int code = 0; code < 128; ++code) {
    float x = static_cast<float>(code < 8 ? code : 8 + code % 8) / 512;
    for (int e = 1; e < code / 8; ++e) x *= 2;
    values[static_cast<size_t>(code)] = x;
  }
  values[127] = std::bit_cast<float>(0x7fc00000u);
  return values;
}
constexpr std::array<float, 128> kE4m3 = MakeE4m3();

float Scale(const View& scales, int64_t i) {
  switch (scales.dtype) {
    case kU8: {
      const uint32_t s = scales.data<uint8_t>()[i];
      return std::bit_cast<float>(s == 0     ? 0x00400000u
                                  : s == 255 ? 0x7fc00000u
                                             : s << 23);
    }
    case kBF16:
      return scales.data<BFloat16>()[i];
    case kF16:
      return scales.data<Float16>()[i];
    default:
      return scales.data<float>()[i];
  }
}

// Where a row's units of `columns` columns stand, in bytes from the codes or
// in elements of the scales.
struct Walk {
  int64_t first;
  int64_t step;
};
Walk WalkLanes(const PackedView& w, int64_t row, int64_t columns,
               int64_t line) {
  const StripLines lines =
      LinesOf(w.out, row / kPackedStrip, CeilDiv(w.in, columns));
  return {line * lines.first, line * lines.width};
}
Walk WalkScales(const PackedView& w, int64_t row) {
  if (w.format == PackedFormat::kFp8Block) {
    return {row / kFp8BlockSide * w.scales.stride(0), w.scales.stride(1)};
  }
  if (w.layout == PackedLayout::kRows) return {row * w.scales.stride(0), 1};
  Walk walk = WalkLanes(w, row, w.group, kPackedStrip);
  walk.first += row % kPackedStrip;
  return walk;
}

uint32_t LoadWord(const uint8_t* bytes) {
  uint32_t word;
  std::memcpy(&word, bytes, 4);
  return word;
}

// Calls fn(code) for each column of a run within one scale group.
template <typename Fn>
void ForEachCode(const PackedView& w, int64_t row, int64_t begin, int64_t end,
                 Fn fn) {
  const auto* codes = w.codes.data<uint8_t>();
  const int64_t row_byte = row * w.codes.stride(0) * SizeOf(w.codes.dtype);
  const bool rows = w.layout == PackedLayout::kRows;
  const int64_t lane = row % kPackedStrip;
  if (w.format == PackedFormat::kFp8Block) {
    const Walk walk = WalkLanes(w, row, 4, 64);
    for (int64_t c = begin; c < end; ++c) {
      fn(rows ? codes[row_byte + c]
              : codes[walk.first + c / 4 * walk.step + LaneByte(lane, c % 4)]);
    }
    return;
  }
  if (rows) {
    for (int64_t c = begin; c < end; ++c) {
      fn(codes[row_byte + c / 2] >> (4 * (c % 2)) & 15);
    }
    return;
  }
  const Walk walk = WalkLanes(w, row, 8, 64);
  const bool int4 = w.format == PackedFormat::kInt4;
  for (int64_t c = begin; c < end; ++c) {
    const uint8_t* line = codes + walk.first + c / 8 * walk.step;
    const int64_t i = c % 8;
    if (int4) {
      fn(Int4FromLane(line[LaneByte(lane, i % 4)] >> (i / 4 * 4) & 15u));
    } else {
      fn(LoadWord(line + 4 * lane) >> LaneShift(i) & 15);
    }
  }
}

// Writes one element in the panel format of a tile: lane of word(s) at k.
class PanelWriter {
 public:
  explicit PanelWriter(const Tile& tile) : compute_(tile.compute) {
    pairs_ = tile.words_per_step < tile.k_step;
  }
  void Write(uint32_t* panel, int64_t lane, int64_t k, float value) const {
    if (compute_ == Compute::kF32) {
      panel[k * kLanes + lane] = std::bit_cast<uint32_t>(value);
      return;
    }
    const uint32_t bits = BFloat16::FromFloat(value);
    if (!pairs_) {  // widened to f32, neighbours swapped
      panel[(k ^ 1) * kLanes + lane] = bits << 16;
      return;
    }
    uint32_t& word = panel[k / 2 * kLanes + lane];
    word = k % 2 == 0 ? bits : word | bits << 16;
  }

 private:
  Compute compute_;
  bool pairs_;
};

// Writes zeros where a tile's last step has no k, and to absent lanes.
void ClearEdges(const PanelWriter& writer, const Tile& tile,
                const PackArgs& args) {
  const int64_t steps = CeilDiv(args.num_k, tile.k_step);
  for (int64_t lane = args.num_lanes; lane % kLanes != 0; ++lane) {
    uint32_t* panel = args.out + lane / kLanes * args.out_stride;
    for (int64_t k = 0; k < steps * tile.k_step; ++k) {
      writer.Write(panel, lane % kLanes, k, 0);
    }
  }
  for (int64_t k = args.num_k; k < steps * tile.k_step; ++k) {
    for (int64_t lane = 0; lane < args.num_lanes; ++lane) {
      writer.Write(args.out + lane / kLanes * args.out_stride, lane % kLanes, k,
                   0);
    }
  }
}

constexpr int64_t kBuffer = 256;

}  // namespace

void DecodeColumns(const PackedView& weight, int64_t row, int64_t column,
                   int64_t count, float* values) {
  const Walk walk = WalkScales(weight, row);
  const int64_t end = column + count;
  while (column < end) {
    const int64_t group = column / weight.group;
    const int64_t group_end = std::min(end, (group + 1) * weight.group);
    const float scale = Scale(weight.scales, walk.first + group * walk.step);
    switch (weight.format) {
      case PackedFormat::kMxfp4:
        ForEachCode(weight, row, column, group_end,
                    [&](uint32_t code) { *values++ = kE2m1[code] * scale; });
        break;
      case PackedFormat::kInt4:
        ForEachCode(weight, row, column, group_end, [&](uint32_t code) {
          *values++ = static_cast<float>(static_cast<int>(code) - 8) * scale;
        });
        break;
      case PackedFormat::kFp8Block:
        ForEachCode(weight, row, column, group_end, [&](uint32_t code) {
          const float magnitude = kE4m3[code & 127];
          *values++ = (code & 128 ? -magnitude : magnitude) * scale;
        });
        break;
    }
    column = group_end;
  }
}

void PackForward(const void* source, const Tile& tile, const PackArgs& args) {
  const PackedView& weight = *static_cast<const PackedView*>(source);
  const PanelWriter writer(tile);
  float values[kBuffer];
  for (int64_t lane = 0; lane < args.num_lanes; ++lane) {
    uint32_t* panel = args.out + lane / kLanes * args.out_stride;
    for (int64_t k = 0; k < args.num_k; k += kBuffer) {
      const int64_t count = std::min(kBuffer, args.num_k - k);
      DecodeColumns(weight, args.lane_begin + lane, args.k_begin + k, count,
                    values);
      for (int64_t i = 0; i < count; ++i) {
        writer.Write(panel, lane % kLanes, k + i, values[i]);
      }
    }
  }
  ClearEdges(writer, tile, args);
}

void PackGradient(const void* source, const Tile& tile, const PackArgs& args) {
  const PackedView& weight = *static_cast<const PackedView*>(source);
  const PanelWriter writer(tile);
  float values[kBuffer];
  for (int64_t k = 0; k < args.num_k; ++k) {
    for (int64_t lane = 0; lane < args.num_lanes; lane += kBuffer) {
      const int64_t count = std::min(kBuffer, args.num_lanes - lane);
      DecodeColumns(weight, args.k_begin + k, args.lane_begin + lane, count,
                    values);
      for (int64_t i = 0; i < count; ++i) {
        writer.Write(args.out + (lane + i) / kLanes * args.out_stride,
                     (lane + i) % kLanes, k, values[i]);
      }
    }
  }
  ClearEdges(writer, tile, args);
}

}  // namespace espalier::packed
