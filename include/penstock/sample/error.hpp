// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace penstock {

namespace detail {

inline void append(std::string& out, std::string_view text) { out += text; }
inline void append(std::string& out, char text) { out += text; }
template <class Number>
  requires std::is_arithmetic_v<Number>
void append(std::string& out, Number number) {
  out += std::to_string(number);
}

/// Joins texts and numbers into one message.
template <class... Parts>
std::string concat(const Parts&... parts) {
  std::string out;
  (append(out, parts), ...);
  return out;
}

}  // namespace detail

/// Where something happened, as far as it is known. Empty members are unknown.
struct provenance {
  // The initialisers let users name some members only, without a warning.
  std::string stage{};                    ///< "read", "transfer", ...
  std::optional<std::uint64_t> epoch{};   ///< from 0
  std::optional<std::uint64_t> step{};    ///< of the epoch, from 0
  std::optional<std::uint64_t> sample{};  ///< index in the dataset, from 0
  std::string path{};                     ///< of the file, for file formats
  std::string position{};                 ///< in the file: "line 3, column 2", "byte 128"
  std::optional<std::uint32_t> reader{};  ///< number of the reader thread; not in the text, as it differs between runs

  /// "read: epoch 1, step 3, sample 123, table.csv, line 124, column 2"
  std::string text() const {
    std::string out;
    const auto part = [&](const auto&... parts) {
      if (!out.empty()) out += ", ";
      out += detail::concat(parts...);
    };
    if (epoch) part("epoch ", *epoch);
    if (step) part("step ", *step);
    if (sample) part("sample ", *sample);
    if (!path.empty()) part(path);
    if (!position.empty()) part(position);
    if (stage.empty()) return out;
    return out.empty() ? stage : detail::concat(stage, ": ", out);
  }

  /// Fills what is unknown here with what `outer` knows.
  void complete_from(const provenance& outer) {
    if (stage.empty()) stage = outer.stage;
    if (!epoch) epoch = outer.epoch;
    if (!step) step = outer.step;
    if (!sample) sample = outer.sample;
    if (path.empty()) path = outer.path;
    if (position.empty()) position = outer.position;
    if (!reader) reader = outer.reader;
  }
};

/// What penstock throws for everything that goes wrong at run time, bad options aside (`std::invalid_argument`).
///
/// `what()` is one sentence: where it happened, what was found and what was wanted. If another exception is the
/// cause, `cause()` holds the very object that was thrown, and `rethrow_cause()` throws it again.
class error : public std::runtime_error {
 public:
  explicit error(std::string problem, provenance where = {}, std::exception_ptr cause = nullptr)
      : std::runtime_error(sentence(problem, where)),
        problem_(std::move(problem)),
        where_(std::move(where)),
        cause_(std::move(cause)) {}

  const std::string& problem() const noexcept { return problem_; }
  const provenance& where() const noexcept { return where_; }
  const std::exception_ptr& cause() const noexcept { return cause_; }
  /// Throws the original exception; returns if there is none.
  void rethrow_cause() const {
    if (cause_) std::rethrow_exception(cause_);
  }

 private:
  static std::string sentence(const std::string& problem, const provenance& where) {
    const std::string place = where.text();
    return place.empty() ? problem : detail::concat(place, ": ", problem);
  }

  std::string problem_;
  provenance where_;
  std::exception_ptr cause_;
};

/// A wait that ran past its time-out. The message names the stage, the thread, the step and the sample waited for.
class timeout_error : public error {
 public:
  using error::error;
};

namespace detail {

/// Bad option: "penstock: batch: size is 0, wanted 1 or more".
[[noreturn]] inline void reject_option(std::string_view stage, std::string_view option, const std::string& found,
                                       std::string_view wanted) {
  throw std::invalid_argument(concat("penstock: ", stage, ": ", option, " is ", found, ", wanted ", wanted));
}

/// The message of any exception.
inline std::string message_of(const std::exception_ptr& cause) {
  if (!cause) return "no exception";
  try {
    std::rethrow_exception(cause);
  } catch (const std::exception& caught) {
    return caught.what();
  } catch (...) {
    return "an exception that is not a std::exception";
  }
}

}  // namespace detail
}  // namespace penstock
