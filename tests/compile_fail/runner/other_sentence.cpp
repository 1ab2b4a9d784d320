// SPDX-License-Identifier: Apache-2.0
// complaint: wanted `penstock: this` in the first error
// expect: penstock: this
#ifdef PENSTOCK_REJECTED
static_assert(sizeof(int) == 0, "penstock: that");
#endif
int main() {}
