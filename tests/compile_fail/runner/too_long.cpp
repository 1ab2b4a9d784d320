// SPDX-License-Identifier: Apache-2.0
// complaint: wanted 20 lines of errors or fewer
// expect: penstock: this
#ifdef PENSTOCK_REJECTED
static_assert(sizeof(int) == 0, "penstock: this");
int a = one;
int b = two;
int c = three;
int d = four;
int e = five;
int f = six;
int g = seven;
#endif
int main() {}
