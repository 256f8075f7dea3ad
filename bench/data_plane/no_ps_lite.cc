#include "bench/data_plane/ps_lite.h"

namespace tarn::bench {

bool HasPsLite() { return false; }

void MeasurePsLite(const PsLiteOptions&, const std::string&) { Die("this build has no ps-lite"); }

}  // namespace tarn::bench
