// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstring>

#include <penstock/dataset/atomic_file.hpp>

#include "data.hpp"
#include "mlp.hpp"

namespace trainer {

/// Bytes from members, or members from bytes: one list of members, `void each(auto& io) { io(a, b, c); }`, serves both.
class archive {
 public:
  archive() = default;
  explicit archive(std::vector<std::byte> bytes) : bytes_(std::move(bytes)), reading_(true) {}
  void operator()(auto&... members) { (one(members), ...); }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  template <class T>
  void one(T& value) {
    if constexpr (requires { value.each(*this); }) {
      value.each(*this);
    } else if constexpr (requires { value.resize(1); }) {  // a string or a vector
      std::uint64_t count = value.size();
      one(count);
      if (reading_ && count > bytes_.size() - at_) throw penstock::error("the checkpoint's parts do not add up");
      if (reading_) value.resize(count);
      for (auto& element : value) one(element);
    } else {
      static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
      if (!reading_) bytes_.resize(at_ + sizeof(T));
      if (sizeof(T) > bytes_.size() - at_) throw penstock::error("the checkpoint's parts do not add up");
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

/// All that predicting, or going on, needs.
struct checkpoint {
  static constexpr std::uint32_t format = std::endian::native == std::endian::little ? 1 : 2;

  settings options;
  standardise inputs;
  network_state network;
  std::vector<double> training, validation;  // RMSE after each epoch
  double loss = 0;                           // sum over the samples of this epoch so far
  std::uint64_t seen = 0;                    // their number
  std::string feed;                          // where the batches go on
  void each(auto& io) { io(options, inputs, network, training, validation, loss, seen, feed); }
};

/// Whole or not at all; errors are `penstock::error`.
inline void save(const std::string& path, checkpoint& state) {
  archive bytes;
  state.each(bytes);
  penstock::write_checked(path, bytes.bytes(), checkpoint::format);
}

inline checkpoint load(const std::string& path) {
  archive bytes(penstock::read_checked(path, checkpoint::format));
  checkpoint result;
  result.each(bytes);
  return result;
}

}  // namespace trainer
