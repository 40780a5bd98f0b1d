#pragma once
// Values of MessageKey::index that no message of a schedule has.
#include <cstdint>
#include <limits>

namespace aloni::comm::detail {

constexpr std::uint16_t message_index = std::numeric_limits<std::uint16_t>::max();  // user messages
// Notes of compare_notes() and send_credit().
constexpr std::uint16_t note_index = message_index - 1, credit_index = message_index - 2;
constexpr std::uint16_t transfer_index = message_index - 3;  // messages of transfers
// Notes about waits. Header::offset: the index of the message, whether the note is an answer, and the number of the
// wait that is asked about.
constexpr std::uint16_t wait_index = message_index - 4;
constexpr std::uint16_t mail_head_index = message_index - 5, mail_data_index = message_index - 6;
// Messages of schedules have smaller values: compile() refuses schedules with more messages to one rank.
constexpr std::uint16_t first_special_index = mail_data_index;

}  // namespace aloni::comm::detail
