// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <penstock/sample/error.hpp>
#include <penstock/sample/take_number.hpp>

namespace penstock {

/// Where a feed stands: what a checkpoint has to keep, beside the model, to go on with the very next sample.
///
/// It counts what was delivered, not what was read ahead. A feed of the same dataset, plan and seed goes on from it
/// with any number of readers or replicas, any depth and any batch.
struct feed_state {
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::uint64_t samples = 0;      ///< delivered in this epoch, over all replicas
  std::uint64_t fingerprint = 0;  ///< of dataset and plan
  bool operator==(const feed_state&) const = default;

  /// One line of text, for a file.
  std::string text() const {
    return detail::concat("penstock-state 2 seed ", seed, " epoch ", epoch, " samples ", samples, " fingerprint ",
                          fingerprint);
  }
  /// Reads what `text` wrote. Throws `penstock::error` for anything else.
  static feed_state parse(std::string_view text) {
    const std::string_view whole = text;
    const auto bad = [&] {
      throw error(
          detail::concat("found \"", whole.substr(0, 80),
                         "\", wanted a feed's state: \"penstock-state 2 seed S epoch E samples N fingerprint F\""));
    };
    const auto word = [&](std::string_view wanted) {
      if (!text.starts_with(wanted)) bad();
      text.remove_prefix(wanted.size());
    };
    const auto number = [&] {
      std::uint64_t value = 0;
      if (!detail::take_number(text, value)) bad();
      return value;
    };
    feed_state result;
    if (text.starts_with("penstock-state 1 "))
      throw error(detail::concat("found \"", whole.substr(0, 80),
                                 "\", a feed's state of an earlier version, whose fingerprint was of the batch, too, "
                                 "wanted \"penstock-state 2 ...\": begin its epoch anew"));
    word("penstock-state 2 seed ");
    result.seed = number();
    word(" epoch ");
    result.epoch = number();
    word(" samples ");
    result.samples = number();
    word(" fingerprint ");
    result.fingerprint = number();
    while (!text.empty() && (text.front() == '\n' || text.front() == '\r')) text.remove_prefix(1);
    if (!text.empty()) bad();
    return result;
  }
};

}  // namespace penstock
