//! HTTP: routes, methods, encodings, chunks, 100-continue, pipelining and keep-alive.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};

use crate::client::{Client, request};
use crate::harness::Running;

const INFER: &str = "/v2/models/m/infer";
const BODY: &[u8] = br#"{"inputs":[{"name":"IN","datatype":"FP32","shape":[1,2],"data":[1.5,-2]}]}"#;

fn assert_answered(reply: &crate::client::Reply) {
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(reply.json()["outputs"][0]["data"], serde_json::json!([1.5, -2.0]));
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

#[test]
fn one_connection_asks_everything_and_survives_every_error() {
    let server = Running::start(|options| options.limits.body = 10_000);
    let mut client = server.client();
    for path in ["/v2/health/live", "/v2/health/ready", "/v2/models/m/ready", "/v2/models/m/versions/1/ready"]
    {
        let reply = client.get(path);
        assert_eq!((reply.status, reply.body.len()), (200, 0), "{path}");
    }
    let metadata = client.get("/v2").json();
    let extensions = metadata["extensions"].as_array().expect("a list");
    assert!(extensions.contains(&"binary_tensor_data".into()), "{metadata}");
    let metadata = client.get("/v2/models/m").json();
    assert_eq!(metadata["name"], "m");
    assert_eq!(metadata["versions"], serde_json::json!(["1"]));
    assert_eq!(metadata["inputs"][0]["shape"], serde_json::json!([-1, -1]));
    let config = client.get("/v2/models/m/versions/1/config").json();
    assert_eq!((config["name"].as_str(), config["max_batch_size"].as_i64()), (Some("m"), Some(4)));

    for (path, status) in [
        ("//", 404),
        ("/v2/", 404),
        ("/generate", 404),
        ("/v2/models/none", 404),
        ("/v2/models/none/config", 404),
        ("/v2/models/m/versions/2", 404),
        ("/v2/models/m/versions/01", 404),
        ("/v2/models/m/versions/01/ready", 404),
        ("/v2/models/m/versions/01/stats", 404),
        ("/v2/models/m/versions/99999999999999999999", 404),
        ("/v2/models/none/ready", 400),
        ("/v2/models/none/stats", 400),
        ("/v2/models/m/versions/2/stats", 400),
        ("/v2/models/m/infer", 405),
    ] {
        let reply = client.get(path);
        assert_eq!(reply.status, status, "{path}");
        assert!(!reply.error().is_empty(), "{path}");
    }
    let reply = client.get(INFER);
    assert_eq!((reply.status, reply.header("allow")), (405, Some("POST")));
    let reply = client.post("/v2", &[], b"anything");
    assert_eq!((reply.status, reply.header("allow")), (405, Some("GET")));

    for (headers, body, status) in [
        (&[][..], &b""[..], 400),
        (&[], b"{", 400),
        (&[], b"{}", 400),
        (&[], &[b' '; 10_001], 400),
        (&[("Content-Encoding", "br")], BODY, 501),
        (&[("Content-Encoding", "gzip"), ("Content-Encoding", "gzip")], BODY, 501),
        (&[("Content-Encoding", "gzip")], BODY, 400),
        (&[("Content-Encoding", "deflate")], b"", 400),
        (&[("Inference-Header-Content-Length", "-1")], BODY, 400),
        (&[("Inference-Header-Content-Length", "9999")], BODY, 400),
        (&[("Inference-Header-Content-Length", "1"), ("Inference-Header-Content-Length", "2")], BODY, 400),
        (&[("Origin", "https://example.com")], BODY, 403),
        (&[("Sec-Fetch-Site", "cross-site")], BODY, 403),
    ] {
        let reply = client.post(INFER, headers, body);
        assert_eq!(reply.status, status, "{headers:?}: {reply:?}");
        assert!(!reply.error().is_empty());
    }
    let reply = client.post(INFER, &[("Content-Encoding", "zstd")], BODY);
    assert_eq!(reply.header("accept-encoding"), Some("gzip, deflate"));
    let reply = client.post("/v2/models/none/infer", &[], BODY);
    assert_eq!(reply.status, 404);
    assert_answered(&client.post(INFER, &[], BODY));
    assert_answered(&client.post("/v2/models/m/versions/1/infer", &[], BODY));
}

#[test]
fn compressed_bodies_come_and_go() {
    let server = Running::start(|options| options.limits.body = 1_000_000);
    let mut client = server.client();
    assert_answered(&client.post(INFER, &[("Content-Encoding", "gzip")], &gzip(BODY)));
    assert_answered(&client.post(INFER, &[("Content-Encoding", "deflate")], &zlib(BODY)));

    let reply = client.post(INFER, &[("Accept-Encoding", "gzip;q=0.2, deflate;q=0.1")], BODY);
    assert_eq!(reply.header("content-encoding"), Some("gzip"));
    let mut text = Vec::new();
    std::io::copy(&mut flate2::read::GzDecoder::new(&reply.body[..]), &mut text).expect("gzip");
    let plain = client.post(INFER, &[("Accept-Encoding", "gzip;q=0")], BODY);
    assert_eq!(plain.header("content-encoding"), None);
    assert_eq!(text, plain.body);
    let reply = client.post(INFER, &[("Accept-Encoding", "deflate")], BODY);
    assert_eq!(reply.header("content-encoding"), Some("deflate"));
    let mut text = Vec::new();
    std::io::copy(&mut flate2::read::ZlibDecoder::new(&reply.body[..]), &mut text).expect("zlib");
    assert_eq!(text, plain.body);

    // A small body that would be larger than allowed.
    for (name, bomb) in [("gzip", gzip(&vec![b' '; 1_000_001])), ("deflate", zlib(&vec![b' '; 1_000_001]))] {
        assert!(bomb.len() < 10_000);
        let reply = client.post(INFER, &[("Content-Encoding", name)], &bomb);
        assert_eq!(reply.status, 400);
        assert!(reply.error().contains("decompressed body is larger than the 1000000 bytes"), "{reply:?}");
    }
    let cut = gzip(BODY);
    let reply = client.post(INFER, &[("Content-Encoding", "gzip")], &cut[..cut.len() - 3]);
    assert_eq!(reply.status, 400);
    assert_answered(&client.post(INFER, &[], BODY));
}

#[test]
fn bodies_in_chunks() {
    let server = Running::start(|options| options.limits.body = 1000);
    let mut client = server.client();
    let head = format!("POST {INFER} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send(&head);
    for byte in BODY {
        client.send([b"1\r\n", &[*byte][..], b"\r\n"].concat());
    }
    client.send("0\r\n\r\n");
    assert_answered(&client.reply());

    client.send(&head);
    for _ in 0..11 {
        client.send(format!("64\r\n{}\r\n", " ".repeat(100)));
    }
    client.send("0\r\n\r\n");
    let reply = client.reply();
    assert_eq!(reply.status, 400);
    assert!(reply.error().contains("larger than the 1000 bytes"), "{reply:?}");
    assert_answered(&client.post(INFER, &[], BODY));

    client.send(head.replace("chunked", "gzip, chunked"));
    client.send("0\r\n\r\n");
    assert_eq!(client.reply().status, 501);

    // Nothing that is not a chunk ends a body, so the connection ends.
    client.send(format!("{head}zz\r\n"));
    let reply = client.try_reply();
    assert!(reply.is_none_or(|reply| reply.status == 400));
    assert!(client.is_closed());
}

#[test]
fn a_client_may_ask_before_it_sends_a_body() {
    let server = Running::start(|options| options.limits.body = 1000);
    let mut client = server.client();
    let head = |path: &str, length: usize| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\nExpect: 100-continue\r\n\r\n"
        )
    };
    client.send(head(INFER, BODY.len()));
    assert_eq!(client.reply().status, 100);
    client.send(BODY);
    assert_answered(&client.reply());
    // The body is refused before it is sent.
    client.send(head(INFER, 1001));
    let reply = client.reply();
    assert_eq!((reply.status, reply.header("connection")), (400, Some("close")));
    assert!(client.is_closed());
    let mut client = server.client();
    client.send(head("/v2/models/none/infer", BODY.len()));
    assert_eq!(client.reply().status, 404);
}

#[test]
fn requests_in_one_packet_are_answered_in_order() {
    let server = Running::start(|_| {});
    let mut client = server.client();
    let mut bytes = Vec::new();
    for id in 0..20 {
        let body = format!(
            r#"{{"id":"{id}","inputs":[{{"name":"IN","datatype":"FP32","shape":[1,1],"data":[{id}]}}]}}"#
        );
        bytes.extend(request(INFER, &[], body.as_bytes()));
        bytes.extend(b"GET /v2/models/none HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
    client.send(bytes);
    for id in 0..20 {
        let reply = client.reply();
        assert_eq!(reply.json()["id"], id.to_string());
        assert_eq!(reply.json()["outputs"][0]["data"][0], f64::from(id));
        assert_eq!(client.reply().status, 404);
    }
}

#[test]
fn old_clients_and_the_last_request_close_the_connection() {
    let server = Running::start(|_| {});
    let mut client = server.client();
    client.send("GET /v2/health/live HTTP/1.0\r\n\r\n");
    assert_eq!(client.reply().status, 200);
    assert!(client.is_closed());
    let mut client = server.client();
    client.send("GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert_eq!(client.reply().status, 200);
    assert!(client.is_closed());
}

#[test]
fn what_is_not_http_is_refused() {
    let server = Running::start(|_| {});
    for bytes in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        b"GET\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost t\r\n\r\n",
        b"POST /v2/models/m/infer HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"POST /v2/models/m/infer HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let mut client = server.client();
        client.send(bytes);
        client.finish_sending();
        let status = client.try_reply().map(|reply| reply.status);
        assert!(status.is_none_or(|status| status == 400), "{bytes:?}: {status:?}");
        assert!(client.is_closed());
    }
    assert_eq!(Client::connect(server.address).get("/v2/health/live").status, 200);
}
