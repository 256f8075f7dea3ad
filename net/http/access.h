// Who may read what an HTTP server shows.
//
// Host header: a page of another site can have its name resolve to 127.0.0.1 and then read this server as if it were
// its own ("DNS rebinding"). The browser sends that site's name as the Host. So only addresses, "localhost" and the
// names that the server was given are accepted.
//
// Token: where the server has one, each request must have it in "Authorization: Bearer TOKEN".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace tarn::net {

class HttpAccess {
 public:
  // names: hosts under which others reach the server, besides addresses and localhost. token: empty: none is asked for.
  explicit HttpAccess(std::vector<std::string> names = {}, std::string token = {});

  // Of the value of a Host header.
  bool AcceptsHost(std::string_view host) const;
  // Of the value of an Authorization header, empty if there is none. Takes the same time for every token of one length.
  bool AcceptsAuthorization(std::string_view authorization) const;

 private:
  std::vector<std::string> names_;  // lower case
  std::string token_;
};

// The first line of `path` without white space around it: 16 to 1024 letters, digits and characters of -._~+/=.
// kInvalidArgument for another one and for a file that other users can read; kNotFound, kIo.
Expected<std::string> ReadHttpToken(const std::string& path);

}  // namespace tarn::net
