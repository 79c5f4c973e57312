//! Limits and times that run out: what a client can cost is bounded, and its end gives everything back.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serve::ModelSource;

use crate::client::request;
use crate::harness::{InPieces, LONG, Running};

const INFER: &str = "/v2/models/m/infer";

/// The headers and body of a binary request with this many bytes of tensor.
fn binary(nbytes: usize) -> (String, Vec<u8>) {
    let json = format!(
        r#"{{"inputs":[{{"name":"IN","datatype":"FP32","shape":[1,{}],"parameters":{{"binary_data_size":{nbytes}}}}}],"parameters":{{"binary_data_output":true}}}}"#,
        nbytes / 4
    );
    let length = json.len().to_string();
    (length, [json.into_bytes(), vec![7; nbytes]].concat())
}

#[test]
fn headers_are_bounded() {
    let server = Running::start(|options| {
        options.limits.headers = 10;
        options.limits.head = 2000;
    });
    let get = |headers: &str| format!("GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
    let mut client = server.client();
    client.send(get(&"A: b\r\n".repeat(9)));
    assert_eq!(client.reply().status, 200);
    client.send(get(&"A: b\r\n".repeat(10)));
    assert_eq!(client.reply().status, 431);
    assert!(client.is_closed());
    for long in [
        get(&format!("A: {}\r\n", "b".repeat(2000))),
        format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "a".repeat(2000)),
    ] {
        let mut client = server.client();
        client.send(long);
        let status = client.reply().status;
        assert!(status == 431 || status == 414, "{status}");
        assert!(client.is_closed());
    }
    // Without an end, too.
    let mut client = server.client();
    client.try_send(format!("GET / HTTP/1.1\r\nA: {}", "b".repeat(1 << 20)).as_bytes());
    assert!(client.try_reply().is_none_or(|reply| reply.status == 431));
}

#[test]
fn a_client_that_stops_in_its_headers_is_closed() {
    let server = Running::start(|options| options.timeouts.head = Duration::from_millis(100));
    let mut silent = server.client();
    let mut client = server.client();
    client.send("GET /v2/health/live HT");
    assert!(client.is_closed());
    // A byte now and then is not enough, and the first request does not give the second one more time.
    let mut client = server.client();
    assert_eq!(client.get("/v2/health/live").status, 200);
    while client.try_send(b"A") {
        std::thread::sleep(Duration::from_millis(10));
    }
    // Between requests there is more time.
    assert_eq!(silent.get("/v2/health/live").status, 200);
}

#[test]
fn an_idle_client_is_closed() {
    let server = Running::start(|options| options.timeouts.idle = Duration::from_millis(100));
    assert!(server.client().is_closed());
    // On a busy machine, the time can be over before the request is sent.
    let answered = |_| {
        let mut client = server.client();
        let sent = client.try_send(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let reply = if sent { client.try_reply() } else { None };
        assert!(client.is_closed());
        reply
    };
    assert_eq!((0..100).find_map(answered).expect("one request is in time").status, 200);
}

#[test]
fn a_client_that_stops_in_its_body_is_told() {
    let server = Running::start(|options| options.timeouts.transfer = Duration::from_millis(100));
    let mut client = server.client();
    let (_, body) = binary(400);
    let whole = request(INFER, &[], &body);
    client.send(&whole[..whole.len() - 1]);
    let reply = client.reply();
    assert_eq!((reply.status, reply.header("connection")), (408, Some("close")));
    assert!(client.is_closed());
    // The same for a body that nobody reads.
    let mut client = server.client();
    let whole = request("/v2/models/none/infer", &[], &body);
    client.send(&whole[..whole.len() - 1]);
    assert_eq!(client.reply().status, 404);
    assert!(client.is_closed());
}

#[test]
fn a_client_that_does_not_read_is_closed() {
    let server = Running::start(|options| options.timeouts.transfer = Duration::from_millis(100));
    let (length, body) = binary(32 << 20);
    let whole = request(INFER, &[("Inference-Header-Content-Length", &length)], &body);
    // On a busy machine, the time can be over before the body is sent.
    let answered = |_| {
        let mut client = server.client();
        client.try_send(&whole);
        server.wait_for("request POST").contains("Some(200)").then_some(client)
    };
    let _client = (0..100).find_map(answered).expect("one request is in time");
    // The server ends only when the response was read, or given up.
    server.handle.shut_down();
    assert_eq!(server.join().unfinished, 0);
}

#[test]
fn memory_is_bounded_over_all_requests_and_given_back() {
    let (server, gate) = Running::with_gate(|options| options.limits.memory = 1 << 20);
    let (length, body) = binary(700_000);
    let headers = [("Inference-Header-Content-Length", length.as_str())];
    let mut first = server.client();
    first.send(request(INFER, &headers, &body));
    gate.called();
    let mut second = server.client();
    let reply = second.post(INFER, &headers, &body);
    assert_eq!(reply.status, 503, "{reply:?}");
    assert!(reply.error().contains("1048576 bytes"), "{reply:?}");
    gate.release_model();
    // The input and the output are the same bytes, but both count.
    assert_eq!(first.reply().status, 503);
    let (length, body) = binary(300_000);
    let headers = [("Inference-Header-Content-Length", length.as_str())];
    for _ in 0..20 {
        second.send(request(INFER, &headers, &body));
        gate.called();
        gate.release_model();
        let reply = second.reply();
        assert_eq!((reply.status, reply.body.len() > 300_000), (200, true), "{reply:?}");
    }
    // What clients leave behind is given back, too.
    for _ in 0..20 {
        let mut client = server.client();
        client.send(request(INFER, &headers, &body));
        gate.called();
        drop(client);
        gate.cancelled();
    }
    second.send(request(INFER, &headers, &body));
    gate.called();
    gate.release_model();
    assert_eq!(second.reply().status, 200);
}

#[test]
fn a_body_is_not_believed_before_it_arrives() {
    let server = Running::start(|options| options.limits.memory = 10 << 20);
    let claims: Vec<_> = (0..30)
        .map(|_| {
            let mut client = server.client();
            client.send(format!(
                "POST {INFER} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000000\r\n\r\n"
            ));
            client
        })
        .collect();
    let (length, body) = binary(1000);
    let reply = server.client().post(INFER, &[("Inference-Header-Content-Length", &length)], &body);
    assert_eq!(reply.status, 200);
    drop(claims);
}

#[test]
fn idle_connections_make_room() {
    let server = Running::start(|options| options.limits.connections = 2);
    let (mut first, mut second) = (server.client(), server.client());
    assert_eq!(first.get("/v2/health/live").status, 200);
    assert_eq!(second.get("/v2/health/live").status, 200);
    for _ in 0..3 {
        assert_eq!(server.client().get("/v2/health/live").status, 200);
    }
}

#[test]
fn a_busy_connection_is_not_closed_to_make_room() {
    let (server, gate) = Running::with_gate(|options| options.limits.connections = 1);
    let mut first = server.client();
    let (length, body) = binary(4);
    first.send(request(INFER, &[("Inference-Header-Content-Length", &length)], &body));
    gate.called();
    let mut second = server.client();
    second.send("GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n");
    gate.release_model();
    assert_eq!(first.reply().status, 200);
    assert_eq!(second.reply().status, 200);
}

#[test]
fn a_connection_whose_request_arrives_is_not_closed_to_make_room() {
    let server = Running::start(|options| options.limits.connections = 1);
    let mut first = server.client();
    first.send("GET /v2/health/live HTTP/1.1\r\nHo");
    let mut second = server.client();
    second.send("GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n");
    // The server looks for room at once.
    std::thread::sleep(Duration::from_millis(100));
    first.send("st: localhost\r\n\r\n");
    assert_eq!(first.reply().status, 200);
    assert_eq!(second.reply().status, 200);
}

/// A request for as many numbers as its length says.
fn numbers(count: usize) -> Vec<u8> {
    let (length, body) = binary(count.saturating_mul(4));
    request(INFER, &[("Inference-Header-Content-Length", &length)], &body)
}

#[test]
fn a_short_request_runs_between_the_pieces_of_a_long_one() {
    let ((pieces, ran), (release, release_signal)) = (channel(), channel());
    let model = InPieces { pieces, release_signal: Mutex::new(release_signal) };
    let models = ModelSource::Fixed(vec![("m".to_owned(), Arc::new(model))]);
    let server = Running::with_models(models, |_| {});
    let piece = || ran.recv_timeout(LONG).expect("a piece runs");
    let go_on = || release.send(()).expect("the model waits");
    let mut long = server.client();
    long.send(numbers(4));
    assert_eq!(piece(), 4);
    // The long request has started. Another long one and a short one wait.
    let (mut other, mut short) = (server.client(), server.client());
    other.send(numbers(2));
    server.wait_until_waiting(1);
    short.send(numbers(1));
    server.wait_until_waiting(2);
    go_on();
    assert_eq!(piece(), 1);
    go_on();
    assert_eq!(short.reply().status, 200);
    for _ in 0..3 {
        assert_eq!(piece(), 4);
        go_on();
    }
    assert_eq!(long.reply().status, 200);
    // When a client has left, its computation stops and the next request runs.
    assert_eq!(piece(), 2);
    drop(other);
    server.wait_for("request POST");
    server.wait_for("request POST");
    server.wait_for("None");
    short.send(numbers(1));
    server.wait_until_waiting(1);
    go_on();
    assert_eq!(piece(), 1);
    go_on();
    assert_eq!(short.reply().status, 200);
}

#[test]
fn a_client_that_left_leaves_the_queue() {
    let (server, gate) = Running::with_gate(|options| options.limits.queue = 1);
    let mut first = server.client();
    first.send(numbers(1));
    gate.called();
    let mut second = server.client();
    second.send(numbers(1));
    server.wait_until_waiting(1);
    let mut third = server.client();
    third.send(numbers(1));
    assert_eq!(third.reply().status, 503, "the queue is full");
    drop(second);
    server.wait_until_waiting(0);
    third.send(numbers(1));
    server.wait_until_waiting(1);
    gate.release_model();
    assert_eq!(first.reply().status, 200);
    gate.called();
    gate.release_model();
    assert_eq!(third.reply().status, 200);
    assert!(!gate.was_called(), "nothing else ran");
}

#[test]
fn a_request_may_compute_for_a_time() {
    let (server, gate) = Running::with_gate(|options| options.timeouts.compute = Duration::from_millis(100));
    let mut client = server.client();
    client.send(numbers(1));
    gate.called();
    gate.cancelled();
    let reply = client.reply();
    assert_eq!(reply.status, 503);
    let expected =
        "model `m` computed for 0.1 s, which is the most that a request may take; send fewer tokens";
    assert!(String::from_utf8_lossy(&reply.body).contains(expected), "{:?}", reply.body);
    // The time in the queue does not count, and the next request has its own time.
    client.send(numbers(1));
    gate.called();
    gate.release_model();
    assert_eq!(client.reply().status, 200);
}

#[test]
fn outputs_in_json_are_bounded_and_binary_ones_are_not() {
    let server = Running::start(|options| options.limits.json = 8);
    let mut client = server.client();
    let mut ask = |count: usize, binary: bool| {
        let data = vec!["1"; count].join(",");
        let body = format!(
            r#"{{"inputs":[{{"name":"IN","datatype":"FP32","shape":[1,{count}],"data":[{data}]}}],"parameters":{{"binary_data_output":{binary}}}}}"#
        );
        client.post(INFER, &[("Accept-Encoding", "gzip")], body.as_bytes())
    };
    for count in [1, 2] {
        assert_eq!(ask(count, false).status, 200, "{count}");
    }
    for count in [3, 4] {
        let reply = ask(count, false);
        assert_eq!(reply.status, 400, "{reply:?}");
        assert!(reply.error().contains("8 are allowed"), "{reply:?}");
    }
    let reply = ask(4, true);
    assert_eq!((reply.status, reply.header("content-encoding")), (200, None), "too large to compress");
}

#[test]
fn a_body_may_have_as_many_bytes_as_the_limit() {
    let body = r#"{"inputs":[{"name":"IN","datatype":"FP32","shape":[1,1],"data":[1]}]}"#;
    let server = Running::start(|options| options.limits.body = body.len());
    let mut client = server.client();
    assert_eq!(client.post(INFER, &[], body.as_bytes()).status, 200);
    assert_eq!(client.post(INFER, &[], format!("{body} ").as_bytes()).status, 400);
}
