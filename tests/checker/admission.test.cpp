// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread that switches stacks by itself
// ctest: no asan: it copies stacks away and back
#include <penstock/channel/admission.hpp>

#include <cstdio>
#include <string>

#include <gtest/gtest.h>

#include "buffered_atomics.hpp"
#include "report.hpp"

namespace penstock::checker {
namespace {

/// The real door, on store buffers that are modelled: members work on what is theirs while they are inside; the one who
/// closed it and saw nobody inside has it alone.
explorer::outcome explore_admission(const std::string& name, std::uint32_t members, bool no_heavy_fence = false,
                                    bool both_full = false) {
  explorer x;
  store_buffers buffers(x);
  buffers.no_heavy_fence = no_heavy_fence;
  buffers.both_full = both_full;
  admission<buffered_atomics> tested(members);
  tested.open(10);
  struct {
    std::uint8_t alone = 0, inside[2] = {};
  } s;
  x.add_memory(&s, sizeof(s));
  const object work = x.make_object("work");

  x.add_fiber("closer", [&] {
    x.at(1);
    tested.close();
    x.at(2);
    if (!tested.empty()) return;  // would look again
    x.yield();
    x.touch(work, true);
    s.alone = 1;
    x.expect(s.inside[0] == 0 && s.inside[1] == 0, "somebody is inside a closed door that was seen empty");
  });
  for (std::uint32_t i = 0; i < members; ++i)
    x.add_fiber("member" + std::to_string(i), [&, i] {
      for (std::uint32_t number = 0; number < 2; ++number) {
        x.at(1, number);
        const bool entered = tested.enter(i, number);
        if (entered) {
          x.yield();
          x.touch(work, true);
          x.expect(s.alone == 0, "somebody comes in after the door was closed and seen empty");
          s.inside[i] = 1;
          x.at(2, number);
          x.yield();
          x.touch(work, true);
          s.inside[i] = 0;
        }
        tested.leave(i);
        if (!entered) return;
      }
    });
  buffers.add_drains(1, members + 1);

  auto found = x.explore({.reduce = false});
  tell(name, found);
  return found;
}

TEST(admission, keeps_the_closer_and_those_inside_apart_in_every_interleaving) {
  for (const std::uint32_t members : {1u, 2u})
    for (const bool full : {false, true}) {
      const auto found = explore_admission(
          std::to_string(members) + (full ? " members, full fences on both sides" : " members"), members, false, full);
      EXPECT_EQ(found.violation, "") << found.trace;
      EXPECT_TRUE(found.complete);
    }
}
TEST(admission, a_close_without_a_fence_in_the_other_processors_is_found) {
  const auto found = explore_admission("FAULT: no fence in the other processors", 1, true);
  EXPECT_NE(found.violation, "");
  std::printf("  found: %s%s\n", found.violation.c_str(), found.trace.c_str());
}

}  // namespace
}  // namespace penstock::checker
