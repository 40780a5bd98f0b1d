#pragma once
// Sanitizers make tests 5 to 15 times slower. Tests with many random cases run a quarter of them there; the Release
// build runs all of them.

namespace aloni::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

constexpr int share_of(int cases) { return sanitized ? (cases + 3) / 4 : cases; }
/// Whether a sanitizer runs case `number` of nested loops: every fifth. Loops over two, three or four values all reach
/// each of their values this way.
constexpr bool is_in_share(int number) { return !sanitized || number % 5 == 0; }

}  // namespace aloni::test
