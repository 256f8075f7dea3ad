// Access control of an HTTP server: the Host header and the token.
//
// Host header: a malicious web site can make its name resolve to 127.0.0.1, so that its pages read this server as their
// own ("DNS rebinding"). The browser then sends that name as the Host. Therefore only IP addresses, "localhost" and the
// configured names are accepted.
//
// Token: if the server has one, each request must have the header "Authorization: Bearer TOKEN".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace tarn::net {

class HttpAccess {
 public:
  // `names`: accepted hosts besides IP addresses and localhost. `token`: if empty, requests need none.
  explicit HttpAccess(std::vector<std::string> names = {}, std::string token = {});

  // `host`: the value of a Host header.
  bool AcceptsHost(std::string_view host) const;
  // `authorization`: the value of an Authorization header; empty if there is none. Compares the token in constant time:
  // the time depends only on the lengths.
  bool AcceptsAuthorization(std::string_view authorization) const;

 private:
  std::vector<std::string> names_;  // lower case
  std::string token_;
};

// Reads the token in the file `path`, without surrounding white space: 16 to 1024 letters, digits and characters of
// -._~+/=. kInvalidArgument: other text, or other users can access the file. kTooLarge: more than 2048 bytes.
// kNotFound, kIo: the file cannot be read.
Expected<std::string> ReadHttpToken(const std::string& path);

}  // namespace tarn::net
