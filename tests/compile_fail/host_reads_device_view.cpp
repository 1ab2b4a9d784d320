// SPDX-License-Identifier: Apache-2.0
// expect g++: no match for call to .*tensor_view<float, 2, penstock::device_memory>
// expect clang++: no matching function for call to object of type .*tensor_view<float, 2, penstock::device_memory>
// expect anywhere: on_host
// no sentence: a constraint keeps the call out of overload resolution, so that concepts see the difference
#include <penstock/sample/tensor_view.hpp>

#ifdef PENSTOCK_REJECTED
using space = penstock::device_memory;
#else
using space = penstock::host_memory;
#endif

float first_of(penstock::tensor_view<float, 2, space> view) { return view(0, 0); }

int main() {}
