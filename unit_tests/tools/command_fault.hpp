#pragma once
// Parses and checks the arguments of one subcommand.
#include <aloni/tools/together.hpp>

#include <gtest/gtest.h>
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <string>
#include <vector>

namespace aloni::tools::test {

/// The error for `aloni <arguments>`; empty if there is none. The first argument is the subcommand of Command.
template <class Command>
std::string fault_of(const std::vector<std::string>& arguments) {
  CLI::App app;
  const Command command(app);
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // the order that CLI11 expects in a vector
  try {
    app.parse(reversed);
    command.check();
  } catch (const CLI::ParseError& e) {
    return e.what();
  } catch (const UsageError& e) {
    return e.what();
  }
  EXPECT_TRUE(command.chosen());
  return "";
}

}  // namespace aloni::tools::test
