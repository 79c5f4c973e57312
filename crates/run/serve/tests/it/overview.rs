//! What the server tells a newcomer: its routes, what is at a path that does not exist, its metrics.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;
use serve::{InferModel, ModelSource};

use crate::harness::{Echo, Running};

const INFER: &str = "/v2/models/m/infer";
const BODY: &[u8] = br#"{"inputs":[{"name":"IN","datatype":"FP32","shape":[1,1],"data":[1]}]}"#;

#[test]
fn the_root_lists_routes_and_models() {
    let server = Running::start(|_| {});
    let mut client = server.client();
    let reply = client.get("/");
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")));
    let overview = reply.json();
    assert_eq!(overview["models"], json!([{"name": "m", "version": "1"}]));
    let routes: Vec<(&str, &str)> = overview["routes"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|route| (route["method"].as_str().expect("a text"), route["path"].as_str().expect("a text")))
        .collect();
    assert!(routes.contains(&("POST", "/v2/models/{model}/infer")), "{routes:?}");
    assert!(!routes.iter().any(|(_, path)| path.ends_with("/unload")), "there is no repository: {routes:?}");
    for (method, path) in routes.into_iter().filter(|(method, _)| *method == "GET") {
        if path == "/v1/models/{model}" {
            // The model generates no texts.
            continue;
        }
        let path = path.replace("{model}", "m");
        assert_eq!(client.get(&path).status, 200, "{method} {path}");
    }
}

#[test]
fn a_path_of_another_protocol_is_answered_with_what_exists() {
    let server = Running::start(|_| {});
    let mut client = server.client();
    for path in ["/generate", "/api/generate", "/v2/x", "/favicon.ico"] {
        for reply in [client.get(path), client.post(path, &[], b"{}")] {
            assert_eq!(reply.status, 404, "{path}");
            assert_eq!(
                reply.error(),
                format!(
                    "there is nothing at `{path}`: this server speaks KServe v2, where POST /v2/models/m/infer takes tensors \
                     and returns tensors, and OpenAI's protocol, where POST /v1/completions continues texts. GET / lists the \
                     routes and the models"
                )
            );
        }
    }
    let several = ["a", "b"].map(|name| (name.to_owned(), Arc::new(Echo) as Arc<dyn InferModel>));
    let server = Running::with_models(ModelSource::Fixed(several.into()), |_| {});
    let error = server.client().get("/generate").error();
    assert!(error.contains("POST /v2/models/{model}/infer"), "{error}");
    let reply = client.get(&format!("/{}", "x".repeat(5000)));
    assert!(reply.error().len() < 500, "a long path is cut: {reply:?}");
}

/// Samples of the text format of Prometheus by name and labels. Fails on a line that is neither a sample nor a comment.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with("# HELP ") && !line.starts_with("# TYPE "));
    lines
        .map(|line| {
            let (key, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
            (key.to_owned(), value.parse().unwrap_or_else(|_| panic!("{line}")))
        })
        .collect()
}

#[test]
fn latencies_are_histograms() {
    let server = Running::start(|_| {});
    let mut client = server.client();
    for _ in 0..3 {
        assert_eq!(client.post(INFER, &[], BODY).status, 200);
    }
    assert_eq!(client.post(INFER, &[], b"{").status, 400);
    let text = String::from_utf8(client.get("/metrics").body).expect("text");
    let found = samples(&text);
    let labels = r#"model="m",version="1""#;
    for (name, further, count) in [
        ("torch2carton_request_duration_seconds", r#",outcome="success""#, 3),
        ("torch2carton_request_duration_seconds", r#",outcome="failure""#, 1),
        ("torch2carton_queue_duration_seconds", "", 3),
        ("torch2carton_compute_duration_seconds", "", 3),
    ] {
        assert!(text.contains(&format!("# TYPE {name} histogram\n")), "{text}");
        for sample in [
            format!("{name}_count{{{labels}{further}}} {count}\n"),
            format!("{name}_bucket{{{labels}{further},le=\"+Inf\"}} {count}\n"),
        ] {
            assert!(text.contains(&sample), "{sample} in {text}");
        }
        assert!(found[&format!("{name}_sum{{{labels}{further}}}")] >= 0.0);
        let start = format!("{name}_bucket{{{labels}{further},le=\"");
        let buckets: Vec<f64> = text
            .lines()
            .filter_map(|line| line.strip_prefix(&start)?.rsplit_once(' ')?.1.parse().ok())
            .collect();
        assert_eq!(buckets.len(), 16, "{text}");
        assert!(buckets.is_sorted(), "each bucket counts those below it: {buckets:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn the_process_is_measured() {
    let server = Running::start(|_| {});
    let text = String::from_utf8(server.client().get("/metrics").body).expect("text");
    let found = samples(&text);
    assert!(found["process_resident_memory_bytes"] > 1e6, "{text}");
    assert!(found["process_virtual_memory_bytes"] >= found["process_resident_memory_bytes"]);
    assert!(
        found["process_open_fds"] > 3.0 && found["process_open_fds"] <= found["process_max_fds"],
        "{text}"
    );
    assert!(found["process_cpu_seconds_total"] >= 0.0);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let age = now.as_secs_f64() - found["process_start_time_seconds"];
    assert!((-2.0..86_400.0).contains(&age), "{age}");
    assert!(text.contains("# TYPE process_cpu_seconds_total counter\n"), "{text}");
}
