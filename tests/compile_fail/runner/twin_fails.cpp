// SPDX-License-Identifier: Apache-2.0
// complaint: the accepted twin does not compile
// expect: penstock
static_assert(sizeof(int) == 0, "penstock: never");
int main() {}
