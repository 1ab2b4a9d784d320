// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#if defined(__unix__)
#include <unistd.h>
#endif

#include <penstock/schedule/threads.hpp>
#include <penstock/stage/read.hpp>

namespace penstock::detail {

/// Of threads that a pipeline may have where their number is automatic; 0 is as many as its CPUs allow.
struct reader_limit {
  std::uint32_t most = 0;
  std::uint32_t of(std::uint32_t allowed) const noexcept { return most != 0 ? most : allowed; }
};

inline std::string host_name() {
#if defined(__unix__)
  char host[256] = {};
  if (gethostname(host, sizeof(host) - 1) == 0) return host;
#endif
  return "unknown";
}

/// What a rank tells the others of the CPUs that its readers may run on, where their number is automatic: its host, a
/// line's end, and a digit for each CPU. Empty where it is not, as then those readers are the user's to count.
inline std::string reader_cpus(const read_options& options) {
  if (options.shared || options.readers != automatic) return {};
  const cpu_set cpus = placed_on("read", options.cpus);
  std::string out = host_name() + '\n';
  for (int cpu = 0; cpu < cpu_set::most; ++cpu) out += cpus.contains(cpu) ? '1' : '0';
  return out;
}

/// The most readers that rank `mine` of those who told this may have, so that together they are no more than the CPUs
/// on which they run: each CPU that several may run on is dealt to the one of them that has the fewest so far, when
/// each has those that it alone may run on. `least` at the least.
inline reader_limit share_of_cpus(const std::vector<std::string>& told, std::size_t mine, std::uint32_t least) {
  if (told[mine].empty()) return {};
  const std::size_t cpus = told[mine].find('\n') + 1;
  std::vector<std::size_t> here;  // ranks of the same host
  for (std::size_t rank = 0; rank < told.size(); ++rank)
    if (told[rank].size() == told[mine].size() && told[rank].compare(0, cpus, told[mine], 0, cpus) == 0)
      here.push_back(rank);
  std::vector<std::uint32_t> dealt(told.size());
  bool alone = true;
  for (const bool shared : {false, true})
    for (std::size_t at = cpus; at < told[mine].size(); ++at) {
      std::uint32_t all = 0;
      std::size_t to = 0;
      for (const std::size_t rank : here) {
        if (told[rank][at] != '1') continue;
        if (all++ == 0 || dealt[rank] < dealt[to]) to = rank;
      }
      if (all == 0 || (all > 1) != shared) continue;
      ++dealt[to];
      if (all > 1 && told[mine][at] == '1') alone = false;
    }
  return {alone ? 0 : std::clamp<std::uint32_t>(dealt[mine], least, 256)};
}

}  // namespace penstock::detail
