// Panels of the lane layout out of a weight in rows. Included after
// formats_avx512-inl.h.

// 16 rows of a strip, 64 bytes each from byte `byte`, as lines of one word per
// row. Absent rows and bytes at or beyond `row_bytes` are zero.
inline void LoadRows(const PackedView& weight, int64_t strip, int64_t byte,
                     int64_t row_bytes, __m512i lines[16]) {
  const int64_t row = strip * kPackedStrip;
  const int64_t stride = weight.codes.strides[0] * SizeOf(weight.codes.dtype);
  const uint8_t* from =
      static_cast<const uint8_t*>(weight.codes.pointer) + row * stride + byte;
  const int64_t rows = Least(kPackedStrip, weight.out - row);
  const __mmask64 mask = BytesMask(row_bytes - byte);
  constexpr int64_t kAhead = 512;
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    _mm_prefetch(from + i * stride + kAhead, _MM_HINT_T0);
    lines[i] = i < rows ? _mm512_maskz_loadu_epi8(mask, from + i * stride)
                        : _mm512_setzero_si512();
  }
  Transpose16(lines);
}

inline int PanelWidth(const PackedView& weight, int64_t strip) {
  const int64_t strips = CeilDiv(weight.out, kPackedStrip);
  return static_cast<int>(Least(kPanelStrips, strips - strip));
}

template <typename F>
int64_t NumUnits(const PackedView& weight) {
  return CeilDiv(weight.in, F::kLineColumns);
}

// Lines of a panel of `width` strips to `out`.
template <typename F>
void LayOutLines(const PackedView& weight, int64_t strip, int width,
                 uint8_t* out) {
  const int64_t row_bytes = weight.codes.shape[1] * SizeOf(weight.codes.dtype);
  const int64_t units = NumUnits<F>(weight);
  for (int t = 0; t < width; ++t) {
    for (int64_t unit = 0; unit < units; unit += 16) {
      __m512i lines[16];
      LoadRows(weight, strip + t, 4 * unit, row_bytes, lines);
      uint8_t* to = out + 64 * (unit * width + t);
      const int64_t count = Least(16, units - unit);
      for (int64_t i = 0; i < count; ++i) {
        _mm512_store_si512(to + 64 * i * width, F::ToLane(lines[i]));
      }
    }
  }
}

// Scales of a panel's groups to `out`, [group][strip][16]; absent features
// repeat the last one.
template <typename T>
void LayOutScales(const PackedView& weight, int64_t strip, int width, T* out) {
  const int64_t groups = weight.scales.shape[1];
  const int64_t stride = weight.scales.strides[0];
  const T* from = static_cast<const T*>(weight.scales.pointer);
  const int lanes = width * static_cast<int>(kPackedStrip);
  for (int i = 0; i < lanes; ++i) {
    const T* row =
        from + Least(strip * kPackedStrip + i, weight.out - 1) * stride;
    for (int64_t g = 0; g < groups; ++g) out[g * lanes + i] = row[g];
  }
}
