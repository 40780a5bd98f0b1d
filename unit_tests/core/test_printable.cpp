// Text of unknown origin as error messages show it.
#include <aloni/core/printable.hpp>

#include <gtest/gtest.h>

namespace test_printable {

using aloni::printable;

TEST(Printable, KeepsCharactersOfAllLengths) {
  for (const char* const text : {"", "a b~", "\u00a0\u00e4", "\u20ac", "\U0001f600"}) EXPECT_EQ(printable(text), text);
}

TEST(Printable, ShowsControlCharactersAsCodes) {
  EXPECT_EQ(printable("a\n\t\r\x1b[1m\x7f"), "a\\n\\t\\r\\x1b[1m\\x7f");
  EXPECT_EQ(printable("\u0080\u009f"), "\\xc2\\x80\\xc2\\x9f");
}

TEST(Printable, ShowsBytesThatAreNoCharacterAsCodes) {
  EXPECT_EQ(printable("\xc3z"), "\\xc3z");                           // the second byte is missing
  EXPECT_EQ(printable("\xe2\x82"), "\\xe2\\x82");                    // the text ends within a character
  EXPECT_EQ(printable("\xf0\x9f\x98z"), "\\xf0\\x9f\\x98z");         // the last of four bytes is missing
  EXPECT_EQ(printable("\xc0\x80\xff"), "\\xc0\\x80\\xff");           // bytes that start no character
  EXPECT_EQ(printable("\xe0\x80\xaf"), "\\xe0\\x80\\xaf");           // longer than necessary
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");           // a surrogate
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // above U+10FFFF
}

}  // namespace test_printable
