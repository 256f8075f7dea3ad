#include <fmt/format.h>

#include "core/codec/sealed.h"
#include "core/file.h"
#include "core/limits.h"
#include "scheduler/state/state.h"
#include "scheduler_state_generated.h"

namespace tarn::scheduler {
namespace {

namespace fb = tarn::scheduler_state;
using flatbuffers::FlatBufferBuilder;

constexpr SealedFormat kFormat{"TARNSTAT", "a scheduler's state", 2, kStateVersion, 3};

std::unexpected<Error> Corrupt(const std::string& origin, std::string_view what) {
  return Fail(ErrorCode::kCorrupt, fmt::format("{}: {}", origin, what));
}

std::string BodyOf(const SchedulerState& s) {
  FlatBufferBuilder b;
  const std::string manifest = EncodeManifest(s.progress);
  const auto progress = b.CreateVector(reinterpret_cast<const std::uint8_t*>(manifest.data()), manifest.size());
  std::vector<std::uint32_t> owners;
  owners.reserve(s.owners.size());
  for (ShardId owner : s.owners) owners.push_back(owner.value);
  std::vector<fb::Lease> leases;
  leases.reserve(s.leases.size());
  for (const KeptLease& l : s.leases) leases.emplace_back(l.lease.value, l.owner.value, l.split, l.done);
  std::vector<std::uint64_t> logged;
  logged.reserve(s.logged.size());
  for (LogSequence sequence : s.logged) logged.push_back(sequence.value);
  const auto owners_at = b.CreateVector(owners);
  const auto workers_at = b.CreateVectorOfNativeStructs<wire::WorkerEntry>(s.workers);
  const auto leases_at = b.CreateVectorOfStructs(leases);
  const auto whole = b.CreateString(s.whole_directory);
  const auto pending = b.CreateString(s.pending_directory);
  const auto kept = b.CreateVectorOfStrings(s.kept);
  const auto outdated = b.CreateVectorOfStrings(s.outdated);
  const auto logged_at = b.CreateVector(logged);
  fb::FinishStateBuffer(
      b, fb::CreateState(b, s.run, progress, s.version.value, s.epoch.value, owners_at, workers_at, s.proposal,
                         s.largest_end.value, s.last_lease.value, leases_at, s.begun, s.best_wanted, s.whole.value,
                         whole, pending, kept, logged_at, s.whole_files, outdated, s.programs_keep_state));
  return {reinterpret_cast<const char*>(b.GetBufferPointer()), b.GetSize()};
}

std::string Text(const flatbuffers::String* text) { return text == nullptr ? std::string() : text->str(); }

Expected<SchedulerState> Read(const fb::State& m, const std::string& origin) {
  SchedulerState s;
  const std::string_view manifest(reinterpret_cast<const char*>(m.progress()->data()), m.progress()->size());
  auto progress = DecodeManifest(manifest, origin);
  if (!progress) return std::unexpected(progress.error());
  s.progress = *std::move(progress);
  s.run = m.run();
  s.version = ViewVersion(m.version());
  s.epoch = Epoch(m.epoch());
  if (m.owners() != nullptr)
    for (std::uint32_t owner : *m.owners()) s.owners.emplace_back(owner);
  if ((m.begun() || !s.owners.empty()) && s.owners.size() != std::size_t{1} << s.progress.partition_bits)
    return Corrupt(origin, fmt::format("field owners has {} entries, expected 2^{}, one per partition", s.owners.size(),
                                       s.progress.partition_bits));
  if (m.workers() != nullptr)
    for (const wire::WorkerEntry* w : *m.workers()) {
      if (w->state() > wire::WorkerState::MAX) return Corrupt(origin, "field workers.state is invalid");
      s.workers.push_back(flatbuffers::UnPack(*w));
    }
  s.proposal = m.proposal();
  s.largest_end = Clock(m.largest_end());
  s.last_lease = LeaseId(m.last_lease());
  if (m.leases() != nullptr)
    for (const fb::Lease* l : *m.leases()) {
      if (l->split() >= s.progress.data.trained.size()) return Corrupt(origin, "field leases.split is invalid");
      s.leases.push_back({LeaseId(l->lease()), Incarnation(l->owner()), l->split(), l->done()});
    }
  s.begun = m.begun();
  s.best_wanted = m.best_wanted();
  s.programs_keep_state = m.programs_keep_state();
  s.whole = CheckpointId(m.whole());
  s.whole_directory = Text(m.whole_directory());
  s.whole_files = m.whole_files();
  s.pending_directory = Text(m.pending_directory());
  if (m.kept() != nullptr)
    for (const flatbuffers::String* directory : *m.kept()) s.kept.push_back(Text(directory));
  if (m.outdated() != nullptr)
    for (const flatbuffers::String* directory : *m.outdated()) s.outdated.push_back(Text(directory));
  // These directories will be removed, so their names must be those of checkpoints.
  for (const std::string& directory : s.kept)
    if (!CheckpointIdOf(directory)) return Corrupt(origin, "field kept is invalid");
  for (const std::string& directory : s.outdated)
    if (!CheckpointIdOf(directory)) return Corrupt(origin, "field outdated is invalid");
  if (!s.pending_directory.empty() && !CheckpointIdOf(s.pending_directory))
    return Corrupt(origin, "field pending_directory is invalid");
  if (m.logged() != nullptr)
    for (std::uint64_t sequence : *m.logged()) s.logged.emplace_back(sequence);
  return s;
}

}  // namespace

std::string EncodeState(const SchedulerState& state) { return Seal(kFormat, BodyOf(state)); }

Expected<SchedulerState> DecodeState(std::string_view bytes, const std::string& origin) {
  const auto unsealed = Unseal(kFormat, bytes, origin);
  if (!unsealed) return std::unexpected(unsealed.error());
  const auto body = unsealed->body();
  flatbuffers::Verifier verifier(body.data(), body.size());
  if (!fb::VerifyStateBuffer(verifier)) return Corrupt(origin, "its body is not a valid FlatBuffer");
  return Read(*fb::GetState(body.data()), origin);
}

Expected<SchedulerState> ReadState(const std::string& run_dir) {
  const std::string path = run_dir + "/" + kStateName;
  const auto bytes = ReadFile(path, limits::kStateBytesMax);
  if (!bytes) return std::unexpected(bytes.error());
  return DecodeState(*bytes, path);
}

}  // namespace tarn::scheduler
