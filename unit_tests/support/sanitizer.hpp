#pragma once
// Under a sanitizer, where everything is 5 to 15 times slower, tests with many random cases take a quarter of them; the same
// cases all run in the Release build.

namespace aloni::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

constexpr int share_of(int cases) { return sanitized ? (cases + 3) / 4 : cases; }
/// Whether the case of this number is among them.
constexpr bool is_in_share(int number) { return !sanitized || number % 4 == 0; }

}  // namespace aloni::test
