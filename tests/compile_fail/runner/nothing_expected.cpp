// SPDX-License-Identifier: Apache-2.0
// complaint: has no `// expect:`
#ifdef PENSTOCK_REJECTED
static_assert(sizeof(int) == 0, "penstock: this");
#endif
int main() {}
