// Packing without intrinsics. Included inside the anonymous namespace of a
// translation unit. A Source turns elements into words:
//   Element; Word(Element) -> uint32_t; kSwap: k in the order 1 0 3 2 ...
//   (and an even number of words).

inline uint32_t FloatBits(float value) {
  return __builtin_bit_cast(uint32_t, value);
}

// Rounds to bf16 and keeps the value as f32 bits.
inline uint32_t RoundToBf16(uint32_t word) {
  if ((word & 0x7fffffffu) > 0x7f800000u)
    return (word | 0x400000u) & 0xffff0000u;
  return (word + 0x7fffu + ((word >> 16) & 1u)) & 0xffff0000u;
}

struct F32Source {
  using Element = uint32_t;
  static constexpr bool kSwap = false;
  static uint32_t Word(Element x) { return x; }
};
struct Bf16Source {
  using Element = uint16_t;
  static constexpr bool kSwap = false;
  static uint32_t Word(Element x) { return static_cast<uint32_t>(x) << 16; }
};
struct Bf16SwapSource {
  using Element = uint16_t;
  static constexpr bool kSwap = true;
  static uint32_t Word(Element x) { return static_cast<uint32_t>(x) << 16; }
};
struct F32RoundSwapSource {
  using Element = uint32_t;
  static constexpr bool kSwap = true;
  static uint32_t Word(Element x) { return RoundToBf16(x); }
};

template <typename Source, int kPitch>
void PackPanel(const typename Source::Element* from, int64_t lane_stride,
               int64_t k_stride, int lanes, int64_t num_k, uint32_t* out) {
  const int64_t words = Source::kSwap ? (num_k + 1) / 2 * 2 : num_k;
  if (lanes < kPitch) {
    for (int64_t j = 0; j < words; ++j) {
      for (int lane = lanes; lane < kPitch; ++lane) out[j * kPitch + lane] = 0;
    }
  }
  if (words > num_k) {  // the missing last k, which the swap puts first
    for (int lane = 0; lane < lanes; ++lane) {
      out[(words - 2) * kPitch + lane] = 0;
    }
  }
  if (lane_stride == 1) {
    for (int64_t k = 0; k < num_k; ++k) {
      uint32_t* to = out + (Source::kSwap ? k ^ 1 : k) * kPitch;
      const typename Source::Element* row = from + k * k_stride;
      if (lanes == kPitch) {
        for (int lane = 0; lane < kPitch; ++lane) {
          to[lane] = Source::Word(row[lane]);
        }
      } else {
        for (int lane = 0; lane < lanes; ++lane) {
          to[lane] = Source::Word(row[lane]);
        }
      }
    }
    return;
  }
  constexpr int64_t kStep = 16;  // words of a lane per visit: a cache line
  for (int64_t begin = 0; begin < num_k; begin += kStep) {
    const int64_t end = begin + kStep < num_k ? begin + kStep : num_k;
    for (int lane = 0; lane < lanes; ++lane) {
      const typename Source::Element* row = from + lane * lane_stride;
      for (int64_t k = begin; k < end; ++k) {
        out[(Source::kSwap ? k ^ 1 : k) * kPitch + lane] =
            Source::Word(row[k * k_stride]);
      }
    }
  }
}

template <typename Source, int kPitch>
void PackPanels(const PackArgs& args) {
  const Operand& operand = args.operand;
  const auto* data = static_cast<const typename Source::Element*>(operand.data);
  uint32_t* out = args.out;
  for (int64_t lane = 0; lane < args.num_lanes; lane += args.panel_lanes) {
    const int64_t left = args.num_lanes - lane;
    PackPanel<Source, kPitch>(
        data + (args.lane_begin + lane) * operand.lane_stride +
            args.k_begin * operand.k_stride,
        operand.lane_stride, operand.k_stride,
        static_cast<int>(left < args.panel_lanes ? left : args.panel_lanes),
        args.num_k, out);
    out += args.out_stride;
  }
}
