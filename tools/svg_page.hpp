#pragma once
// A picture for people as one SVG file. It follows the light or dark setting of the browser. It contains no script and
// refers to no other file.
//
//   SvgPage page;
//   page.text(SvgPage::margin, 40, "title", "lenet5 on 4 ranks");
//   page.rectangle({SvgPage::margin, 60, 200, 12}, "c0", 2);
//   write_result_file("picture.svg", page.document("lenet5 on 4 ranks", 90));
//
// Units are pixels. Classes of the style: title, head, muted, small, strong for texts, and line for lines. c0 to c7
// fill shapes with eight colours, and l0 to l7 stroke lines with them.
#include <cstddef>
#include <string>
#include <string_view>

namespace aloni::tools {

/// A rectangle of the page, in pixels.
struct Place {
  double x = 0, y = 0, width = 0, height = 0;
};

/// At most `most` characters; the end of a longer text is an ellipsis.
std::string shortened(const std::string& text, std::size_t most);

class SvgPage {
 public:
  static constexpr double width = 1040, margin = 28;
  static constexpr std::size_t colours = 8;

  /// `y`: of the base line. `anchor`: "start", "middle" or "end", the part of the text that is at `x`.
  void text(double x, double y, std::string_view classes, std::string_view content, std::string_view anchor = "start");
  /// A text that turns upwards, with its middle at the point.
  void upward_text(double x, double y, std::string_view classes, std::string_view content);
  /// The words of a long text in lines of at most `most` characters. The result is the base line after the last one.
  double lines_of_text(double x, double y, std::string_view classes, std::string_view content, std::size_t most);
  void rectangle(const Place& place, std::string_view classes, double radius = 0);
  void line(double x1, double y1, double x2, double y2, std::string_view classes);
  void path(std::string_view d, std::string_view classes);
  void circle(double x, double y, double r, std::string_view classes);
  /// A group with a tooltip, up to end().
  void begin(std::string_view tooltip);
  void end();

  /// The complete document in UTF-8. Characters that XML does not allow become escapes (core/printable.hpp).
  /// `style`: further rules of CSS.
  std::string document(std::string_view title, double height, std::string_view style = "") const;

 private:
  std::string out_;
};

}  // namespace aloni::tools
