#include <aloni/core/trace.hpp>

#include <aloni/core/printable.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <tuple>

namespace aloni {

namespace {

void append_text(std::string& json, std::string_view text) {
  json += '"';
  for (const char c : printable(text)) {
    if (c == '"' || c == '\\') json += '\\';
    json += c;
  }
  json += '"';
}

template <class Number>
void append_number(std::string& json, Number value) {
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  json.append(digits.data(), end);
}

void append_value(std::string& json, const TraceArgument& argument) {
  if (const auto* integer = std::get_if<std::int64_t>(&argument.value)) {
    append_number(json, *integer);
  } else if (const auto* real = std::get_if<double>(&argument.value)) {
    if (std::isfinite(*real)) {
      append_number(json, *real);
    } else {
      json += "null";
    }
  } else {
    append_text(json, std::get<std::string>(argument.value));
  }
}

void append_arguments(std::string& json, std::span<const TraceArgument> arguments) {
  json += '{';
  for (const TraceArgument& a : arguments) {
    if (&a != arguments.data()) json += ',';
    append_text(json, a.name);
    json += ':';
    append_value(json, a);
  }
  json += '}';
}

/// The unit of the format is the microsecond. Digits behind the point keep the nanoseconds.
void append_microseconds(std::string& json, std::int64_t nanoseconds) {
  if (nanoseconds < 0) json += '-';
  const std::int64_t size = std::abs(nanoseconds);
  append_number(json, size / 1000);
  json += '.';
  for (const std::int64_t unit : {100, 10, 1}) json += static_cast<char>('0' + size / unit % 10);
}

/// Thread ids are unique over all processes. Viewers take a thread with the id of its process for the main thread.
std::int64_t thread_of(const Trace& trace, int row) {
  return 1000 * (static_cast<std::int64_t>(trace.process) + 1) + row;
}

void append_place(std::string& json, const Trace& trace, int row) {
  json += "\"pid\":";
  append_number(json, trace.process);
  json += ",\"tid\":";
  append_number(json, thread_of(trace, row));
}

void append_metadata(std::string& json, const Trace& trace, int row, std::string_view kind,
                     const TraceArgument& argument) {
  if (!json.empty()) json += ",\n";
  json += R"({"ph":"M",)";
  append_place(json, trace, row);
  json += ",\"name\":";
  append_text(json, kind);
  json += ",\"args\":";
  append_arguments(json, std::span(&argument, 1));
  json += '}';
}

}  // namespace

std::string trace_events(const Trace& trace, std::int64_t origin) {
  std::string json;
  append_metadata(json, trace, 0, "process_name", {"name", trace.name});
  append_metadata(json, trace, 0, "process_sort_index", {"sort_index", std::int64_t{trace.process}});
  for (int row = 0; row < static_cast<int>(trace.rows.size()); ++row) {
    append_metadata(json, trace, row, "thread_name", {"name", trace.rows[static_cast<std::size_t>(row)]});
    append_metadata(json, trace, row, "thread_sort_index", {"sort_index", std::int64_t{row}});
  }
  std::vector<const TraceSlice*> slices;
  for (const TraceSlice& slice : trace.slices) slices.push_back(&slice);
  std::ranges::stable_sort(slices, {}, [](const TraceSlice* s) { return std::tuple(s->row, s->start, -s->end); });
  for (const TraceSlice* slice : slices) {
    json += R"(,
{"ph":"X",)";
    append_place(json, trace, slice->row);
    json += ",\"ts\":";
    append_microseconds(json, slice->start - origin);
    json += ",\"dur\":";
    append_microseconds(json, slice->end - slice->start);
    json += ",\"name\":";
    append_text(json, slice->name);
    json += ",\"args\":";
    append_arguments(json, slice->arguments);
    json += '}';
  }
  return json;
}

std::string trace_file(std::span<const std::string> events, std::span<const TraceArgument> about) {
  std::string json = "{\"displayTimeUnit\":\"ns\",\"otherData\":";
  append_arguments(json, about);
  json += ",\"traceEvents\":[\n";
  bool first = true;
  for (const std::string& of_process : events) {
    if (of_process.empty()) continue;
    if (!first) json += ",\n";
    json += of_process;
    first = false;
  }
  return json + "\n]}\n";
}

}  // namespace aloni
