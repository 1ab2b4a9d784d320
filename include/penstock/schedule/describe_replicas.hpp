// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#if defined(__unix__)
#include <unistd.h>
#endif

#include <penstock/communicator/communicator.hpp>
#include <penstock/device/device.hpp>
#include <penstock/schedule/describe.hpp>
#include <penstock/schedule/replica.hpp>
#include <penstock/stage/cpu_set.hpp>

namespace penstock {

namespace detail {

/// What a rank tells the others of its place, one a line.
struct rank_place {
  enum cell : std::size_t { host, process, device, pci, readers, cells };

  std::string text[cells];

  std::string packed() const {
    std::string out;
    for (const std::string& one : text) out += one + '\n';
    return out;
  }
  static rank_place unpacked(const std::string& from) {
    rank_place result;
    std::size_t begin = 0;
    for (std::string& one : result.text) {
      const std::size_t end = from.find('\n', begin);
      one = from.substr(begin, end - begin);
      begin = end + 1;
    }
    return result;
  }
};

template <class Device>
rank_place place_of(const Device& device, const read_options& options, reader_limit limit) {
  rank_place result;
  result.text[rank_place::host] = host_name();
#if defined(__unix__)
  result.text[rank_place::process] = std::to_string(getpid());
#endif
  result.text[rank_place::device] = device.describe();
  result.text[rank_place::pci] = "-";
  if constexpr (requires { device.pci_bus_id(); }) result.text[rank_place::pci] = device.pci_bus_id();
  result.text[rank_place::readers] = describe_readers(options, true, limit);
  return result;
}

/// How `mine`'s values get to `other`'s.
template <class Device>
std::string link_between(const Device& device, const rank_place& mine, const rank_place& other) {
  if (mine.text[rank_place::host] != other.text[rank_place::host]) return "network";
  if constexpr (requires { device.link_to(other.text[rank_place::pci]); }) {
    return mine.text[rank_place::pci] == other.text[rank_place::pci] ? "same device"
                                                                     : device.link_to(other.text[rank_place::pci]);
  } else {
    return host_device<Device> ? "host memory" : "host";
  }
}

/// "NVLink to 1-3, network to 4-7"
template <class LinkTo>
std::string describe_links(std::uint64_t rank, std::uint64_t size, LinkTo&& link_to) {
  struct group {
    std::string link;
    std::string ranks;
    std::uint64_t first, last;
    void close() { ranks += concat(ranks.empty() ? "" : ",", first) + (last != first ? concat('-', last) : ""); }
  };
  std::vector<group> groups;
  for (std::uint64_t r = 0; r < size; ++r) {
    if (r == rank) continue;
    const std::string link = link_to(r);
    std::size_t at = 0;
    while (at < groups.size() && groups[at].link != link) ++at;
    if (at == groups.size()) {
      groups.push_back({link, "", r, r});
    } else if (groups[at].last + 1 == r) {
      groups[at].last = r;
    } else {
      groups[at].close();
      groups[at].first = groups[at].last = r;
    }
  }
  std::string out;
  for (group& one : groups) {
    one.close();
    out += concat(out.empty() ? "" : ", ", one.link, " to ", one.ranks);
  }
  return out.empty() ? "-" : out;
}

}  // namespace detail

/// A table of all replicas for a person: for each rank its host and process, its device with the PCI bus id where it
/// has one, the readers of `work` with their CPUs, and its links to the others, as far as the device can tell: NVLink,
/// PCIe, host memory, or the network between hosts.
///
/// All ranks call it, outside their loops, and get the same text. Nothing is started.
template <communicator Communicator, class Dataset, class... Stages>
std::string describe(replica<Communicator>& one, const pipeline<Dataset, Stages...>& work) {
  using place = detail::rank_place;
  read_options options;
  std::apply(
      [&](const auto&... stages) {
        const auto look = [&](const auto& stage) {
          if constexpr (std::remove_cvref_t<decltype(stage)>::kind == stage_kind::read) {
            stage.validate();
            options = stage.options;
          }
        };
        (look(stages), ...);
      },
      work.stages());
  const auto& device = one.device();
  const detail::reader_limit limit = one.readers_of(work);
  std::vector<place> places;
  for (const std::string& text : one.gather(detail::place_of(device, options, limit).packed()))
    places.push_back(place::unpacked(text));
  const auto links = one.gather(detail::describe_links(one.rank(), one.size(), [&](std::uint64_t other) {
    return detail::link_between(device, places[one.rank()], places[other]);
  }));
  std::vector<std::vector<std::string>> rows{{"rank", "host", "process", "device", "PCI", "readers", "links"}};
  for (std::uint64_t r = 0; r < one.size(); ++r) {
    std::vector<std::string> row{std::to_string(r)};
    for (const std::string& cell : places[r].text) row.push_back(cell);
    row.push_back(links[r]);
    rows.push_back(row);
  }
  return detail::table(rows);
}

}  // namespace penstock
