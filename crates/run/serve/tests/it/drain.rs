//! The end of a server: requests that it has are answered, others are refused.

use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use serve::{ModelSource, ServeOptions, Server};

use crate::client::{Client, request};
use crate::harness::{Echo, Running};

fn infer() -> Vec<u8> {
    let body = br#"{"inputs":[{"name":"IN","datatype":"FP32","shape":[1,1],"data":[5]}]}"#;
    request("/v2/models/m/infer", &[], body)
}

#[test]
fn requests_in_flight_are_answered() {
    let (server, gate) = Running::with_gate(|_| {});
    let mut running = server.client();
    running.send(infer());
    gate.called();
    let mut clients = [server.client(), server.client(), server.client(), server.client()];
    for client in &mut clients {
        assert_eq!(client.get("/v2/health/ready").status, 200);
    }
    let mut idle = server.client();
    assert_eq!(idle.get("/v2/health/live").status, 200);

    server.handle.shut_down();
    let event = server.wait_for("Draining");
    assert!(event.contains("requests: 1"), "{event}");
    let [ready, model, live, late] = &mut clients;
    let reply = ready.get("/v2/health/ready");
    assert_eq!((reply.status, reply.header("connection")), (400, Some("close")));
    let reply = model.get("/v2/models/m/ready");
    assert_eq!((reply.status, reply.error().as_str()), (400, "the server is shutting down"));
    assert_eq!(live.get("/v2/health/live").status, 200);
    late.send(infer());
    let reply = late.reply();
    assert_eq!((reply.status, reply.error().as_str()), (503, "the server is shutting down"));
    // New connections are refused, as soon as the server has closed its socket.
    while TcpStream::connect(server.address).is_ok() {
        std::thread::yield_now();
    }

    gate.release_model();
    let reply = running.reply();
    assert_eq!(reply.status, 200);
    assert_eq!(reply.json()["outputs"][0]["data"][0], 5.0);
    assert!(running.is_closed());
    assert!(idle.is_closed());
    assert_eq!(server.join().unfinished, 0);
}

#[test]
fn a_connection_that_waits_in_the_system_is_answered() {
    let models = ModelSource::Fixed(vec![("m".to_owned(), Arc::new(Echo))]);
    let options = ServeOptions { port: 0, ..ServeOptions::default() };
    let server = Server::new(&options, models, Arc::new(())).expect("it starts");
    let mut client = Client::connect(server.address());
    client.send("GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n");
    server.handle().shut_down();
    assert_eq!(server.run().unfinished, 0);
    let reply = client.reply();
    assert_eq!((reply.status, reply.header("connection")), (200, Some("close")));
}

#[test]
fn a_request_may_not_delay_the_end_for_ever() {
    let (server, gate) = Running::with_gate(|options| options.timeouts.drain = Duration::from_millis(100));
    let mut running = server.client();
    running.send(infer());
    gate.called();
    server.handle.shut_down();
    assert_eq!(server.join().unfinished, 1);
    assert!(running.is_closed());
    // The model is told, so that its thread ends as well.
    gate.cancelled();
}

#[test]
fn clients_without_a_request_do_not_delay_the_end() {
    let server = Running::start(|_| {});
    let mut silent = server.client();
    let mut partial = server.client();
    partial.send("GET /v2/hea");
    assert_eq!(server.client().get("/v2/health/live").status, 200);
    server.handle.shut_down();
    assert_eq!(server.join().unfinished, 0);
    assert!(silent.is_closed());
    assert!(partial.is_closed());
}
