#pragma once
// Checks of SVG documents.
#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace aloni::tools::svg_text {

/// How often `part` occurs.
inline std::size_t count(const std::string& text, std::string_view part) {
  std::size_t n = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++n;
  return n;
}

/// The first error of a document: elements that do not match, attributes without quotes, an unescaped character, a
/// number that is not finite. Empty if there is none. Complete for the part of XML that SvgPage writes.
inline std::string xml_fault(const std::string& text) {
  std::vector<std::string> open;
  std::size_t at = text.find("?>");
  if (!text.starts_with("<?xml ") || at == std::string::npos) return "no XML declaration";
  at += 2;
  for (std::size_t roots = 0; at < text.size();) {
    if (text[at] != '<') {
      if (text[at] == '&') {
        bool known = false;
        for (const std::string_view entity : {"&amp;", "&lt;", "&gt;", "&quot;"})
          known = known || std::string_view(text).substr(at).starts_with(entity);
        if (!known) return "an ampersand at " + text.substr(at, 20);
      }
      if (static_cast<unsigned char>(text[at]) < 0x20 && text[at] != '\n') return "a control character";
      if (open.empty() && text[at] != '\n') return "text outside the root";
      ++at;
      continue;
    }
    const std::size_t end = text.find('>', at);
    if (end == std::string::npos) return "no end of an element";
    std::string element = text.substr(at + 1, end - at - 1);
    at = end + 1;
    if (element.find('<') != std::string::npos) return "< in an element: " + element;
    if (element.starts_with("/")) {
      if (open.empty() || open.back() != element.substr(1)) return "wrong end: " + element;
      open.pop_back();
      continue;
    }
    const bool empty = element.ends_with("/");
    if (empty) element.pop_back();
    if (std::ranges::count(element, '"') % 2 != 0) return "quotes: " + element;
    if (open.empty() && ++roots > 1) return "two roots";
    if (!empty) open.push_back(element.substr(0, element.find(' ')));
  }
  if (text.find("nan") != std::string::npos || text.find("inf\"") != std::string::npos) return "a number";
  return open.empty() ? "" : "no end of " + open.back();
}

}  // namespace aloni::tools::svg_text
