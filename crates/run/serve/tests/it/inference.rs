//! Inference: one request after the other, bounded queues, panics, clients that go away, and what is counted.

use crate::client::{Client, Reply, request};
use crate::harness::Running;

const INFER: &str = "/v2/models/m/infer";

fn body(parameters: &str) -> Vec<u8> {
    format!(
        r#"{{"parameters":{{{parameters}}},"inputs":[{{"name":"IN","datatype":"FP32","shape":[3,1],"data":[1,2,3]}}]}}"#
    )
    .into_bytes()
}

/// A request for the model with a gate.
fn gated() -> Vec<u8> {
    let body = br#"{"inputs":[{"name":"IN","datatype":"FP32","shape":[1,1],"data":[1]}]}"#;
    request(INFER, &[], body)
}

fn metric(client: &mut Client, name: &str) -> u64 {
    let text = String::from_utf8(client.get("/metrics").body).expect("text");
    let line = text
        .lines()
        .find(|line| line.starts_with(&format!("{name}{{")) || line.starts_with(&format!("{name} ")));
    let value = line.and_then(|line| line.rsplit(' ').next()).unwrap_or_else(|| panic!("{name} in {text}"));
    value.parse().expect("a number")
}

fn failures(client: &mut Client, reason: &str) -> u64 {
    let text = String::from_utf8(client.get("/metrics").body).expect("text");
    let start = format!(r#"nv_inference_request_failure{{model="m",version="1",reason="{reason}"}} "#);
    let line = text.lines().find_map(|line| line.strip_prefix(&start));
    line.unwrap_or_else(|| panic!("{start} in {text}")).parse().expect("a number")
}

#[test]
fn a_panic_is_one_answer() {
    let server = Running::start(|_| {});
    let mut client = server.client();
    for _ in 0..3 {
        let reply = client.post(INFER, &[], &body(r#""panic":true"#));
        assert_eq!(reply.status, 500);
        assert_eq!(reply.error(), "model `m` panicked: as the client wishes");
        assert_eq!(client.post(INFER, &[], &body("")).status, 200);
    }
    assert_eq!(failures(&mut client, "BACKEND"), 3);
}

#[test]
fn what_a_model_answers_badly() {
    let server = Running::start(|_| {});
    let mut client = server.client();
    let mut ask = |what: &str| -> (u16, String) {
        let reply: Reply = client.post(INFER, &[], &body(&format!("{what:?}:true")));
        (reply.status, reply.error())
    };
    assert_eq!(ask("fail"), (500, "out of luck".to_owned()));
    assert_eq!(ask("refuse"), (400, "too many tokens".to_owned()));
    assert_eq!(ask("stop"), (503, "the request was cancelled".to_owned()), "it did not run out of time");
    assert_eq!(ask("nothing"), (500, "model `m` did not return its output `OUT`".to_owned()));
}

#[test]
fn a_full_queue_refuses_and_loses_nothing() {
    let (server, gate) = Running::with_gate(|options| options.limits.queue = 2);
    let mut running = server.client();
    running.send(gated());
    gate.called();
    let mut queued = [server.client(), server.client()];
    for client in &mut queued {
        client.send(gated());
    }
    let mut other = server.client();
    while metric(&mut other, "nv_inference_pending_request_count") < 2 {}
    let reply = {
        other.send(gated());
        other.reply()
    };
    assert_eq!(reply.status, 503);
    assert!(reply.error().contains("busy"), "{reply:?}");
    assert_eq!(failures(&mut other, "REJECTED"), 1);
    for _ in 0..3 {
        gate.release_model();
    }
    assert_eq!(running.reply().status, 200);
    for client in &mut queued {
        assert_eq!(client.reply().status, 200);
    }
    assert_eq!(metric(&mut other, "nv_inference_pending_request_count"), 0);
    assert_eq!(metric(&mut other, "nv_inference_request_success"), 3);
}

#[test]
fn a_client_that_goes_away_stops_its_work() {
    let (server, gate) = Running::with_gate(|_| {});
    let mut running = server.client();
    running.send(gated());
    gate.called();
    let mut queued = server.client();
    queued.send(gated());
    let mut other = server.client();
    while metric(&mut other, "nv_inference_pending_request_count") < 1 {}
    // What was queued is never run, and what runs is told.
    drop(queued);
    while failures(&mut other, "CANCELED") < 1 {}
    drop(running);
    gate.cancelled();
    while failures(&mut other, "CANCELED") < 2 {}
    other.send(gated());
    gate.called();
    gate.release_model();
    assert_eq!(other.reply().status, 200);
    assert!(!gate.was_called());
}

#[test]
fn a_body_that_breaks_off_is_counted_as_one_of_a_client_that_went_away() {
    let server = Running::start(|_| {});
    let mut broken = server.client();
    broken.send(format!(
        "POST {INFER} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
    ));
    let reply = broken.try_reply();
    assert!(reply.is_none_or(|reply| reply.status == 400) && broken.is_closed());
    let mut client = server.client();
    assert_eq!(["CANCELED", "OTHER"].map(|reason| failures(&mut client, reason)), [1, 0]);
}

#[test]
fn everything_is_counted() {
    let server = Running::start(|_| {});
    let mut client = server.client();
    for _ in 0..4 {
        assert_eq!(client.post(INFER, &[], &body("")).status, 200);
    }
    assert_eq!(client.post(INFER, &[], b"{}").status, 400);
    // A batch of three counts three times.
    assert_eq!(metric(&mut client, "nv_inference_request_success"), 4);
    assert_eq!(metric(&mut client, "nv_inference_count"), 12);
    assert_eq!(metric(&mut client, "nv_inference_exec_count"), 4);
    assert_eq!(failures(&mut client, "OTHER"), 1);
    for name in ["request", "queue", "compute_input", "compute_infer", "compute_output"] {
        metric(&mut client, &format!("nv_inference_{name}_duration_us"));
    }
    for path in ["/v2/models/stats", "/v2/models/m/stats", "/v2/models/m/versions/1/stats"] {
        let statistics = client.get(path).json();
        let model = &statistics["model_stats"][0];
        assert_eq!((model["name"].as_str(), model["version"].as_str()), (Some("m"), Some("1")), "{path}");
        assert_eq!(model["inference_count"], 12);
        assert_eq!(model["execution_count"], 4);
        assert_eq!(model["inference_stats"]["success"]["count"], 4);
        assert_eq!(model["inference_stats"]["fail"]["count"], 1);
        for part in ["queue", "compute_input", "compute_infer", "compute_output"] {
            assert_eq!(model["inference_stats"][part]["count"], 4, "{part}");
        }
    }
}

#[test]
fn a_thousand_clients_get_their_own_answers() {
    let server = Running::start(|_| {});
    std::thread::scope(|scope| {
        for worker in 0..50 {
            let mut client = server.client();
            scope.spawn(move || {
                for request in 0..20 {
                    let number = worker * 20 + request;
                    let body = format!(
                        r#"{{"id":"{number}","inputs":[{{"name":"IN","datatype":"FP32","shape":[1,1],"data":[{number}]}}]}}"#
                    );
                    let reply = client.post(INFER, &[], body.as_bytes());
                    assert_eq!(reply.json()["id"], number.to_string());
                    assert_eq!(reply.json()["outputs"][0]["data"][0], f64::from(number));
                }
            });
        }
    });
    assert_eq!(metric(&mut server.client(), "nv_inference_request_success"), 1000);
}
