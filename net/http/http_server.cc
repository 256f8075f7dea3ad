#include "net/http/http_server.h"

#include <fmt/format.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/write.hpp>
#include <chrono>
#include <future>
#include <optional>
#include <set>
#include <utility>

#include "core/log.h"
#include "net/http/responder.h"

namespace tarn::net {
namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;
using tcp = asio::ip::tcp;

namespace {

// Pause after a failed accept, because the next one would fail too: if no file descriptor is free, for example, the
// connection is still pending.
constexpr std::chrono::milliseconds kAcceptPause(200);
// The time for a client to read an answer before the connection is closed.
constexpr std::chrono::seconds kLinger(1);

}  // namespace

// HttpServer's Start and destructor call the constructor, Listen, LocalEndpoint and executor. Everything else runs on
// the context's thread.
class HttpServer::Impl : public std::enable_shared_from_this<Impl> {
 public:
  class Connection;

  Impl(asio::io_context* io, HttpServerOptions options, Responder responder)
      : options_(std::move(options)), responder_(std::move(responder)), acceptor_(*io), pause_(*io) {}

  Status Listen(const tcp::endpoint& at);
  HttpEndpoint LocalEndpoint() const {
    const tcp::endpoint at = acceptor_.local_endpoint();
    return {at.address().to_string(), at.port()};
  }
  asio::any_io_executor executor() { return acceptor_.get_executor(); }
  void Accept();
  void Close();

 private:
  void OnAccept(const error_code& error, tcp::socket socket);
  void Reject(tcp::socket socket) const;

  const HttpServerOptions options_;
  const Responder responder_;
  tcp::acceptor acceptor_;
  asio::steady_timer pause_;
  bool closed_ = false;
  std::set<Connection*> connections_;
  LogLimiter accept_failures_;
};

// One connection; handles its requests one after the other.
class HttpServer::Impl::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<Impl> server, tcp::socket socket)
      : server_(std::move(server)), stream_(std::move(socket)), buffer_(limits::kHttpHeaderBytesMax) {
    server_->connections_.insert(this);
  }
  ~Connection() { server_->connections_.erase(this); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void Read() {
    parser_.emplace();
    Configure(&*parser_);
    LimitTime();
    http::async_read(stream_, buffer_, *parser_,
                     [self = shared_from_this()](const error_code& error, std::size_t bytes) {
                       // Beast has separate limits for the request line and the fields.
                       const bool large = !error && bytes > limits::kHttpHeaderBytesMax;
                       self->OnRead(large ? http::error::header_limit : error);
                     });
  }
  void Close() { stream_.close(); }

 private:
  void LimitTime() { stream_.expires_after(std::chrono::microseconds(server_->options_.request_us)); }

  void OnRead(const error_code& error) {
    if (server_->closed_ || error == http::error::end_of_stream) return;
    if (!error)
      message_ = server_->responder_.Respond(parser_->get());
    else if (error.category() == error_code(http::error::end_of_stream).category())
      message_ = Responder::Refuse(error);
    else
      return;  // closed by the client, or by this server after a timeout
    LimitTime();
    http::async_write(stream_, *message_,
                      [self = shared_from_this()](const error_code& failed, std::size_t) { self->OnWrite(failed); });
  }

  void OnWrite(const error_code& error) {
    if (server_->closed_ || error) return;
    if (message_->keep_alive()) return Read();
    error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    stream_.expires_after(kLinger);
    ReadRest();
  }

  // Closing a connection with unread bytes resets it, which may lose the answer.
  void ReadRest() {
    stream_.async_read_some(asio::buffer(rest_), [self = shared_from_this()](const error_code& error, std::size_t) {
      if (!error) self->ReadRest();
    });
  }

  const std::shared_ptr<Impl> server_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  std::optional<HttpParser> parser_;
  std::optional<HttpMessage> message_;
  std::array<char, 512> rest_;
};

Status HttpServer::Impl::Listen(const tcp::endpoint& at) {
  error_code error;
  acceptor_.open(at.protocol(), error);
  if (!error) acceptor_.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor_.bind(at, error);
  if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (!error) return {};
  const ErrorCode code = error == asio::error::address_in_use ? ErrorCode::kUnavailable : ErrorCode::kIo;
  return Fail(code, fmt::format("HTTP server: cannot listen on {}: {}", ToString(options_.listen), error.message()));
}

void HttpServer::Impl::Accept() {
  acceptor_.async_accept([self = shared_from_this()](const error_code& error, tcp::socket socket) {
    self->OnAccept(error, std::move(socket));
  });
}

void HttpServer::Impl::OnAccept(const error_code& error, tcp::socket socket) {
  if (closed_) return;
  if (error) {
    LogWarning(accept_failures_, "HTTP server: cannot accept a connection: {}", error.message());
    pause_.expires_after(kAcceptPause);
    return pause_.async_wait([self = shared_from_this()](const error_code& cancelled) {
      if (!cancelled && !self->closed_) self->Accept();
    });
  }
  Accept();  // first, because the code below may throw
  if (connections_.size() >= options_.connections_max) return Reject(std::move(socket));
  std::make_shared<Connection>(shared_from_this(), std::move(socket))->Read();
}

// Answers without waiting for the client, because a connection beyond the limit must not use resources.
void HttpServer::Impl::Reject(tcp::socket socket) const {
  error_code ignored;
  socket.non_blocking(true, ignored);
  std::array<char, 4096> request;
  socket.read_some(asio::buffer(request), ignored);
  HttpMessage message = Responder::Overloaded(options_.connections_max);
  http::write(socket, message, ignored);
  socket.shutdown(tcp::socket::shutdown_both, ignored);
}

void HttpServer::Impl::Close() {
  closed_ = true;
  error_code ignored;
  acceptor_.close(ignored);
  pause_.cancel();
  for (Connection* connection : connections_) connection->Close();
}

Expected<std::unique_ptr<HttpServer>> HttpServer::Start(asio::io_context* io, HttpServerOptions options,
                                                        HttpRoutes routes) {
  error_code error;
  tcp::resolver resolver(*io);
  const auto found = resolver.resolve(options.listen.host, std::to_string(options.listen.port), error);
  if (error || found.empty())
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("HTTP server: unknown host {}: {}", options.listen.host, error.message()));
  const tcp::endpoint at = found.begin()->endpoint();
  if (!at.address().is_loopback() && options.token.empty() && !options.insecure)
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("HTTP server: other machines can reach {}, expected a token (--http-token) or --insecure",
                            ToString(options.listen)));
  std::vector<std::string> names = options.names;
  names.push_back(options.listen.host);
  Responder responder(HttpAccess(std::move(names), options.token), std::move(routes));
  const auto impl = std::make_shared<Impl>(io, std::move(options), std::move(responder));
  TARN_RETURN_IF_ERROR(impl->Listen(at));
  HttpEndpoint endpoint = impl->LocalEndpoint();
  asio::post(impl->executor(), [impl] { impl->Accept(); });
  return std::unique_ptr<HttpServer>(new HttpServer(impl, std::move(endpoint)));
}

HttpServer::HttpServer(std::shared_ptr<Impl> impl, HttpEndpoint endpoint)
    : impl_(std::move(impl)), endpoint_(std::move(endpoint)) {}

HttpServer::~HttpServer() {
  const auto closed = std::make_shared<std::promise<void>>();  // a running handler may outlive the wait
  asio::post(impl_->executor(), [impl = impl_, closed] {
    impl->Close();
    closed->set_value();
  });
  closed->get_future().wait();
}

}  // namespace tarn::net
