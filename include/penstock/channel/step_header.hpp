// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include <penstock/channel/record.hpp>

namespace penstock {

/// What a kernel may want to know of the step at hand. It travels in front of the batch's fields, so that its address
/// stays while its content changes: a graph that was captured once reads the step that it is replayed for.
struct step_header {
  static constexpr std::size_t most_scalars = 16;

  std::uint64_t epoch = 0;
  std::uint64_t step = 0;         ///< of the epoch, from 0
  std::uint64_t first = 0;        ///< position in the epoch's order of the batch's first sample
  std::uint32_t count = 0;        ///< real samples
  std::uint32_t rows = 0;         ///< real samples and padding
  float scalars[most_scalars]{};  ///< what `transfer_options::scalars` has written, a learning rate for example
};

/// A function `(const batch_info&, std::span<float> scalars)` of the step, called for each batch before it is copied to
/// a device, by whichever thread enqueues the copy, never by two at a time. The scalars, which begin as zeros, are for
/// kernels: `batch.header()->scalars`.
class step_scalars {
 public:
  step_scalars() = default;
  template <std::invocable<const batch_info&, std::span<float>> Function>
    requires(!std::same_as<std::remove_cvref_t<Function>, step_scalars>)
  step_scalars(Function&& function)
      : call_(std::make_shared<model<std::decay_t<Function>>>(std::forward<Function>(function))) {}

  void write(const batch_info& info, step_header& to) const {
    to = {.epoch = info.epoch, .step = info.step, .first = info.first, .count = info.count, .rows = info.rows};
    if (call_) call_->write(info, to.scalars);
  }

 private:
  struct concept_ {
    virtual ~concept_() = default;
    virtual void write(const batch_info& info, std::span<float> to) = 0;
  };
  template <class Function>
  struct model final : concept_ {
    explicit model(Function from) : function(std::move(from)) {}
    void write(const batch_info& info, std::span<float> to) override { function(info, to); }
    Function function;
  };

  std::shared_ptr<concept_> call_;
};

}  // namespace penstock
