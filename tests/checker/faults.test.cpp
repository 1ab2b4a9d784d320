// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread that switches stacks by itself
// ctest: no asan: it copies stacks away and back
//
// Protocols that look right and are not: the checker finds each, and says how it comes about.
#include <penstock/channel/ring.hpp>

#include <array>
#include <cstdio>
#include <functional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

#include <gtest/gtest.h>

#include "channel_model.hpp"
#include "report.hpp"
#include "variant_ring.hpp"

namespace penstock::checker {
namespace {

using model = channel_model<>;

constexpr ring_shape shape(std::uint32_t host, std::uint32_t device, std::uint32_t ranges = 2) {
  return {.host = host, .device = device, .ranges = ranges, .readers = 2};
}
constexpr auto nothing = [](auto&, auto&) {};
const explorer::options limited{.most_states = 4'000'000};

// The real ring, with one of its operations changed.
std::function<void(explorer&, model&)> changed(std::string word, std::string kind,
                                               std::function<void(operation&)> how) {
  return [=](explorer& x, model&) {
    x.tamper = [=, on = x.named(word)](operation& op) {
      if (op.on == on && op.kind == kind) how(op);
    };
  };
}
std::function<void(explorer&, model&)> dropped(std::string word, std::string kind, bool only_in_restart = false) {
  return [=](explorer& x, model& of) {
    x.tamper = [=, on = x.named(word), &of](operation& op) {
      if (op.on == on && op.kind == kind && (!only_in_restart || of.restarting())) op.after = op.before;
    };
  };
}
// A notification that does not come, after an operation on this word.
std::function<void(explorer&, model&)> unheard(std::string gate, std::string after) {
  return [=](explorer& x, model&) {
    x.swallow = [=, &x, of = x.named(gate), on = x.named(after)](object notified, std::uint32_t) {
      return notified == of && x.last_object() == on;
    };
  };
}

struct fault {
  const char* name;
  std::function<explorer::outcome(const std::string&)> explore;
  friend void PrintTo(const fault& of, std::ostream* to) { *to << of.name; }
};

template <meeting Meeting, bool TicketInHand = false>
fault variant(const char* name, const channel_settings& settings) {
  return {name, [=](const std::string& named) {
            auto of = settings;
            of.any_copy_order = true;
            return explore_channel<variant_ring<Meeting, TicketInHand>>(named, of, limited, nothing);
          }};
}
fault real(const char* name, const channel_settings& settings,
           std::function<void(explorer&, model&)> prepare = nothing) {
  return {name, [=](const std::string& named) { return explore_channel(named, settings, limited, prepare); }};
}

class seeded_fault : public testing::TestWithParam<fault> {};

TEST_P(seeded_fault, is_found) {
  const auto found = GetParam().explore(GetParam().name);
  EXPECT_NE(found.violation, "") << "the checker finds nothing wrong with it";
  std::printf("  found: %s%s\n", found.violation.c_str(), found.trace.c_str());
}

// So that it is the fault that is found, and not the variant.
TEST(variant, is_right_with_a_counter_per_step_and_no_lease_kept) {
  for (const auto& [host, device] : {std::pair{1u, 2u}, std::pair{2u, 1u}}) {
    const channel_settings settings{.shape = shape(host, device), .steps = 2, .any_copy_order = true};
    const auto found =
        explore_channel<variant_ring<meeting::per_step>>("arrivals counted per step", settings, {}, nothing);
    EXPECT_EQ(found.violation, "") << found.trace;
    EXPECT_TRUE(found.complete);
  }
}

const channel_settings plain{.shape = shape(1, 1)};
const channel_settings restarted{.shape = shape(1, 1), .steps = 2, .restarts = 1};

// In try_take: a slot counts as free, whether it was given back or not.
void trust_the_event(explorer& x, model& of) {
  const object returns = x.named("returns0"), turns = x.named("turns0");
  x.tamper = [=, &x, &of](operation& op) {
    if (op.on == returns && op.kind == std::string_view("load") && op.by < of.shape().readers)
      op.returned = x.value(turns);
  };
}

INSTANTIATE_TEST_SUITE_P(
    that_the_design_names, seeded_fault,
    testing::Values(
        variant<meeting::per_slot>("arrivals counted per host slot", {.shape = shape(1, 2)}),
        variant<meeting::per_twin>("arrivals counted per twin", {.shape = shape(2, 1)}),
        variant<meeting::per_larger_depth, true>(
            "arrivals counted per max(host, device), tickets taken before waiting",
            {.shape = shape(2, 3, 1), .steps = 7, .first_lease = keep::for_another_thread}),
        variant<meeting::per_step>("twins bound to step % device, a lease kept",
                                   {.shape = shape(2, 2), .steps = 4, .first_lease = keep::for_good}),
        real("a reader trusts the event alone", plain, trust_the_event),
        real("the next batch is received before the last is released, copied",
             {.shape = shape(1, 1), .receives_first = true}),
        real("the next batch is received before the last is released, handed over",
             {.shape = shape(1, 0), .receives_first = true}),
        real("a restart under running readers, copied", {.shape = shape(1, 1), .restarts = 1, .no_quiet = true}),
        real("a restart under running readers, handed over", {.shape = shape(2, 0), .restarts = 1, .no_quiet = true})));

INSTANTIATE_TEST_SUITE_P(
    of_one_operation, seeded_fault,
    testing::Values(
        real("the event of a slot's last copy is not waited for", {.shape = shape(1, 2), .no_slot_fence = true}),
        real("a copy does not wait for the twin's release event", {.shape = shape(2, 1), .no_twin_fence = true}),
        real("the cursor does not go round for those who poked meanwhile", plain,
             changed("pending", "sub", [](operation& op) { op.returned = op.before - op.after; })),
        real("pending is set to 0 after a round", plain,
             changed("pending", "sub", [](operation& op) { op.after = 0; })),
        real("everybody who pokes advances the cursor", {.shape = shape(2, 2)},
             changed("pending", "add", [](operation& op) { op.returned = 0; })),
        real("a twin taken stays in the free set", {.shape = shape(2, 1)}, dropped("free_twins", "and")),
        real("a reader's busy word is not set", restarted,
             changed("busy0", "store", [](operation& op) { op.after = 0; })),
        real("the countdown is not set back by the last reader", plain, dropped("remaining0", "store")),
        real("a restart does not set the countdown back", restarted, dropped("remaining0", "store", true)),
        real("a restart does not give twins back", restarted, dropped("free_twins", "or", true)),
        real("a restart leaves the slots as they were", restarted, dropped("returns0", "store", true)),
        real("a restart leaves the slots as they were, handed over", {.shape = shape(1, 0), .steps = 2, .restarts = 1},
             dropped("returns0", "store", true)),
        real("a slot is not counted as bound", {.shape = shape(2, 0)}, dropped("turns0", "store")),
        real("a slot is said to be bound before it is", {.shape = shape(2, 0)},
             changed("bound0", "store", [](operation& op) { op.after = op.before; })),
        real("a restart leaves the tickets where they were", restarted, dropped("tickets", "store", true)),
        real("a restart does not take the cursor",
             {.shape = shape(1, 2), .steps = 2, .restarts = 1, .first_lease = keep::for_another_thread},
             [](explorer& x, model& of) {
               x.tamper = [on = x.named("pending"), &of](operation& op) {
                 if (op.on == on && op.kind == std::string_view("cas") && of.restarting()) {
                   op.returned = 0;
                   op.after = op.before;
                 }
               };
             }),
        real("parking does not park", restarted,
             changed("limit", "store", [](operation& op) { op.after = op.after == 0 ? op.before : op.after; })),
        real("a reader does not look at the door once it is inside", {.shape = shape(2, 0), .steps = 2, .restarts = 1},
             [](explorer& x, model&) {
               x.tamper = [&x, limit = x.named("limit"),
                           busy = std::array{x.named("busy0"), x.named("busy1")}](operation& op) {
                 if (op.on == limit && op.kind == std::string_view("load") && op.by < 2 && x.value(busy[op.by]) != 0)
                   op.returned = 1000;
               };
             }),
        real("a batch published wakes nobody", plain, unheard("consumer_gate", "ready0")),
        real("a slot that is free wakes nobody", plain, unheard("readers_gate", "returns0")),
        real("a reader that leaves wakes nobody", restarted, unheard("control_gate", "busy0")),
        real("opening wakes nobody", restarted, unheard("readers_gate", "limit"))));

}  // namespace
}  // namespace penstock::checker
