#include <aloni/model/shipped_machines.hpp>

#include <aloni/core/error.hpp>
#include <aloni/core/nearest_name.hpp>
#include <aloni/core/printable.hpp>
#include <aloni/model/detail/shipped_texts.hpp>
#include <aloni/model/machine_file.hpp>

#include <algorithm>

namespace aloni::model {

const std::vector<std::string>& machine_names() {
  static const auto names = [] {
    std::vector<std::string> all;
    for (const detail::ShippedText& machine : detail::shipped_texts()) all.emplace_back(machine.name);
    return all;
  }();
  return names;
}

Machine find_machine(const std::string& name) {
  const auto texts = detail::shipped_texts();
  const auto found = std::ranges::find(texts, name, &detail::ShippedText::name);
  if (found == texts.end()) {
    throw InvalidArgument("aloni::model::find_machine", "name", '"' + printable(name) + '"',
                          one_of(name, machine_names()));
  }
  return parse_machine(found->text, "machines/" + name + ".json");
}

}  // namespace aloni::model
