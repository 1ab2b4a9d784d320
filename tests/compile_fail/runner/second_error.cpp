// SPDX-License-Identifier: Apache-2.0
// complaint: wanted a static assertion that starts with `penstock:` as the first error
// expect: undeclared
#ifdef PENSTOCK_REJECTED
int x = undeclared;
static_assert(sizeof(int) == 0, "penstock: this");
#endif
int main() {}
