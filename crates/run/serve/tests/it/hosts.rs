//! The `Host` and `Expect` headers, on every route.

use std::sync::Arc;

use serve::{Error, ModelSource, ServeOptions, Server};

use crate::harness::Running;

/// A request to each route, as method and path.
const ROUTES: &[(&str, &str)] = &[
    ("GET", "/v2"),
    ("GET", "/v2/health/live"),
    ("GET", "/v2/health/ready"),
    ("GET", "/metrics"),
    ("GET", "/v2/models/stats"),
    ("GET", "/v2/models/m"),
    ("GET", "/v2/models/m/ready"),
    ("GET", "/v2/models/m/config"),
    ("GET", "/v2/models/m/versions/1/stats"),
    ("POST", "/v2/models/m/infer"),
    ("POST", "/v2/repository/index"),
    ("POST", "/v2/repository/models/m/load"),
    ("POST", "/v2/repository/models/m/unload"),
    ("GET", "/nothing"),
    ("DELETE", "/v2"),
    ("OPTIONS", "*"),
];

#[test]
fn a_page_that_resolves_its_name_to_this_machine_reads_nothing() {
    let server = Running::start(|_| {});
    let mut client = server.client();
    for (method, path) in ROUTES {
        for (hosts, status) in [
            ("Host: evil.example\r\n", 403),
            ("Host: evil.example:8000\r\n", 403),
            ("Host: localhost.evil.example\r\n", 403),
            ("Host:\r\n", 403),
            ("", 400),
            ("Host: localhost\r\nHost: localhost\r\n", 400),
            ("Host: localhost\r\nhost: evil.example\r\n", 400),
        ] {
            client.send(format!("{method} {path} HTTP/1.1\r\n{hosts}Content-Length: 0\r\n\r\n"));
            let reply = client.reply();
            assert_eq!(reply.status, status, "{method} {path} {hosts}");
            assert!(!reply.error().is_empty());
        }
    }
    // The connection is still good.
    assert_eq!(client.get("/v2/health/live").status, 200);
}

#[test]
fn addresses_localhost_and_listed_names_are_answered() {
    let server = Running::start(|options| options.allowed_hosts = vec!["models.example".to_owned()]);
    let mut client = server.client();
    let own = server.address.to_string();
    for host in [own.as_str(), "LocalHost:1", "[::1]:8000", "192.168.1.2", "Models.Example.:80"] {
        client.send(format!("GET /v2 HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(client.reply().status, 200, "{host}");
    }
    client.send("GET /v2 HTTP/1.1\r\nHost: www.models.example\r\n\r\n");
    let reply = client.reply();
    assert_eq!(reply.status, 403);
    assert!(reply.error().starts_with("the host `www.models.example` is not one of this server's names: "));
}

#[test]
fn a_whole_url_as_target_is_checked_as_well() {
    let server = Running::start(|_| {});
    let mut client = server.client();
    for (target, host, status) in [
        ("http://localhost:8000/v2", "localhost", 200),
        ("http://[::1]/v2", "127.0.0.1", 200),
        ("http://evil.example/v2", "localhost", 403),
        ("http://localhost/v2", "evil.example", 403),
        ("https://evil.example:8000/metrics", "127.0.0.1", 403),
        ("http://localhost@evil.example/v2", "localhost", 403),
    ] {
        client.send(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(client.reply().status, status, "{target} {host}");
    }
    client.send("GET http://localhost/v2 HTTP/1.1\r\n\r\n");
    assert_eq!(client.reply().status, 400);
}

#[test]
fn an_old_client_may_leave_the_host_out() {
    let server = Running::start(|_| {});
    for (hosts, status) in [
        ("", 200),
        ("Host: localhost\r\n", 200),
        ("Host: evil.example\r\n", 403),
        ("Host: localhost\r\nHost: localhost\r\n", 400),
    ] {
        let mut client = server.client();
        client.send(format!("GET /metrics HTTP/1.0\r\n{hosts}\r\n"));
        assert_eq!(client.reply().status, status, "{hosts}");
    }
    let mut client = server.client();
    client.send("GET http://evil.example/metrics HTTP/1.0\r\n\r\n");
    assert_eq!(client.reply().status, 403);
}

#[test]
fn an_unknown_expectation_is_refused() {
    let server = Running::start(|_| {});
    let mut client = server.client();
    for (method, path) in ROUTES {
        for expectation in ["foo", "100-continue, foo", "100-continue=1", "101-continue"] {
            let mut client = server.client();
            client.send(format!(
                "{method} {path} HTTP/1.1\r\nHost: localhost\r\nExpect: {expectation}\r\n\r\n"
            ));
            let reply = client.reply();
            assert_eq!(reply.status, 417, "{method} {path} {expectation}");
            assert!(!reply.error().is_empty());
        }
    }
    let two = "GET /v2 HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nExpect: foo\r\n\r\n";
    client.send(two);
    assert_eq!(client.reply().status, 417);
    // The body of a refused request is skipped, and the connection is still good.
    client.send(
        "POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost\r\nExpect: foo\r\nContent-Length: 3\r\n\r\nabc",
    );
    assert_eq!(client.reply().status, 417);
    client.send("GET /v2 HTTP/1.1\r\nHost: localhost\r\nExpect: 100-Continue\r\n\r\n");
    assert_eq!(client.reply().status, 200);
}

#[test]
fn a_server_does_not_start_with_an_allowed_host_that_is_not_a_name() {
    let options = ServeOptions { port: 0, allowed_hosts: vec!["a:80".to_owned()], ..ServeOptions::default() };
    let error = Server::new(&options, ModelSource::Fixed(vec![]), Arc::new(())).expect_err("a port");
    assert!(matches!(&error, Error::HostName { name } if name == "a:80"), "{error}");
    assert!(error.to_string().starts_with("`a:80` is not a host name: "), "{error}");
}
