// Shows over loopback what an HTTP server answers (its paths, HEAD, keep-alive), what it refuses and with which status,
// that each limit holds at its value and one past it, and that a slow client occupies one connection for a bounded time
// and does not delay others.
#include "net/http/http_server.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/log.h"
#include "core/process_context.h"
#include "tests/unit/net/http/http_client.h"

namespace tarn::net {
namespace {

using std::chrono::milliseconds;

class HttpServerTest : public testing::Test {
 protected:
  // Uses the logger once, before a test uses up all file descriptors, one of which UBSan needs, and before other
  // threads use it: ThreadSanitizer does not see that its initialization comes first.
  static void SetUpTestSuite() { EXPECT_TRUE(LogEnabled(LogLevel::kError)); }
  void SetUp() override { Start({}); }

  void Start(HttpServerOptions options) {
    server_.reset();
    HttpRoutes routes;
    routes["/text"] = [this] {
      ++calls_;
      return HttpResponse{.body = "some text\n"};
    };
    routes["/large"] = [] { return HttpResponse{.body = std::string(64 << 20, 'x')}; };
    routes["/throws"] = []() -> HttpResponse { throw std::runtime_error("no memory"); };
    auto server = HttpServer::Start(&process_->io(), std::move(options), std::move(routes));
    ASSERT_TRUE(server) << server.error().message;
    server_ = *std::move(server);
  }

  HttpClient Connect() const { return HttpClient(server_->endpoint().port); }
  HttpAnswer Ask(std::string_view request) const {
    HttpClient client = Connect();
    client.Send(request);
    return client.Receive();
  }
  static bool Eventually(const std::function<bool()>& done) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!done()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(milliseconds(2));
    }
    return true;
  }
  int StatusOf(std::string_view request) const { return Ask(request).status; }

  std::unique_ptr<ProcessContext> process_ = ProcessContext::Start({}).value();
  std::atomic<int> calls_ = 0;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, AnswersItsPaths) {
  const HttpAnswer answer = Connect().Get("/text");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "some text\n");
  EXPECT_EQ(answer.headers.at("content-type"), "text/plain; charset=utf-8");
  EXPECT_EQ(answer.headers.at("cache-control"), "no-store");
  EXPECT_EQ(answer.headers.at("x-content-type-options"), "nosniff");
  EXPECT_EQ(Connect().Get("/text?since=3").body, "some text\n");
}

TEST_F(HttpServerTest, AConnectionServesSeveralRequests) {
  HttpClient client = Connect();
  for (int i = 0; i < 100; ++i) ASSERT_EQ(client.Get("/text").body, "some text\n") << i;
  client.Send("GET /text HTTP/1.1\r\nHost: localhost\r\n\r\nGET /none HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(client.Receive().status, 200);
  EXPECT_EQ(client.Receive().status, 404);
}

TEST_F(HttpServerTest, AConnectionEndsWhenTheClientWantsIt) {
  HttpClient client = Connect();
  EXPECT_EQ(client.Get("/text", "Connection: close\r\n").headers.at("connection"), "close");
  EXPECT_TRUE(client.AwaitEnd());
  HttpClient old = Connect();
  old.Send("GET /text HTTP/1.0\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(old.Receive().status, 200);
  EXPECT_TRUE(old.AwaitEnd());
}

TEST_F(HttpServerTest, HeadHasTheHeadersOfGetAndNoBody) {
  HttpClient client = Connect();
  client.Send("HEAD /text HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const HttpAnswer head = client.Receive(false);
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.headers.at("content-length"), "10");
  EXPECT_EQ(client.Get("/text").body, "some text\n") << "nothing was left over";
  client.Send("HEAD /none HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(client.Receive(false).status, 404);
  EXPECT_EQ(client.Get("/text").status, 200);
}

TEST_F(HttpServerTest, AnUnknownPathIsNotFound) {
  for (const char* path : {"/", "/none", "/text/", "/TEXT", "//text", "/text%20", "/./text"}) {
    const HttpAnswer answer = Connect().Get(path);
    EXPECT_EQ(answer.status, 404) << path;
    EXPECT_EQ(answer.body, "not found; this server has /large, /text, /throws\n");
  }
  EXPECT_EQ(calls_, 0);
}

TEST_F(HttpServerTest, OtherMethodsAreNotAllowed) {
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "CONNECT", "BREW"}) {
    const HttpAnswer answer = Ask(std::string(method) + " /text HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_EQ(answer.status, 405) << method;
    EXPECT_EQ(answer.headers.at("allow"), "GET, HEAD");
  }
  EXPECT_EQ(calls_, 0);
}

TEST_F(HttpServerTest, ABodyIsRefused) {
  EXPECT_EQ(StatusOf("GET /text HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"), 200);
  EXPECT_EQ(StatusOf("GET /text HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx"), 413);
  EXPECT_EQ(StatusOf("POST /text HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n"), 413);
  EXPECT_EQ(StatusOf("POST /text HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"),
            413);
}

TEST_F(HttpServerTest, MalformedRequestsAreRefusedAndTheConnectionEnds) {
  for (const char* request :
       {"\r\n\r\n\r\n", "GET\r\n\r\n", "GET /text\r\n\r\n", "GET /text HTTP/9.1\r\nHost: localhost\r\n\r\n",
        "GET /text HTTP/1.1\r\nno colon\r\n\r\n", "GET /text HTTP/1.1\r\n: empty\r\n\r\n",
        "GET  /text HTTP/1.1\r\nHost: localhost\r\n\r\n", "G\x01T /text HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET /te\x7fxt HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET /text HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
        "GET /text HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "\xff\xff\xff\xff\r\n\r\n"}) {
    HttpClient client = Connect();
    client.Send(request);
    const HttpAnswer answer = client.Receive();
    EXPECT_EQ(answer.status, 400) << request;
    EXPECT_EQ(answer.headers.at("connection"), "close") << request;
    EXPECT_TRUE(client.AwaitEnd()) << request;
  }
  EXPECT_EQ(StatusOf("GET text HTTP/1.1\r\nHost: localhost\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf("GET http://localhost/text HTTP/1.1\r\nHost: localhost\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf("GET * HTTP/1.1\r\nHost: localhost\r\n\r\n"), 400);
  EXPECT_EQ(calls_, 0);
  EXPECT_EQ(Connect().Get("/text").status, 200);
}

TEST_F(HttpServerTest, AnIncompleteRequestIsDropped) {
  for (const char* request : {"", "G", "GET /text HTTP/1.1\r\n", "GET /text HTTP/1.1\r\nHost: localhost\r\n"})
    Connect().Send(request);
  EXPECT_EQ(Connect().Get("/text").status, 200);
  EXPECT_EQ(calls_, 1);
}

TEST_F(HttpServerTest, HostMustBeOneOfItsNames) {
  EXPECT_EQ(StatusOf("GET /text HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf("GET /text HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf("GET /text HTTP/1.1\r\nHost: evil.example\r\n\r\n"), 421);
  EXPECT_EQ(StatusOf("GET /text HTTP/1.1\r\nHost:\r\n\r\n"), 421);
  EXPECT_EQ(StatusOf("GET /text HTTP/1.1\r\nHost: node7\r\n\r\n"), 421);
  EXPECT_EQ(calls_, 0);
  EXPECT_EQ(StatusOf("GET /text HTTP/1.1\r\nHost: 127.0.0.1:80\r\n\r\n"), 200);
  Start({.names = {"node7"}});
  EXPECT_EQ(StatusOf("GET /text HTTP/1.1\r\nHost: node7\r\n\r\n"), 200);
}

TEST_F(HttpServerTest, ATokenIsRequiredOnEveryPath) {
  Start({.token = "0123456789abcdef"});
  for (const char* path : {"/text", "/none"}) {
    const HttpAnswer answer = Connect().Get(path);
    EXPECT_EQ(answer.status, 401);
    EXPECT_EQ(answer.headers.at("www-authenticate"), "Bearer");
    EXPECT_EQ(Connect().Get(path, "Authorization: Bearer 0123456789abcdeX\r\n").status, 401);
  }
  EXPECT_EQ(calls_, 0);
  EXPECT_EQ(Connect().Get("/text", "Authorization: Bearer 0123456789abcdef\r\n").status, 200);
  EXPECT_EQ(Connect()
                .Get("/text", "Authorization: Bearer 0123456789abcdef\r\nAuthorization: Bearer 0123456789abcdef\r\n")
                .status,
            401);
}

TEST_F(HttpServerTest, OtherMachinesNeedATokenOrAnInsecureServer) {
  const auto start = [this](HttpServerOptions options) {
    options.listen = {"0.0.0.0", 0};
    return HttpServer::Start(&process_->io(), std::move(options), {});
  };
  const auto refused = start({});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused.error().message,
            "HTTP server: other machines can reach 0.0.0.0:0, expected a token (--http-token) or --insecure");
  EXPECT_TRUE(start({.token = "0123456789abcdef"}));
  EXPECT_TRUE(start({.insecure = true}));
}

TEST_F(HttpServerTest, TheErrorNamesAnAddressThatItCannotListenOn) {
  HttpServerOptions taken;
  taken.listen = server_->endpoint();
  const auto second = HttpServer::Start(&process_->io(), taken, {});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(second.error().message.find(ToString(server_->endpoint())), std::string::npos) << second.error().message;
  const auto unknown = HttpServer::Start(&process_->io(), {.listen = {"host.invalid", 0}}, {});
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::kInvalidArgument);
}

TEST_F(HttpServerTest, HeadersBeyondTheLimitAreRefused) {
  const std::string before = "GET /text HTTP/1.1\r\nHost: localhost\r\nPadding: ", after = "\r\n\r\n";
  const std::size_t room = limits::kHttpHeaderBytesMax - before.size() - after.size();
  EXPECT_EQ(StatusOf(before + std::string(room, 'x') + after), 200);
  EXPECT_EQ(StatusOf(before + std::string(room + 1, 'x') + after), 431);
  EXPECT_EQ(StatusOf(before + std::string(1 << 20, 'x')), 431);
  EXPECT_EQ(StatusOf("GET /" + std::string(limits::kHttpHeaderBytesMax, 'x')), 431);
  std::string many = "GET /text HTTP/1.1\r\nHost: localhost\r\n";
  while (many.size() < limits::kHttpHeaderBytesMax) many += "A: b\r\n";
  EXPECT_EQ(StatusOf(many + "\r\n"), 431);
}

TEST_F(HttpServerTest, ConnectionsBeyondTheLimitAreRefused) {
  EXPECT_EQ(HttpServerOptions().connections_max, 64u);
  Start({.connections_max = 3, .request_us = 60'000'000});
  std::vector<HttpClient> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(Connect());
    ASSERT_EQ(clients.back().Get("/text").status, 200);
  }
  HttpClient silent = Connect();
  const auto rejected = silent.Receive();
  EXPECT_EQ(rejected.status, 503);
  EXPECT_NE(rejected.body.find("at most 3 connections"), std::string::npos) << rejected.body;
  EXPECT_TRUE(silent.AwaitEnd());
  for (HttpClient& client : clients) EXPECT_EQ(client.Get("/text").status, 200) << "the others go on";
  clients.pop_back();
  EXPECT_TRUE(Eventually([&] { return Connect().Get("/text").status == 200; })) << "one has gone";
}

TEST_F(HttpServerTest, AClientThatSendsNothingIsClosed) {
  Start({.request_us = 50'000});
  HttpClient client = Connect();
  EXPECT_TRUE(client.AwaitEnd());
  HttpClient idle = Connect();
  EXPECT_EQ(idle.Get("/text").status, 200);
  EXPECT_TRUE(idle.AwaitEnd()) << "nor may it wait between requests for longer";
}

TEST_F(HttpServerTest, AClientThatSendsByteByByteIsClosed) {
  Start({.request_us = 50'000});
  HttpClient client = Connect();
  client.Send("GET /text HTTP/1.1\r\nHost: localhost\r\nA: ");
  EXPECT_TRUE(Eventually([&] { return !client.Send("x"); }));
  EXPECT_EQ(calls_, 0);
}

TEST_F(HttpServerTest, AClientThatReadsNoAnswerIsClosed) {
  Start({.connections_max = 1, .request_us = 50'000});
  HttpClient client = Connect();
  client.Send("GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_TRUE(Eventually([&] { return Connect().Get("/text").status == 200; })) << "its connection was never free";
  EXPECT_LT(client.Receive().body.size(), std::size_t{64} << 20);
}

TEST_F(HttpServerTest, SlowClientsDoNotBlockOthers) {
  Start({.request_us = 60'000'000});
  std::vector<HttpClient> slow;
  for (int i = 0; i < 30; ++i) {
    slow.push_back(Connect());
    slow.back().Send(i % 2 == 0 ? "GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n" : "GET /te");
  }
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Connect().Get("/text").status, 200);
}

TEST_F(HttpServerTest, AHandlerThatThrowsIsAnError) {
  HttpClient client = Connect();
  EXPECT_EQ(client.Get("/throws").status, 500);
  EXPECT_EQ(client.Get("/text").status, 200);
}

TEST_F(HttpServerTest, StopClosesConnectionsAndCallsNoHandler) {
  HttpClient idle = Connect(), busy = Connect();
  EXPECT_EQ(idle.Get("/text").status, 200);
  busy.Send("GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const std::uint16_t port = server_->endpoint().port;
  server_.reset();
  const int calls = calls_;
  EXPECT_TRUE(idle.AwaitEnd());
  EXPECT_TRUE(busy.AwaitEnd());
  EXPECT_FALSE(HttpClient(port).connected());
  EXPECT_EQ(calls_, calls);
}

TEST_F(HttpServerTest, WithoutFreeFilesItServesExistingConnections) {
  HttpClient early = Connect(), late;
  ASSERT_EQ(early.Get("/text").status, 200);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int free = ::dup(0);  // the lowest free descriptor
  ::close(free);
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(free);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  late.Connect(server_->endpoint().port);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(early.Get("/text").status, 200);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(late.Get("/text").status, 200);
}

}  // namespace
}  // namespace tarn::net
