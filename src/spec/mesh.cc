#include "spec/mesh.h"

namespace longspan::spec {

base::Status CheckMesh(const Mesh& mesh) {
  if (mesh.pp < 1 || mesh.dp < 1 || mesh.cp < 1 || mesh.tp < 1 || mesh.ep < 1)
    return base::InvalidArgument("every parallel size must be at least 1");
  if (mesh.stage_ranks() % mesh.ep != 0)
    return base::InvalidArgument("--ep-size {} must divide cp x tp = {}", mesh.ep,
                                 mesh.stage_ranks());
  if (mesh.cp != 1)
    return base::Unimplemented("context parallelism is not built yet: use --cp-size 1");
  if (mesh.tp != 1)
    return base::Unimplemented("tensor parallelism is not built yet: use --tp-size 1");
  if (mesh.dp != 1) return base::Unimplemented("data parallelism is not built yet");
  return base::OkStatus();
}

}  // namespace longspan::spec
