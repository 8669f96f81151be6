//! HTTP requests, forwarded one by one.

use std::io::{Read, Write};
use std::time::Instant;

use super::P256;
use super::recording_server::RecordingServer;
use super::upstream::saying;
use super::world::{Edge, Tls, World, sum};
use crate::key_service::{TIMEOUT, until};

/// Starts a terminator with two certificates, one of them for two names. Its configuration begins with `more`.
pub(super) fn world(upstream: &str, more: &str) -> (World, Edge) {
    let mut world = World::new(&[("a", P256, "DNS:a.example,DNS:*.a.example"), ("b", P256, "DNS:b.example")]);
    world.serve(&[]);
    world.configure(&format!("[edge]\nmode = \"http\"\nupstream = \"{upstream}\"\n{more}"));
    let edge = world.edge(&["--config", "edge.toml"]);
    (world, edge)
}

/// Returns the values of a header in a request head.
fn field<'a>(head: &'a str, name: &str) -> Vec<&'a str> {
    let is = |line: &&'a str| line.split(':').next().is_some_and(|field| field.eq_ignore_ascii_case(name));
    head.lines().filter(is).map(|line| line.split_once(':').unwrap().1.trim()).collect()
}

/// Sends `request`. Returns the response up to `end`, or to the end of the connection.
pub(super) fn send_request(tls: &mut Tls, request: &str, end: &str) -> String {
    // The response may come before the connection is closed.
    let _ = tls.write_all(request.as_bytes());
    let mut answer = Vec::new();
    let mut some = [0; 4_096];
    while end.is_empty() || !String::from_utf8_lossy(&answer).contains(end) {
        match tls.read(&mut some) {
            Ok(0) | Err(_) => break,
            Ok(count) => answer.extend(&some[..count]),
        }
    }
    String::from_utf8(answer).unwrap()
}

/// Sends a request. Returns a response that has a `Content-Length`.
pub(super) fn exchange(tls: &mut Tls, request: &str) -> String {
    let mut answer = send_request(tls, request, "\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{request}: {answer}"));
    let length: usize = field(head, "Content-Length")[0].parse().unwrap();
    let mut rest = vec![0; length - body.len()];
    tls.read_exact(&mut rest).unwrap();
    answer.push_str(std::str::from_utf8(&rest).unwrap());
    answer
}

#[test]
fn forwarded_headers_are_set_and_client_supplied_ones_replaced() {
    let upstream = RecordingServer::start();
    let (world, edge) = world(&upstream.address, "");
    for http in ["--http1.1", "--http2"] {
        let sent = [
            "-HX-Forwarded-For: 10.0.0.1",
            "-HX_Forwarded_For: 10.0.0.1",
            "-HX-Forwarded-Proto: http",
            "-HX-Real-IP: 10.0.0.1",
            "-HForwarded: for=10.0.0.1",
            "-HCookie: one=1",
            "-HX-Own: stays",
            "-HTE: trailers",
        ];
        let head = world.curl_at(&edge, "a.example/path?query=1", &[&[http][..], &sent].concat());
        assert!(
            head.starts_with("GET /path?query=1 HTTP/1.1\n")
                || head.starts_with("GET /path?query=1 HTTP/1.1\r\n"),
            "{head}"
        );
        let port = edge.address.rsplit(':').next().unwrap();
        let host = format!("a.example:{port}");
        for (name, wanted) in [
            ("Host", host.clone()),
            ("X-Forwarded-For", "127.0.0.1".into()),
            ("X-Forwarded-Proto", "https".into()),
            ("X-Forwarded-Host", host.clone()),
            ("Forwarded", format!("for=127.0.0.1;host=\"{host}\";proto=https")),
            ("X-Own", "stays".into()),
            ("Cookie", "one=1".into()),
        ] {
            assert_eq!(field(&head, name), [wanted.as_str()], "{http} {name}: {head}");
        }
        assert!(!head.contains("10.0.0.1"), "{head}");
    }
    assert_eq!(upstream.connections(), 1, "the second request goes where the first one went");
    let passed = || sum(&edge.figures(), "bulla_intercept_edge_passed_octets_total", "to-client");
    until("what the client has is counted", || passed() > 500.0);
    let figures = edge.figures();
    assert_eq!(sum(&figures, "bulla_intercept_edge_upstream_requests_total", "kept"), 1.0);
    assert_eq!(sum(&figures, "bulla_intercept_edge_request_duration_seconds_count", "2xx"), 2.0);
    assert_eq!(sum(&figures, "bulla_intercept_edge_requests_in_flight", ""), 0.0);
    assert_eq!(edge.stop(), Some(0));
}

#[test]
fn forwarded_headers_of_a_trusted_proxy_are_extended() {
    let upstream = RecordingServer::start();
    let (world, edge) = world(&upstream.address, "trusted_proxies = [\"127.0.0.0/8\"]\n");
    let head = world.curl(&edge, "a.example", &["-HX-Forwarded-For: 10.0.0.1", "-HForwarded: for=10.0.0.1"]);
    assert_eq!(field(&head, "X-Forwarded-For"), ["10.0.0.1, 127.0.0.1"], "{head}");
    assert!(field(&head, "Forwarded")[0].starts_with("for=10.0.0.1, for=127.0.0.1;"), "{head}");
}

/// PROXY protocol: a trusted load balancer gives the client address for limits, upstream headers and log. Other peers may not.
#[test]
fn proxy_protocol_address_is_accepted_only_from_trusted_proxies() {
    const ONE: [u8; 4] = [203, 0, 113, 1];
    const OTHER: [u8; 4] = [203, 0, 113, 2];
    let upstream = RecordingServer::start();
    let more = "trusted_proxies = [\"127.0.0.2/32\"]\nconnections_per_address_max = 1\naccess_log_file = \"access.log\"\n";
    let (world, edge) = world(&upstream.address, more);
    let mut connection = world.introduced(&edge, "a.example", (2, ONE)).unwrap();
    assert!(
        exchange(&mut connection, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").starts_with("HTTP/1.1 200 ")
    );
    let head = upstream.received().pop().unwrap();
    assert_eq!(field(&head, "X-Forwarded-For"), ["203.0.113.1"], "{head}");
    assert!(world.introduced(&edge, "a.example", (2, ONE)).is_err(), "the second connection of that client");
    let mut other = world.introduced(&edge, "a.example", (2, OTHER)).unwrap();
    assert!(exchange(&mut other, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").starts_with("HTTP/1.1 200 "));
    assert!(world.introduced(&edge, "a.example", (3, [203, 0, 113, 3])).is_err(), "it is not trusted");
    let log = world.fixture.path("access.log");
    until("both clients in the log", || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        text.contains("203.0.113.1") && text.contains("203.0.113.2")
    });
    assert!(!std::fs::read_to_string(&log).unwrap().contains("203.0.113.3"));
}

#[test]
fn hop_by_hop_headers_are_not_forwarded() {
    let upstream = RecordingServer::start();
    let (world, edge) = world(&upstream.address, "");
    let mut tls = world.connect(&edge, "a.example");
    let request = "GET /trailers HTTP/1.1\r\nHost: a.example\r\nConnection: keep-alive, X-Secret\r\nX-Secret: 1\r\nKeep-Alive: 5\r\n\
                   Proxy-Connection: keep-alive\r\nUpgrade: h2c\r\nTE: trailers, deflate\r\n\r\n";
    let answer = send_request(&mut tls, request, "42\r\n\r\n").to_ascii_lowercase();
    assert!(answer.contains("hello") && answer.contains("\r\n0\r\nx-sum: 42\r\n"), "trailers pass: {answer}");
    assert!(!answer.contains("x-hop: 1") && !answer.contains("keep-alive"), "{answer}");
    let head = upstream.received().remove(0);
    for name in ["X-Secret", "Keep-Alive", "Proxy-Connection", "Upgrade"] {
        assert!(field(&head, name).is_empty(), "{name}: {head}");
    }
    assert_eq!(field(&head, "TE"), ["trailers"]);
    // An Upgrade to HTTP/2 or another unsupported protocol is not forwarded, also if Connection names it.
    for lines in ["h2c", "h2c,", "h2c\r\nUpgrade: TLS/1.0", "HTTP/2.0, tcp"] {
        let request = format!(
            "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: upgrade\r\nUpgrade: {lines}\r\nHTTP2-Settings: AAMAAABk\r\n\r\n"
        );
        assert!(exchange(&mut tls, &request).starts_with("HTTP/1.1 200 "), "{lines}");
        let head = upstream.received().pop().unwrap();
        assert!(
            field(&head, "Upgrade").is_empty() && field(&head, "Connection").is_empty(),
            "{lines}: {head}"
        );
    }
    let chunked = "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\nTE: trailers\r\nConnection: TE\r\n\
                Trailer: X-Sum, X-Forwarded-For, Keep-Alive\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 7\r\nX-Forwarded-For: 10.0.0.1\r\n\
                Keep-Alive: 5\r\n\r\n";
    let answer = exchange(&mut tls, chunked).to_ascii_lowercase();
    assert!(answer.contains("x-sum: 7") && answer.ends_with("octets=3\n"), "{answer}");
    assert!(!answer.contains("10.0.0.1") && !answer.contains("keep-alive: 5"), "nor trailers: {answer}");
    // Interim responses (1xx) of the upstream are not forwarded.
    let answer = send_request(&mut tls, "GET /hints HTTP/1.1\r\nHost: a.example\r\n\r\n", "hello");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
}

#[test]
fn requests_for_other_hosts_are_rejected_with_421_or_400() {
    let (upstream, other) = (RecordingServer::start(), saying("b's own"));
    let routes = format!(
        "default_certificate = \"a\"\n[[edge.routes]]\nnames = [\"c.a.example\"]\nupstream = \"{other}\"\n"
    );
    let (world, edge) = world(&upstream.address, &routes);
    for (host, wanted) in [
        ("a.example", "200"),
        ("A.Example.:8443", "200"),
        // Certificate and route both match.
        ("d.a.example", "200"),
        // The certificate matches, the route does not.
        ("c.a.example", "421"),
        // The route matches, the certificate does not.
        ("b.example", "421"),
        ("127.0.0.1", "421"),
        ("a.example@b", "400"),
        ("a.example:x,b.example", "400"),
        ("a.example:", "400"),
        ("a.example:99999", "400"),
        ("[::1]b", "400"),
        ("", "400"),
        ("a b", "400"),
    ] {
        let mut tls = world.connect(&edge, "a.example");
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let answer = send_request(&mut tls, &request, "\r\n\r\n");
        assert!(answer.starts_with(&format!("HTTP/1.1 {wanted} ")), "{host}: {answer}");
    }
    for (request, wanted) in [
        ("GET / HTTP/1.1\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: a.example\r\nHost: b.example\r\n\r\n", "400"),
        ("GET https://b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", "421"),
        ("CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n", "405"),
    ] {
        let mut tls = world.connect(&edge, "a.example");
        let answer = send_request(&mut tls, request, "\r\n\r\n");
        assert!(answer.starts_with(&format!("HTTP/1.1 {wanted} ")), "{request}: {answer}");
    }
    // A client without SNI.
    for (host, wanted) in [
        ("127.0.0.1", "200"),
        ("a.example", "200"),
        ("c.a.example", "421"),
        ("a.example:x,b.example", "400"),
        ("[::1]b", "400"),
    ] {
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let printed = world.s_client(&edge, "-noservername", &request);
        assert!(printed.contains(&format!("HTTP/1.1 {wanted} ")), "{host}: {printed}");
    }
    assert!(upstream.received().iter().all(|head| !head.contains("b.example")), "{:?}", upstream.received());
    assert_eq!(
        world.curl(&edge, "b.example", &[]).lines().next(),
        Some("GET / HTTP/1.1"),
        "on its own one it is"
    );
}

#[test]
fn request_smuggling_is_rejected() {
    let upstream = RecordingServer::start();
    let (world, edge) = world(&upstream.address, "");
    let hidden = "GET /hidden HTTP/1.1\r\nHost: a.example\r\n\r\n";
    let post = "POST /first HTTP/1.1\r\nHost: a.example\r\n";
    for (fields, body) in [
        // The length or the chunks end before the hidden request.
        (
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            format!("{:x}\r\n{hidden}\r\n0\r\n\r\n", hidden.len()),
        ),
        (
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
            format!("{:x}\r\n{hidden}\r\n0\r\n\r\n", hidden.len()),
        ),
        ("X: y\nTransfer-Encoding: chunked\r\n", format!("0\r\n\r\n{hidden}")),
        ("Content-Length: 0\r\nX: y\n", hidden.to_owned()),
        ("Content-Length: 0\r\nContent-Length: 46\r\n", hidden.to_owned()),
        ("Content-Length: +0\r\n", hidden.to_owned()),
        ("Content-Length: 0, 46\r\n", hidden.to_owned()),
        ("Transfer-Encoding: chunked, identity\r\n", format!("0\r\n\r\n{hidden}")),
        ("Transfer-Encoding: xchunked\r\nContent-Length: 46\r\n", hidden.to_owned()),
        ("Transfer-Encoding : chunked\r\n", format!("0\r\n\r\n{hidden}")),
        (" Transfer-Encoding: chunked\r\n", format!("0\r\n\r\n{hidden}")),
        ("X: 1\r\n\tTransfer-Encoding: chunked\r\n", format!("0\r\n\r\n{hidden}")),
        ("Transfer-Encoding: chunked\r\n", format!("0x{:x}\r\n{hidden}\r\n0\r\n\r\n", hidden.len())),
    ] {
        let before = upstream.received().len();
        let mut tls = world.connect(&edge, "a.example");
        let answer = send_request(&mut tls, &format!("{post}{fields}\r\n{body}"), "");
        let received = upstream.received().split_off(before);
        assert!(
            received.len() <= 1 && !received.iter().any(|head| head.contains("/hidden")),
            "{fields}: {received:?}, {answer}"
        );
        // The error is the client's, whichever component detects it.
        assert!(answer.starts_with("HTTP/1.1 400 "), "{fields}: {answer}");
        assert!(received.is_empty() || body.starts_with("0x"), "{fields}: {received:?}");
    }
    // A body that is cut off is rejected too.
    let answered =
        |class: &str| sum(&edge.figures(), "bulla_intercept_edge_request_duration_seconds_count", class);
    let before = answered("4xx");
    let mut tls = world.connect(&edge, "a.example");
    let _ = tls.write_all(b"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 10\r\n\r\nhalf");
    drop(tls);
    until("it is answered", || answered("4xx") > before || answered("5xx") > 0.0);
    assert_eq!(answered("5xx"), 0.0);
    assert_eq!(sum(&edge.figures(), "bulla_intercept_edge_upstream_errors_total", ""), 0.0);
    assert!(world.curl(&edge, "a.example", &[]).contains("GET / "), "and it goes on");
}

#[test]
fn slow_and_oversized_request_heads_are_rejected() {
    let upstream = RecordingServer::start();
    let (world, edge) = world(&upstream.address, "head_timeout_ms = 1000\nkeep_alive_s = 1\n");
    let ends = |what: &str| sum(&edge.figures(), "bulla_intercept_edge_connection_ends_total", what);
    let began = Instant::now();
    for begun in ["", "GET / HT", "GET / HTTP/1.1\r\nHost: a.exa"] {
        let mut tls = world.connect(&edge, "a.example");
        let answer = send_request(&mut tls, begun, "");
        assert!(!answer.contains("200"), "{answer}");
    }
    let mut h2 = world.connect_h2(&edge, "a.example");
    assert_eq!(send_request(&mut h2, "PRI * HTTP/2.0\r\n", ""), "");
    // One read that ends by its own timeout takes this long.
    assert!(began.elapsed() < TIMEOUT, "{:?}", began.elapsed());
    until("all are gone", || sum(&edge.figures(), "bulla_intercept_edge_connections ", "") == 0.0);
    assert!(ends("no-request") >= 2.0, "{}", edge.figures());
    assert!(upstream.received().is_empty());
    // With a short timeout, a stall of this machine would decide whether the next ones get a response.
    drop(edge);
    world.configure(&format!("[edge]\nmode = \"http\"\nupstream = \"{}\"\n", upstream.address));
    let edge = world.edge(&["--config", "edge.toml"]);
    // Too many header lines, or a head that is too large. A client that sends too much may be disconnected before it gets the
    // response.
    for (fields, may_be_cut_off) in
        [("X: 1\r\n".repeat(200), false), (format!("X: {}\r\n", "1".repeat(100_000)), true)]
    {
        let mut tls = world.connect(&edge, "a.example");
        let answer =
            send_request(&mut tls, &format!("GET / HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n"), "");
        assert!(answer.starts_with("HTTP/1.1 431 ") || may_be_cut_off && answer.is_empty(), "{answer}");
    }
    assert!(upstream.received().is_empty());
}

#[test]
fn slow_request_body_times_out_with_408() {
    let upstream = RecordingServer::start();
    let (world, edge) = world(&upstream.address, "idle_s = 1\n");
    let mut tls = world.connect(&edge, "a.example");
    let answer =
        send_request(&mut tls, "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 10\r\n\r\nhalf", "");
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.to_ascii_lowercase().contains("\r\nconnection: close\r\n"), "{answer}");
    assert_eq!(upstream.received().len(), 1);
    until("the upstream is let go of", || upstream.ended() == 1);
    assert_eq!(sum(&edge.figures(), "bulla_intercept_edge_upstream_errors_total", ""), 0.0);
}

#[test]
fn closed_idle_upstream_connections_fail_no_request() {
    let upstream = RecordingServer::start();
    let (world, edge) = world(&upstream.address, "");
    for closed in 1..=20 {
        assert!(world.curl_at(&edge, "a.example/close", &[]).starts_with("GET /close"));
        until("it has closed the connection", || upstream.ended() == closed);
    }
    let statuses = sum(&edge.figures(), "bulla_intercept_edge_request_duration_seconds_count", "2xx");
    assert_eq!(statuses, 20.0);
    // A request without a response is not retried: the upstream may have processed it.
    assert!(world.curl_at(&edge, "a.example/", &[]).starts_with("GET / "));
    let before = upstream.received().len();
    let printed = world.curl_at(&edge, "a.example/broken", &["-XPOST", "-w", "%{http_code}"]);
    assert!(printed.ends_with("502"), "{printed}");
    assert_eq!(upstream.received().len(), before + 1);
    assert_eq!(
        sum(&edge.figures(), "bulla_intercept_edge_upstream_errors_total", "http_response_incomplete"),
        1.0
    );
}

#[test]
fn upstream_failures_return_502_503_or_504_with_the_reason() {
    let upstream = RecordingServer::start();
    let more = "response_timeout_ms = 10000\nupstream_connections_max = 1\n[[edge.routes]]\nnames = [\"b.example\"]\n\
                upstream = \"127.0.0.1:1\"\n";
    let (world, edge) = world(&upstream.address, more);
    let code = ["-w", "%{http_code}", "--http2"];
    let printed = world.curl(&edge, "b.example", &code);
    assert!(
        printed == "bulla proxy: cannot connect to the upstream, or the upstream closed the connection\n502",
        "{printed}"
    );
    let printed = world.curl_at(&edge, "a.example/silent", &code);
    assert!(printed.contains("the upstream did not answer in time") && printed.ends_with("504"), "{printed}");
    let printed = world.curl_at(&edge, "a.example/changed", &code);
    assert!(printed.ends_with("502"), "{printed}");
    // A WebSocket occupies the only upstream connection.
    let mut tls = world.connect(&edge, "a.example");
    let upgrade = "GET /chat HTTP/1.1\r\nHost: a.example\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: \
                 dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
    let answer = send_request(&mut tls, upgrade, "\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
    assert!(
        answer.to_ascii_lowercase().contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="),
        "{answer}"
    );
    let printed = world.curl(&edge, "a.example", &code);
    assert!(
        printed.contains("the maximum number of upstream connections") && printed.ends_with("503"),
        "{printed}"
    );
    assert_eq!(send_request(&mut tls, "to and fro", "to and fro"), "to and fro");
    drop(tls);
    until("the place is free again", || world.curl(&edge, "a.example", &code).ends_with("200"));
    let errors = |why: &str| sum(&edge.figures(), "bulla_intercept_edge_upstream_errors_total", why);
    for why in
        ["connection_refused", "http_response_timeout", "http_protocol_error", "connection_limit_reached"]
    {
        assert!(errors(why) >= 1.0, "{why}");
    }
}

#[test]
fn one_upstream_cannot_use_all_upstream_connections() {
    let (slow, other) = (RecordingServer::start(), RecordingServer::start());
    let more = format!(
        "upstream_connections_max = 2\n[[edge.routes]]\nnames = [\"b.example\"]\nupstream = \"{}\"\n",
        other.address
    );
    let (world, edge) = world(&slow.address, &more);
    let chat = "GET /chat HTTP/1.1\r\nHost: a.example\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    let mut first = world.connect(&edge, "a.example");
    assert!(send_request(&mut first, chat, "\r\n\r\n").starts_with("HTTP/1.1 101 "));
    let mut second = world.connect(&edge, "a.example");
    assert!(send_request(&mut second, chat, "\r\n\r\n").starts_with("HTTP/1.1 503 "), "it has half of them");
    assert!(world.curl(&edge, "b.example", &[]).starts_with("GET / "), "the others are others'");
    // With only one upstream in the routes, that upstream may use all connections.
    world.put("edge.toml", format!("[edge]\nmode = \"http\"\nupstream = \"{}\"\n", slow.address).as_bytes());
    edge.signal("HUP");
    until("all places are its own", || world.curl(&edge, "a.example", &[]).starts_with("GET / "));
}

#[test]
fn large_bodies_pass_both_ways_and_early_responses_are_returned() {
    const SIZE: usize = 24 << 20;
    let upstream = RecordingServer::start();
    let (world, edge) = world(&upstream.address, "");
    std::fs::write(world.fixture.path("large"), vec![b'.'; SIZE]).unwrap();
    for http in ["--http1.1", "--http2"] {
        // curl sends `Expect: 100-continue`, with a length or in chunks.
        for how in ["-HX: 1", "-HTransfer-Encoding: chunked"] {
            let printed = world.curl(&edge, "a.example", &[http, how, "-T", "large"]);
            assert!(printed.ends_with(&format!("octets={SIZE}\n")), "{http} {how}: {printed}");
        }
        // Without a length: curl stops its body early, and with a declared length its HTTP/2 request would be malformed.
        let chunked = [http, "-HTransfer-Encoding: chunked", "-T", "large", "-w", "%{http_code}"];
        let printed = world.curl_at(&edge, "a.example/refused", &chunked);
        assert!(printed.ends_with("no403"), "an answer that comes before the body's end: {printed}");
    }
}

#[test]
fn reloaded_routes_apply_to_open_connections() {
    let (upstream, other) = (RecordingServer::start(), saying("other"));
    let (world, edge) = world(&upstream.address, "");
    let mut tls = world.connect(&edge, "a.example");
    let request = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";
    assert!(exchange(&mut tls, request).contains("GET / "));
    world.put("edge.toml", format!("[edge]\nmode = \"http\"\nupstream = \"{other}\"\n").as_bytes());
    edge.signal("HUP");
    until("the next request goes there", || exchange(&mut tls, request).ends_with("other"));
    // The new mode forwards connections, so the client must reconnect.
    world.put("edge.toml", format!("[edge]\nupstream = \"{other}\"\n").as_bytes());
    edge.signal("HUP");
    until("there is no place for requests", || exchange(&mut tls, request).starts_with("HTTP/1.1 421 "));
    for (wrong, hint) in [
        ("mode = \"http\"\nproxy_protocol = true\n", "mode = \"http\" cannot be combined with"),
        ("mode = \"http\"\nalpn = [\"h3\"]\n", "mode = \"http\" supports only the alpn \""),
        ("mode = \"https\"\n", "mode"),
    ] {
        world.configure(&format!("[edge]\nupstream = \"{other}\"\n{wrong}"));
        let output =
            crate::world::run(&mut world.command(&["--config", "edge.toml", "--certificates", "certs"]));
        assert_eq!(output.status.code(), Some(2), "{wrong}");
        assert!(crate::world::stderr(&output).contains(hint), "{wrong}: {}", crate::world::describe(&output));
    }
}

#[test]
fn each_request_is_logged_and_hup_reopens_the_access_log() {
    let upstream = RecordingServer::start();
    let (world, edge) = world(&upstream.address, "access_log_file = \"access\"\n");
    world.curl_at(&edge, "a.example/path?secret=1", &["--http2", "-d", "body"]);
    let lines = || std::fs::read_to_string(world.fixture.path("access")).unwrap_or_default();
    until("it is written", || lines().ends_with('\n'));
    let line = lines();
    for wanted in [
        "\"client\":\"127.0.0.1\"",
        "\"method\":\"POST\"",
        "\"path\":\"/path\"",
        "\"status\":200",
        "\"octets_up\":4",
        "\"upstream\":\"new\"",
    ] {
        assert!(line.contains(wanted), "{wanted}: {line}");
    }
    std::fs::rename(world.fixture.path("access"), world.fixture.path("access.1")).unwrap();
    edge.signal("HUP");
    until("another file is begun", || world.fixture.path("access").exists());
}
