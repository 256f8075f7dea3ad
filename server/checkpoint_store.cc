#include "server/checkpoint_store.h"

namespace tarn::server {

CheckpointPart PartOf(const Snapshot& snapshot) {
  CheckpointPart part;
  part.id = snapshot.id;
  part.max_clock = snapshot.max_clock;
  part.state_hash = StateHash(snapshot.tables);
  return part;
}

}  // namespace tarn::server
