// SPDX-License-Identifier: Apache-2.0
// One connection's conversation.
#pragma once

#include <chrono>

#include <weft/net.hpp>
#include "common/server.h"
#include "httpd/site.h"

namespace httpd {

// Reads requests and answers them until the client has gone or may not stay. timeout: for a request
// to arrive, and for a part of an answer to be taken.
void talk(const weft::net::conn& c, const site& s, const examples::server& server,
          std::chrono::seconds timeout);

}  // namespace httpd
