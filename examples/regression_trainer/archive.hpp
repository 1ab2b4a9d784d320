// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/sample/error.hpp>

namespace trainer {

/// Bytes from members, or members from bytes: one list of members, `void each(auto& io) { io(a, b, c); }`, serves both.
class archive {
 public:
  archive() = default;
  explicit archive(std::vector<std::byte> bytes) : bytes_(std::move(bytes)), reading_(true) {}
  void operator()(auto&... members) { (one(members), ...); }
  const std::vector<std::byte>& bytes() const { return bytes_; }
  /// After the last member was read: nothing is left.
  void finish() const {
    if (at_ != bytes_.size()) refuse();
  }

 private:
  [[noreturn]] static void refuse() { throw penstock::error("the checkpoint's parts do not add up"); }
  template <class T>
  void one(T& value) {
    if constexpr (requires { value.each(*this); }) {
      value.each(*this);
    } else if constexpr (requires { value.resize(1); }) {  // a string or a vector
      std::uint64_t count = value.size();
      one(count);
      if (reading_ && count > bytes_.size() - at_) refuse();
      if (reading_) value.resize(count);
      for (auto& element : value) one(element);
    } else {
      static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
      if (!reading_) bytes_.resize(at_ + sizeof(T));
      if (sizeof(T) > bytes_.size() - at_) refuse();
      if (std::is_same_v<T, bool> && reading_ && std::to_integer<unsigned>(bytes_[at_]) > 1) refuse();
      if (reading_)
        std::memcpy(&value, bytes_.data() + at_, sizeof(T));
      else
        std::memcpy(bytes_.data() + at_, &value, sizeof(T));
      at_ += sizeof(T);
    }
  }

  std::vector<std::byte> bytes_;
  std::size_t at_ = 0;
  bool reading_ = false;
};

}  // namespace trainer
