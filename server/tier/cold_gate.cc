#include "server/tier/cold_gate.h"

#include <algorithm>
#include <utility>

#include "core/held_bytes.h"

namespace tarn::server {

namespace {

bool SameSection(const Section& a, const Section& b) {
  return a.partition == b.partition && a.sequence == b.sequence && a.count == b.count;
}

bool SameTable(const PushPart& a, const PushPart& b) {
  return a.table == b.table && std::ranges::equal(a.keys.sections, b.keys.sections, SameSection);
}

bool NamesLists(const Push& push) {
  return std::ranges::any_of(push.tables, [](const PushPart& t) { return t.keys.codec == KeyCodec::kHeld; });
}

}  // namespace

std::size_t ColdGate::BytesOf(const Message& message) { return sizeof(Waiting) + HeldBytes(message); }

ColdGate::FirstPush ColdGate::FirstOf(const Message& message, const Push& push) {
  for (const PushPart& table : push.tables)
    if (!table.keys.sections.empty())
      return {message.sender.incarnation, table.keys.sections[0].partition, table.keys.sections[0].sequence};
  return {message.sender.incarnation, {}, {}};
}

bool ColdGate::TakesRepetition(Peer peer, const Message& message) {
  const auto of_peer = peers_.find(peer);
  if (of_peer == peers_.end()) return false;
  if (const auto* pull = std::get_if<Pull>(&message.body)) return of_peer->second.pulls.contains(pull->request);
  const auto* again = std::get_if<Push>(&message.body);
  if (again == nullptr) return false;
  const auto it = of_peer->second.pushes.find(FirstOf(message, *again));
  if (it == of_peer->second.pushes.end()) return false;
  Message& waiting = waiting_.at(it->second).message;
  auto* first = std::get_if<Push>(&waiting.body);
  // Not repetitions: a push that is resent with its keys because the shard did not have its key list, and one that the
  // client has divided anew for another route map.
  const bool has_keys = !NamesLists(*first) || NamesLists(*again);
  if (!has_keys || waiting.epoch != message.epoch || !std::ranges::equal(first->tables, again->tables, SameTable))
    return false;
  first->request = again->request;
  return true;
}

bool ColdGate::Add(Peer from, Message* message, FetchTicket ticket) {
  const std::size_t bytes = BytesOf(*message);
  // A rejected message is repeated until it is accepted: an empty gate must accept it, or it would never be handled.
  if (!waiting_.empty() && (waiting_.size() >= messages_max_ || bytes_ + bytes > bytes_max_)) return false;
  bytes_ += bytes;
  OfPeer& of_peer = peers_[from];
  of_peer.messages.push_back(next_);
  if (const auto* pull = std::get_if<Pull>(&message->body)) of_peer.pulls.insert(pull->request);
  if (const auto* push = std::get_if<Push>(&message->body)) of_peer.pushes[FirstOf(*message, *push)] = next_;
  const Waiting& entry = waiting_.emplace(next_, Waiting{from, std::move(*message), ticket}).first->second;
  if (ticket == kNotBegun)
    not_begun_.push_back(next_);
  else
    NoteFirst(next_, entry);
  ++next_;
  return true;
}

// Must be called when the fetch of a message has begun, and when a message becomes the first of its peer. If both hold,
// the gate waits for this fetch.
void ColdGate::NoteFirst(Number number, const Waiting& entry) {
  if (entry.ticket != kNotBegun && peers_.at(entry.from).messages.front() == number)
    firsts_.emplace(entry.ticket, number);
}

void ColdGate::Forget(const Message& message, Number number, OfPeer* of_peer) {
  if (const auto* pull = std::get_if<Pull>(&message.body)) of_peer->pulls.erase(pull->request);
  const auto* push = std::get_if<Push>(&message.body);
  if (push == nullptr) return;
  const auto it = of_peer->pushes.find(FirstOf(message, *push));
  if (it != of_peer->pushes.end() && it->second == number) of_peer->pushes.erase(it);
}

std::vector<ColdGate::Waiting> ColdGate::Take(std::vector<Number> ready) {
  std::ranges::sort(ready);
  std::vector<Waiting> taken;
  for (Number number : ready) {
    Waiting entry = std::move(waiting_.extract(number).mapped());
    bytes_ -= BytesOf(entry.message);
    Forget(entry.message, number, &peers_.at(entry.from));
    taken.push_back(std::move(entry));
  }
  for (const Waiting& entry : taken)
    if (const auto of_peer = peers_.find(entry.from); of_peer != peers_.end() && of_peer->second.messages.empty())
      peers_.erase(of_peer);
  return taken;
}

}  // namespace tarn::server
