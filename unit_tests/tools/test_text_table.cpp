// Paragraphs of text for a terminal. Tables are tested by the texts that have them.
#include <aloni/tools/text_table.hpp>

#include <gtest/gtest.h>

namespace aloni::tools {
namespace test_text_table {

TEST(Paragraph, BreaksLinesAtBlanks) {
  EXPECT_EQ(paragraph("", 3, 10), "");
  EXPECT_EQ(paragraph("ten column", 3, 10), "ten column");
  EXPECT_EQ(paragraph("ten columns", 3, 10), "ten\n   columns");
  EXPECT_EQ(paragraph("one two three four", 2, 10), "one two\n  three\n  four");
  EXPECT_EQ(paragraph("one two three 4567", 2, 12), "one two\n  three 4567");
}

TEST(Paragraph, KeepsLongWordsWhole) {
  EXPECT_EQ(paragraph("longer_than_ten a b", 2, 10), "longer_than_ten\n  a b");
  EXPECT_EQ(paragraph("a longer_than_ten", 2, 10), "a\n  longer_than_ten");
  EXPECT_EQ(paragraph("longer_than_ten", 2, 10), "longer_than_ten");
}

}  // namespace test_text_table
}  // namespace aloni::tools
