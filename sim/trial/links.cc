#include "sim/trial/links.h"

#include <algorithm>
#include <cmath>

#include "kernels/draw.h"
#include "net/slow_transport.h"

namespace tarn::sim {
namespace {

constexpr std::uint64_t kLinksSalt = 0x6c696e6b73;

}  // namespace

Links::Links(const Job& job, std::size_t nodes, EventQueue* events)
    : latency_(job.delays.latency),
      us_per_byte_(net::UsPerByte(job.delays)),
      events_(events),
      rng_(HashCombine(job.job.seed, kLinksSalt)),
      out_free_at_(nodes),
      in_free_at_(nodes) {}

void Links::Send(std::size_t from, std::size_t to, std::size_t bytes, std::function<void()> arrive) {
  ++messages_;
  bytes_ += bytes;
  const double us = double(bytes) * us_per_byte_;
  const double sent = Pass(&out_free_at_[from], double(events_->now()), us);
  const double first = sent - us + kernels::Draw(latency_, &rng_) * 1e6;
  TimeUs& at = last_arrival_[{from, to}];
  at = std::max(at, TimeUs(std::llround(first)));
  if (us <= 0) return events_->At(at, std::move(arrive));
  events_->At(at, [this, to, us, arrive = std::move(arrive)]() mutable {
    const double last = Pass(&in_free_at_[to], double(events_->now()), us);
    events_->At(TimeUs(std::llround(last)), std::move(arrive));
  });
}

}  // namespace tarn::sim
