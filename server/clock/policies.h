// The built-in policies: one declaration for each policy file of this folder.
#pragma once

#include <memory>

#include "server/clock/consistency_policy.h"

namespace tarn::server {

std::unique_ptr<ConsistencyPolicy> MakeBsp(const TableSpec& spec);
std::unique_ptr<ConsistencyPolicy> MakeSsp(const TableSpec& spec);
std::unique_ptr<ConsistencyPolicy> MakeAsp(const TableSpec& spec);

}  // namespace tarn::server
