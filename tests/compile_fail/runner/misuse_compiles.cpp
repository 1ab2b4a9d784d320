// SPDX-License-Identifier: Apache-2.0
// complaint: the misuse compiles
// expect: anything
int main() {}
