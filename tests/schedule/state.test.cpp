// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <penstock/schedule/state.hpp>

namespace {

using penstock::feed_state;

TEST(state, comes_back_from_its_text) {
  constexpr std::uint64_t most = ~std::uint64_t{0};
  for (const feed_state& state : {feed_state{}, feed_state{7, 3, 12, 99}, feed_state{most, most, most, most}}) {
    EXPECT_EQ(feed_state::parse(state.text()), state);
    EXPECT_EQ(feed_state::parse(state.text() + "\n"), state);
    EXPECT_EQ(feed_state::parse(state.text() + "\r\n"), state);
  }
  EXPECT_EQ((feed_state{7, 3, 12, 99}).text(), "penstock-state 2 seed 7 epoch 3 samples 12 fingerprint 99");
}

// CKP: a damaged state is refused, never half read.
TEST(state, refuses_whatever_else_and_shows_it) {
  const std::string whole = feed_state{7, 3, 12, 99}.text();
  for (std::size_t length = 0; length + 2 < whole.size(); ++length)
    EXPECT_THROW((void)feed_state::parse(std::string_view(whole).substr(0, length)), penstock::error) << length;
  for (const std::string& bad : std::vector<std::string>{
           whole + "x", whole + " 1", " " + whole, "penstock-state 1 seed 7 epoch 3 samples 12 fingerprint 99",
           "penstock-state 3 seed 7 epoch 3 samples 12 fingerprint 99",
           "penstock-state 2 seed -7 epoch 3 samples 12 fingerprint 99",
           "penstock-state 2 seed 0x7 epoch 3 samples 12 fingerprint 99",
           "penstock-state 2 seed 18446744073709551616 epoch 3 samples 12 fingerprint 99",
           "penstock-state 2 seed  7 epoch 3 samples 12 fingerprint 99"}) {
    try {
      (void)feed_state::parse(bad);
      ADD_FAILURE() << bad;
    } catch (const penstock::error& caught) {
      EXPECT_NE(std::string(caught.what()).find(bad.substr(0, 80)), std::string::npos) << caught.what();
    }
  }
}

TEST(state, says_of_an_earlier_version_what_is_the_matter) {
  try {
    (void)feed_state::parse("penstock-state 1 seed 7 epoch 3 samples 12 fingerprint 99");
    ADD_FAILURE() << "it was read";
  } catch (const penstock::error& caught) {
    EXPECT_NE(std::string(caught.what()).find("earlier version, whose fingerprint was of the batch"), std::string::npos)
        << caught.what();
  }
}

}  // namespace
