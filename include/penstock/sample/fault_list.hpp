// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <penstock/sample/fault.hpp>

namespace penstock {

namespace detail {

/// Whose samples a list is of.
struct quarantine_of {
  std::uint64_t samples = 0;
  std::uint64_t fields = 0;  // a fingerprint of the schema
};

/// One feed's list of samples that cannot be read, wherever it is kept. Readers look up what it held when the feed
/// began; the rest is the consumer's.
class fault_list {
 public:
  fault_list() = default;
  fault_list(const fault_list&) = delete;
  fault_list& operator=(const fault_list&) = delete;
  virtual ~fault_list() = default;

  virtual bool lists_any(std::span<const std::uint64_t> samples) const = 0;
  /// What was listed when the feed began, or null.
  virtual const sample_fault* find(std::uint64_t sample) const = 0;
  virtual void add(const sample_fault& fault) = 0;
  /// Keeps what was added.
  virtual void write() = 0;
};

}  // namespace detail

/// Where bad samples are listed over runs: `quarantine("bad.csv")`, of <penstock/dataset/quarantine.hpp>. By itself
/// nowhere.
class quarantine_list {
 public:
  using opener = std::shared_ptr<detail::fault_list> (*)(const std::string& path, std::uint64_t rank,
                                                         std::uint64_t ranks, const detail::quarantine_of& whose);

  quarantine_list() = default;
  quarantine_list(std::string path, opener how) : path_(std::move(path)), open_(how) {}
  template <class Path>
    requires std::convertible_to<const Path&, std::string_view>
  quarantine_list(const Path&) {
    static_assert(!std::convertible_to<const Path&, std::string_view>,
                  "penstock: read takes quarantine(\"bad.csv\"), of <penstock/dataset/quarantine.hpp>, for its option "
                  "quarantine, which is given a path");
  }

  bool empty() const noexcept { return path_.empty(); }
  const std::string& path() const noexcept { return path_; }
  /// For feeds; of one that is not empty.
  std::shared_ptr<detail::fault_list> open(std::uint64_t rank, std::uint64_t ranks,
                                           const detail::quarantine_of& whose) const {
    return open_(path_, rank, ranks, whose);
  }

 private:
  std::string path_;
  opener open_ = nullptr;
};

}  // namespace penstock
