// Converts between the FlatBuffers structs of schemas/types.fbs and their C++ types, for flatc's generated code
// (native_type).
// Pure functions, any thread. UnPack does not check enumerators: check first (core/codec/schema_rules.h).
#pragma once

#include "core/error.h"
#include "core/types.h"
#include "core/wire_values.h"

#define TARN_PACK_AS(Wire, Value)        \
  namespace tarn::wire {                 \
  struct Wire;                           \
  }                                      \
  namespace flatbuffers {                \
  tarn::wire::Wire Pack(const Value&);   \
  Value UnPack(const tarn::wire::Wire&); \
  }
#define TARN_PACK(Name) TARN_PACK_AS(Name, tarn::Name)

TARN_PACK(TableId)
TARN_PACK(PartitionId)
TARN_PACK(ShardId)
TARN_PACK(Epoch)
TARN_PACK(ViewVersion)
TARN_PACK(Clock)
TARN_PACK(Incarnation)
TARN_PACK(RequestId)
TARN_PACK(LeaseId)
TARN_PACK(LogSequence)
TARN_PACK(CheckpointId)
TARN_PACK_AS(Code, tarn::ErrorCode)
TARN_PACK(DataPosition)
TARN_PACK(TickPoint)
TARN_PACK(FencedTick)
TARN_PACK(WorkerTick)
TARN_PACK(WorkerEntry)
TARN_PACK(SetRows)
TARN_PACK(CheckpointTable)

#undef TARN_PACK
#undef TARN_PACK_AS
