#ifndef ESPALIER_OPS_DELTA_RULE_INTERNAL_FORWARD_HEADS_H_
#define ESPALIER_OPS_DELTA_RULE_INTERNAL_FORWARD_HEADS_H_

#include <algorithm>

#include "espalier/ops/delta_rule/internal/chunk.h"
#include "espalier/ops/delta_rule/internal/kernels.h"
#include "espalier/ops/scratch_slots.h"
#include "espalier/runtime/thread_pool.h"

namespace espalier::delta_rule {

// What the two forms of the forward pass share: step(walk) for the chunks of
// one head of one document in order, with the tokens loaded, and the state
// taken in, saved and given out around them.
template <class Step>
void ForwardHead(const ForwardArgs& args, const Document& document,
                 int64_t head, Isa isa, char* slot, const Step& step) {
  const Plan& plan = *args.plan;
  const Inputs inputs{args.q, args.k, args.v, args.g, args.beta};
  ChunkWalk walk(inputs, plan, isa, head, slot);
  const int64_t state_size = args.q.dim(2) * args.v.dim(2);
  const auto row = [&](const View& view, int64_t index) {
    return view.data<float>() + (index * args.v.dim(1) + head) * state_size;
  };
  walk.ReadState(args.initial ? row(args.initial, document.index) : nullptr,
                 walk.state());
  int64_t next_state = document.first_state;
  for (int64_t begin = document.begin; begin < document.end;
       begin += plan.chunk) {
    if (args.states && begin > document.begin &&
        (begin - document.begin) % kSegment == 0) {
      walk.WriteState(walk.state(), row(args.states, next_state++));
    }
    const int64_t end = std::min(begin + plan.chunk, document.end);
    walk.LoadTokens(begin, end);
    const int64_t next = std::min(end + plan.chunk, document.end);
    walk.products().Forget();
    walk.Fetch(args.o, head, begin, end);
    walk.FetchTokens(end, next);
    walk.Fetch(args.v, head, end, next);
    step(walk);
  }
  if (args.final_state) {
    walk.WriteState(walk.state(), row(args.final_state, document.index));
  }
}

// All heads of all documents.
template <class Step>
void ForwardHeads(const ForwardArgs& args, const Exec& exec, const Step& step) {
  const Plan& plan = *args.plan;
  const int64_t heads = args.v.dim(1);
  ScratchSlots slots(args.slots.pointer, plan.slot_bytes,
                     static_cast<int>(args.slots.dim(0)));
  exec.pool.ParallelFor(
      static_cast<int64_t>(plan.documents.size()) * heads, 1,
      [&](int64_t begin, int64_t end) {
        const ScratchSlots::Lease slot(slots);
        for (int64_t i = begin; i < end; ++i) {
          ForwardHead(args, plan.documents[static_cast<size_t>(i / heads)],
                      i % heads, exec.isa, slot.data(), step);
        }
      });
}

}  // namespace espalier::delta_rule

#endif  // ESPALIER_OPS_DELTA_RULE_INTERNAL_FORWARD_HEADS_H_
