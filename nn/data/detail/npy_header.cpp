#include <aloni/nn/data/detail/npy_header.hpp>

#include <aloni/core/error.hpp>
#include <aloni/nn/data/detail/text_scanner.hpp>

namespace aloni::nn::detail {

NpyHeader parse_npy_header(const char* operation, const std::string& path, const std::string& text) {
  TextScanner in(operation, path, text);
  NpyHeader header;
  bool has_descr = false, has_order = false, has_shape = false;
  const auto once = [&](bool& seen, const std::string& key) {
    if (seen) in.refuse("'" + key + "' a second time", "each key once");
    seen = true;
  };
  in.require('{');
  while (!in.accept('}')) {
    const std::string key = in.quoted("'\"");
    in.require(':');
    if (key == "descr") {
      once(has_descr, key);
      if (in.next_is('[')) in.refuse("a structured type", "one element type");
      header.descr = in.quoted("'\"");
    } else if (key == "fortran_order") {
      once(has_order, key);
      const std::string word = in.word();
      if (word != "True" && word != "False") in.refuse("fortran_order " + word, "True or False");
      header.fortran_order = word == "True";
    } else if (key == "shape") {
      once(has_shape, key);
      in.require('(');
      while (!in.accept(')')) {
        header.shape.push_back(in.integer());
        if (header.shape.size() > 64) in.refuse("more than 64 dimensions", "at most 64");
        if (!in.accept(',')) {
          in.require(')');
          break;
        }
      }
    } else {
      in.refuse("key '" + key + "'", "descr, fortran_order or shape");
    }
    if (!in.accept(',')) {
      in.require('}');
      break;
    }
  }
  in.require_end();
  if (!has_descr || !has_order || !has_shape)
    throw FileError(operation, path,
                    "header without " + std::string(!has_descr   ? "descr"
                                                    : !has_order ? "fortran_order"
                                                                 : "shape"),
                    "descr, fortran_order and shape");
  return header;
}

}  // namespace aloni::nn::detail
