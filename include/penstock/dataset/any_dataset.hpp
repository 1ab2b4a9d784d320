// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <type_traits>
#include <utility>

#include <penstock/dataset/dataset.hpp>

namespace penstock {

/// Any dataset of one schema: a value that can be a member, chosen at run time, or returned from another file.
///
/// Copies share the dataset. It is called once for each range of samples that a reader takes, so erasure costs nothing
/// that grows with the samples.
template <class Schema>
class any_dataset {
  struct erased_reader {
    virtual ~erased_reader() = default;
    virtual std::size_t read_range(std::span<const std::uint64_t> indices, const batch_view<Schema>& to,
                                   const range_context& context) = 0;
  };
  struct erased {
    virtual ~erased() = default;
    virtual std::uint64_t size() const = 0;
    virtual Schema schema() const = 0;
    virtual provenance where(std::uint64_t index) const = 0;
    virtual bool reads_in_turn() const = 0;
    virtual std::unique_ptr<erased_reader> open() const = 0;
  };

 public:
  /// Owns `source`, which is moved or copied in.
  template <class D>
    requires(!std::same_as<std::remove_cvref_t<D>, any_dataset> && dataset<std::remove_cvref_t<D>> &&
             std::same_as<detail::schema_of<D>, Schema>)
  any_dataset(D&& source) : of_(std::make_shared<const model<std::remove_cvref_t<D>>>(std::forward<D>(source))) {}

  std::uint64_t size() const { return of_->size(); }
  Schema schema() const { return of_->schema(); }
  /// Empty, where the dataset does not know.
  provenance where(std::uint64_t index) const { return of_->where(index); }
  bool reads_in_turn() const { return of_->reads_in_turn(); }

  /// One reader's own access.
  class reader {
   public:
    std::size_t read_range(std::span<const std::uint64_t> indices, const batch_view<Schema>& to,
                           const range_context& context) {
      return of_->read_range(indices, to, context);
    }

   private:
    friend class any_dataset;
    explicit reader(std::unique_ptr<erased_reader> of) : of_(std::move(of)) {}
    std::unique_ptr<erased_reader> of_;
  };
  reader open() const { return reader(of_->open()); }

 private:
  // The dataset itself as every reader's access, one at a time if it is serial.
  template <class D>
  struct direct_reader final : erased_reader {
    direct_reader(D& source, std::mutex& turn) : from(source), serial(turn) {}
    std::size_t read_range(std::span<const std::uint64_t> indices, const batch_view<Schema>& to,
                           const range_context& context) override {
      std::unique_lock<std::mutex> lock;
      if constexpr (detail::says_serial<D>) lock = std::unique_lock(serial);
      return detail::read_rows<Schema>(from, from, indices, to, context, detail::nothing_after{});
    }
    D& from;
    std::mutex& serial;
  };
  template <class D, class Own>
  struct own_reader final : erased_reader {
    explicit own_reader(const D& source) : from(source), own(source.open()) {}
    std::size_t read_range(std::span<const std::uint64_t> indices, const batch_view<Schema>& to,
                           const range_context& context) override {
      return detail::read_rows<Schema>(own, from, indices, to, context, detail::nothing_after{});
    }
    const D& from;
    Own own;
  };

  template <class D>
  struct model final : erased {
    template <class From>
    explicit model(From&& from) : source(std::forward<From>(from)) {}
    std::uint64_t size() const override { return static_cast<std::uint64_t>(source.size()); }
    Schema schema() const override { return source.schema(); }
    provenance where([[maybe_unused]] std::uint64_t index) const override {
      if constexpr (detail::says_where<D>)
        return source.where(index);
      else
        return {};
    }
    bool reads_in_turn() const override { return detail::reads_in_turn(source); }
    std::unique_ptr<erased_reader> open() const override {
      if constexpr (detail::opens<D>)
        return std::make_unique<own_reader<D, std::remove_cvref_t<decltype(source.open())>>>(source);
      else if constexpr (detail::says_serial<D>)
        return std::make_unique<direct_reader<D>>(source, serial);
      else
        return std::make_unique<direct_reader<const D>>(source, serial);
    }
    mutable D source;
    mutable std::mutex serial;
  };

  std::shared_ptr<const erased> of_;
};

}  // namespace penstock
