// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace planner {

/// Prints predictions beside closed forms, and beside measured runs. False if one is further off than 3 %.
bool check();

}  // namespace planner
