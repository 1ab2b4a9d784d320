// SPDX-License-Identifier: Apache-2.0
// Headers that come with targets of their own; what is not there yet, or not here, is passed over.
#if __has_include(<penstock/dataset/csv.hpp>)
#include <penstock/dataset/csv.hpp>
#endif
#if __has_include(<penstock/dataset/npy.hpp>)
#include <penstock/dataset/npy.hpp>
#endif
#if __has_include(<range/v3/range_fwd.hpp>) && __has_include(<penstock/interop/range_v3.hpp>)
#include <penstock/interop/range_v3.hpp>
#endif

int main() {}
