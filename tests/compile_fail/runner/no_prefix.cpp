// SPDX-License-Identifier: Apache-2.0
// complaint: wanted a static assertion that starts with `penstock:`
// expect: this
#ifdef PENSTOCK_REJECTED
static_assert(sizeof(int) == 0, "this");
#endif
int main() {}
