#include <aloni/core/comm/self_transport.hpp>
#include <aloni/core/error.hpp>

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace {

using namespace aloni::comm;

TEST(SelfTransport, DeliversWhicheverSideComesFirst) {
  SelfTransport self;
  const int sent = 42;
  int first = 0, second = 0;
  Request receive = self.receive(&first, sizeof first, 0, 1);
  EXPECT_FALSE(self.test(receive));
  Request send = self.send(&sent, sizeof sent, 0, 1);
  EXPECT_TRUE(self.test(send));
  EXPECT_TRUE(self.test(receive));
  EXPECT_EQ(first, 42);

  send = self.send(&sent, sizeof sent, 0, 1);
  EXPECT_FALSE(self.test(send));
  receive = self.receive(&second, sizeof second, 0, 1);
  EXPECT_TRUE(self.test(receive));
  EXPECT_TRUE(self.test(send));
  EXPECT_EQ(second, 42);
  EXPECT_EQ(send.transport, nullptr);
}

TEST(SelfTransport, MatchesByTagAndInTheOrderOfSends) {
  SelfTransport self;
  const std::array<int, 4> sent{10, 11, 20, 21};
  std::array<int, 4> received{};
  std::vector<Request> requests;
  requests.push_back(self.receive(&received[2], sizeof(int), 0, 2));
  for (const int i : {0, 2, 1, 3}) requests.push_back(self.send(&sent[i], sizeof(int), 0, i < 2 ? 1 : 2));
  for (const int i : {0, 1, 3}) requests.push_back(self.receive(&received[i], sizeof(int), 0, i < 2 ? 1 : 2));
  for (Request& request : requests) EXPECT_TRUE(self.test(request));
  EXPECT_EQ(received, sent);
}

TEST(SelfTransport, ReportsAWrongSizeToTheReceiverAndCopiesNothing) {
  SelfTransport self;
  const std::array<int, 2> sent{1, 2};
  std::array<int, 3> received{-1, -1, -1};
  Request send = self.send(sent.data(), sizeof sent, 0, 7);
  Request receive = self.receive(received.data(), sizeof received, 0, 7);
  EXPECT_TRUE(self.test(send));
  try {
    self.test(receive);
    FAIL() << "no exception";
  } catch (const aloni::CommunicationError& error) {
    EXPECT_EQ(error.value(), "8 bytes");
    EXPECT_EQ(error.expectation(), "12 bytes");
    EXPECT_NE(error.argument().find("tag 7"), std::string::npos);
  }
  EXPECT_EQ(received[0], -1);
}

TEST(SelfTransport, TakesEmptyMessagesAndCountsAll) {
  SelfTransport self;
  const char byte = 'x';
  char copy = 0;
  std::vector<Request> requests{self.send(nullptr, 0, 0, 0), self.send(&byte, 1, 0, 0), self.receive(nullptr, 0, 0, 0),
                                self.receive(&copy, 1, 0, 0)};
  for (Request& request : requests) EXPECT_TRUE(self.test(request));
  EXPECT_EQ(copy, 'x');
  EXPECT_EQ(self.counters().messages_sent, 2u);
  EXPECT_EQ(self.counters().bytes_sent, 1u);
  EXPECT_EQ(self.counters().messages_received, 2u);
  EXPECT_EQ(self.counters().bytes_received, 1u);
}

}  // namespace
