#include "espalier/ops/delta_rule/internal/forward_heads.h"

namespace espalier::delta_rule {

void ForwardCpu(const ForwardArgs& args, const Exec& exec) {
  const Plan& plan = *args.plan;
  ForwardHeads(args, exec, [&](ChunkWalk& walk) {
    walk.Solve(0, /*outputs=*/true);
    walk.Outputs(0);
    CopyOut({.from = walk.Floats(plan.reads) + plan.chunk * plan.v_width,
             .num_rows = walk.num_rows(),
             .width = args.v.dim(2),
             .padded = plan.v_width,
             .scale = static_cast<float>(args.scale),
             .out = RowsTo(args.o, walk.head(), walk.begin())},
            walk.isa());
    walk.Advance(walk.state());
  });
}

}  // namespace espalier::delta_rule
