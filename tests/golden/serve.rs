//! `torch2carton serve` as a program: its address, its log, what it serves, and how signals end it.

#![cfg(all(unix, feature = "serve"))]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::carton_tools::{names, ok, scratch};
use crate::cli::{one_tensor, output};
use crate::outputs::is_ignored;
use crate::program::folder;

/// A server that ends with the test.
struct Serving {
    child: Child,
    /// Host and port.
    address: String,
}

impl Serving {
    fn start(root: &Path, args: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_torch2carton"))
            .args(["serve", "--port", "0"])
            .args(args)
            .current_dir(root)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program was built for this test");
        let mut line = String::new();
        let stdout = child.stdout.as_mut().expect("it is piped");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let Some(address) = line.trim_end().strip_prefix("http://").map(str::to_owned) else {
            let mut text = String::new();
            let _ = child.stderr.take().expect("it is piped").read_to_string(&mut text);
            panic!("no address: {line}{text}");
        };
        Self { child, address }
    }

    fn send(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).expect("the server listens");
        stream.write_all(request.as_bytes()).expect("the server reads");
        stream
    }

    /// The whole response to a request of one connection.
    fn answer(&self, request: &str) -> String {
        let mut response = Vec::new();
        self.send(request).read_to_end(&mut response).expect("a response");
        String::from_utf8_lossy(&response).into_owned()
    }

    fn get(&self, path: &str) -> String {
        self.answer(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
    }

    fn post(&self, path: &str, body: &str) -> String {
        let length = body.len();
        self.answer(&format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        ))
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().try_into().expect("a number")).expect("not 0");
        kill_process(pid, signal).expect("it runs");
    }

    /// Reads the log until a line has `part` in it.
    fn wait_for(&mut self, part: &str) {
        let stderr = BufReader::new(self.child.stderr.as_mut().expect("it is piped"));
        assert!(stderr.lines().any(|line| line.expect("text").contains(part)), "{part}");
    }

    /// The exit status and the rest of the log.
    fn end(mut self) -> (Option<i32>, String) {
        let mut log = String::new();
        self.child.stderr.take().expect("it is piped").read_to_string(&mut log).expect("text");
        (self.child.wait().expect("it ran").code(), log)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It has ended if the test got to its end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `w.carton`, which has one tensor `w` of one byte.
fn weights(root: &Path) {
    one_tensor(root);
    ok(root, &["a.pth", "-q", "-o", "w.carton"]);
}

#[test]
fn a_checkpoint_is_served_in_place() {
    let scratch = scratch();
    let root = scratch.path();
    test_support::tiny_llama::write(&root.join("llama")).expect("a temporary folder");
    let before = names(&root.join("llama"));
    for args in [&["llama"][..], &["llama/consolidated.00.pth", "--name", "llama"]] {
        let serving = Serving::start(root, args);
        let metadata = serving.get("/v2/models/llama");
        assert!(metadata.contains(r#"{"name":"tokens","datatype":"INT64","shape":[-1,-1]}"#), "{metadata}");
    }
    assert_eq!(names(&root.join("llama")), before);
}

#[test]
fn a_carton_is_served_until_a_signal_comes() {
    let scratch = scratch();
    let root = scratch.path();
    weights(root);
    let serving = Serving::start(root, &["w.carton", "--verify", "--log-format", "json"]);
    assert!(serving.get("/v2").contains(r#""name":"torch2carton""#));
    let metadata = serving.get("/v2/models/w");
    assert!(
        metadata.contains(r#""inputs":[],"outputs":[{"name":"w","datatype":"UINT8","shape":[1]}]"#),
        "{metadata}"
    );
    let answer = serving.post("/v2/models/w/infer", r#"{"inputs":[]}"#);
    assert!(answer.contains(r#""outputs":[{"name":"w","datatype":"UINT8","shape":[1],"data":["#), "{answer}");
    serving.signal(Signal::TERM);
    let (status, log) = serving.end();
    assert_eq!(status, Some(0), "{log}");
    let mut lines: Vec<serde_json::Value> =
        log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    // Where SIGINT is ignored, a warning says so.
    lines.retain(|line| line["event"] != "warning");
    let events: Vec<&str> = lines.iter().filter_map(|line| line["event"].as_str()).collect();
    assert_eq!(events, ["loaded", "request", "request", "request", "draining"]);
    let request = &lines[3];
    assert_eq!((request["method"].as_str(), request["status"].as_u64()), (Some("POST"), Some(200)));
    assert_eq!(
        (request["path"].as_str(), request["received"].as_u64()),
        (Some("/v2/models/w/infer"), Some(13))
    );
}

#[test]
fn a_quiet_server_says_only_its_address() {
    let scratch = scratch();
    let root = scratch.path();
    weights(root);
    let serving = Serving::start(root, &["w.carton", "-q", "--name", "other"]);
    assert!(serving.get("/v2/models/other/ready").starts_with("HTTP/1.1 200"));
    serving.signal(Signal::TERM);
    assert_eq!(serving.end(), (Some(0), String::new()));
}

#[test]
fn what_a_client_sends_cannot_control_the_terminal() {
    let scratch = scratch();
    let root = scratch.path();
    weights(root);
    let serving = Serving::start(root, &["w.carton"]);
    let answer = serving.post("/v2/models/%1b]0;x%07%0a/infer", "{}");
    assert!(answer.contains(r"unknown model `\\u{1b}]0;x\\u{7}\\n`"), "{answer}");
    serving.signal(Signal::TERM);
    let (_, log) = serving.end();
    assert!(log.chars().all(|c| c == '\n' || !c.is_control()), "{log:?}");
}

#[test]
fn a_request_in_flight_is_waited_for_unless_a_second_signal_comes() {
    let scratch = scratch();
    let root = scratch.path();
    weights(root);
    let request = "POST /v2/models/w/infer HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 13\r\n\r\n";
    let in_flight = |serving: &Serving| {
        let mut stream = serving.send(request);
        let mut start = [0; 25];
        stream.read_exact(&mut start).expect("a response");
        assert_eq!(&start, b"HTTP/1.1 100 Continue\r\n\r\n");
        stream
    };
    let mut serving = Serving::start(root, &["w.carton"]);
    let mut stream = in_flight(&serving);
    serving.signal(Signal::TERM);
    serving.wait_for("ending, 1 requests in flight");
    stream.write_all(br#"{"inputs":[]}"#).expect("the server reads");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("text");
    assert!(response.starts_with("HTTP/1.1 200 OK"), "{response}");
    assert_eq!(serving.end().0, Some(0));

    let mut serving = Serving::start(root, &["w.carton"]);
    let stream = in_flight(&serving);
    serving.signal(Signal::TERM);
    serving.wait_for("ending, 1 requests in flight");
    serving.signal(Signal::TERM);
    assert_eq!(serving.end().0, Some(128 + 15));
    drop(stream);

    let serving = Serving::start(root, &["w.carton", "--drain-timeout", "0"]);
    let stream = in_flight(&serving);
    let (signal, number) = if is_ignored(2) { (Signal::TERM, 15) } else { (Signal::INT, 2) };
    serving.signal(signal);
    assert_eq!(serving.end().0, Some(128 + number));
    drop(stream);
}

#[test]
fn a_repository_is_a_folder_of_folders() {
    let scratch = scratch();
    let root = scratch.path();
    weights(root);
    for version in ["1", "2"] {
        let folder = root.join("models/m");
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::copy(root.join("w.carton"), folder.join(format!("{version}.carton"))).expect("a file");
    }
    let serving = Serving::start(root, &["--repository", "models", "-q"]);
    assert!(serving.get("/v2/models/m").contains(r#""versions":["1","2"]"#));
    assert!(serving.post("/v2/repository/models/m/unload", "").starts_with("HTTP/1.1 200"));
    assert!(serving.get("/v2/models/m").starts_with("HTTP/1.1 404"));
    assert!(serving.post("/v2/repository/models/m/load", "").starts_with("HTTP/1.1 200"));
    assert!(serving.get("/v2/models/m/versions/1/ready").starts_with("HTTP/1.1 200"));
    std::fs::write(root.join("models/m/3.carton"), "no carton").expect("a file");
    let answer = serving.post("/v2/repository/models/m/load", "");
    assert!(answer.starts_with("HTTP/1.1 500") && answer.contains("3.carton"), "{answer}");
    serving.signal(Signal::TERM);
    assert_eq!(serving.end().0, Some(0));
    let (status, _, text) = output(root, &["serve", "--port", "0", "--repository", "models"]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("3.carton"), "{text}");
}

#[test]
fn a_folder_stands_for_its_cartons() {
    let scratch = scratch();
    let root = scratch.path();
    weights(root);
    std::fs::create_dir_all(root.join("flat/sub")).expect("a folder");
    std::fs::copy(root.join("w.carton"), root.join("flat/a.carton")).expect("a file");
    std::fs::copy(root.join("w.carton"), root.join("flat/b 2.carton")).expect("a file");
    std::fs::copy(root.join("a.pth"), root.join("flat/other.pth")).expect("a file");
    ok(root, &["unpack", "w.carton", "-q", "-o", "flat/unpacked"]);
    let serving = Serving::start(root, &["flat", "w.carton"]);
    let overview = serving.get("/");
    let (_, body) = overview.split_once("\r\n\r\n").expect("a body");
    let overview: serde_json::Value = serde_json::from_str(body).expect("JSON");
    let models = overview["models"].as_array().expect("a list");
    let names: Vec<&str> = models.iter().filter_map(|model| model["name"].as_str()).collect();
    assert_eq!(names, ["a", "b 2", "unpacked", "w"]);
    assert!(serving.get("/v2/models/b%202/ready").starts_with("HTTP/1.1 200"));
    // Clients cannot load other files.
    assert!(serving.post("/v2/repository/models/a/unload", "").starts_with("HTTP/1.1 503"));
    serving.signal(Signal::TERM);
    assert_eq!(serving.end().0, Some(0));

    let (status, _, text) = output(root, &["serve", "flat", "--name", "x", "--port", "0"]);
    assert_eq!(status, Some(2), "{text}");
    // A repository is named as such.
    std::fs::create_dir_all(root.join("models/m")).expect("a folder");
    std::fs::copy(root.join("w.carton"), root.join("models/m/1.carton")).expect("a file");
    let (status, _, text) = output(root, &["serve", "models", "--port", "0"]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("`torch2carton serve --repository models` serves NAME/VERSION.carton"), "{text}");
    std::fs::create_dir(root.join("empty")).expect("a folder");
    let (status, _, text) = output(root, &["serve", "empty", "--port", "0"]);
    assert_eq!(status, Some(1), "{text}");
    assert_eq!(
        text,
        "error: there are no cartons in the folder empty; `torch2carton MODEL -o empty/NAME.carton` puts one there\n"
    );
    let (_, _, text) = output(root, &["run", "empty"]);
    assert_eq!(text, "error: empty contains no checkpoint: the folder is empty\n");
    let expected = "error: empty is not a carton; the folder has no carton.toml, as `torch2carton unpack CARTON` writes one\n";
    let (status, _, text) = output(root, &["verify", "empty"]);
    assert_eq!((status, text.as_str()), (Some(1), expected));
}

#[test]
fn a_script_in_a_folder_does_not_stop_the_others() {
    let scratch = scratch();
    let root = scratch.path();
    weights(root);
    std::fs::create_dir(root.join("flat")).expect("a folder");
    let script = folder().join("scripts/attention.pt").display().to_string();
    ok(root, &[&script, "-q", "-o", "flat/script.carton"]);
    // A folder of nothing that runs, and a carton that is named, are errors.
    for args in [&["serve", "flat", "--port", "0"][..], &["serve", "flat/script.carton", "--port", "0"]] {
        let (status, _, text) = output(root, args);
        assert_eq!(status, Some(1), "{text}");
        assert!(text.starts_with("error: flat/script.carton: the model is a TorchScript module"), "{text}");
    }
    std::fs::copy(root.join("w.carton"), root.join("flat/w.carton")).expect("a file");
    let mut serving = Serving::start(root, &["flat"]);
    serving.wait_for("not served: flat/script.carton: the model is a TorchScript module with its own code");
    assert!(serving.get("/v2/models/w/ready").starts_with("HTTP/1.1 200"));
    assert!(serving.get("/v2/models/script/ready").starts_with("HTTP/1.1 4"));
    serving.signal(Signal::TERM);
    assert_eq!(serving.end().0, Some(0));
}

#[test]
fn an_address_that_others_reach_is_a_warning() {
    let scratch = scratch();
    let root = scratch.path();
    weights(root);
    for (host, warned) in
        [("0.0.0.0", true), ("127.0.0.1", false), ("127.0.0.2", false), ("localhost", false)]
    {
        let serving = Serving::start(root, &["w.carton", "-q", "--host", host]);
        serving.signal(Signal::TERM);
        let (status, log) = serving.end();
        assert_eq!(status, Some(0), "{host}: {log}");
        assert_eq!(log.contains("warning: other machines can reach 0.0.0.0:"), warned, "{host}: {log}");
    }
}

#[test]
fn a_server_in_the_background_of_a_script_says_how_it_ends() {
    let scratch = scratch();
    let root = scratch.path();
    weights(root);
    // A shell that runs a script lets commands that end with & ignore SIGINT.
    let script = format!(
        "{} serve w.carton --port 0 --log-format json 2> log > address & while ! [ -s address ]; do sleep 0.05; done; kill -INT $!; \
         sleep 0.2; kill -TERM $!; wait $!",
        env!("CARGO_BIN_EXE_torch2carton")
    );
    let status = Command::new("sh").args(["-c", &script]).current_dir(root).status().expect("a shell");
    let log = std::fs::read_to_string(root.join("log")).expect("a log");
    assert_eq!(status.code(), Some(0), "SIGTERM ended it: {log}");
    let warning = log.lines().find(|line| line.contains(r#""event":"warning""#)).expect("a warning");
    assert!(warning.contains("SIGINT is ignored") && warning.contains("which sends SIGTERM"), "{warning}");
}

#[test]
fn only_requests_to_a_name_of_the_server_are_answered() {
    let scratch = scratch();
    let root = scratch.path();
    weights(root);
    let serving = Serving::start(root, &["w.carton", "-q", "--allow-host", "a.example", "--allow-host", "b"]);
    let status = |host: &str| {
        let answer =
            serving.answer(&format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
        answer.split(' ').nth(1).expect("a status").to_owned()
    };
    for host in [serving.address.as_str(), "localhost:1", "A.example", "b:8000"] {
        assert_eq!(status(host), "200", "{host}");
    }
    for host in ["evil.example", "b.example", ""] {
        assert_eq!(status(host), "403", "{host}");
    }
}

#[test]
fn mistakes() {
    let scratch = scratch();
    let root = scratch.path();
    weights(root);
    std::fs::create_dir(root.join("b")).expect("a folder");
    std::fs::copy(root.join("w.carton"), root.join("b/w.carton")).expect("a file");
    for (args, status, part) in [
        (&["serve"][..], 2, "CARTON"),
        (&["serve", "w.carton", "--repository", "b"], 2, "--repository"),
        (&["serve", "w.carton", "b/w.carton", "--name", "x"], 2, "--name is for one carton"),
        (
            &["serve", "w.carton", "b/w.carton", "--port", "0"],
            2,
            "two models have the name `w`; rename a file, or",
        ),
        (&["serve", "w.carton", "--port", "70000"], 2, "70000"),
        (&["serve", "w.carton", "--max-body", "0"], 2, "--max-body"),
        (
            &["serve", "w.carton", "--port", "0", "--allow-host", "a.example:80"],
            2,
            "`a.example:80` is not a host name: it takes ASCII letters, digits, `-` and `_` in parts between dots, and no port; \
             --allow-host takes such a name",
        ),
        (&["serve", "none.carton", "--port", "0"], 1, "none.carton"),
        (&["serve", "a.pth", "--port", "0"], 1, "a.pth"),
        (&["serve", "--repository", "none", "--port", "0"], 1, "cannot list none: "),
    ] {
        let (found, stdout, text) = output(root, args);
        assert_eq!((found, stdout.as_str()), (Some(status), ""), "{args:?}: {text}");
        assert!(text.contains(part), "{args:?}: {text}");
    }
    // A folder with a checkpoint is a model, if its weights are those of one.
    std::fs::create_dir(root.join("c")).expect("a folder");
    std::fs::copy(root.join("a.pth"), root.join("c/a.pth")).expect("a file");
    let (_, _, text) = output(root, &["serve", "c", "--port", "0"]);
    assert!(text.contains("c: these tensors are not a model that can run: no known architecture"), "{text}");
    let (status, _, text) = output(root, &["serve", "--repository", "c", "--port", "0"]);
    assert_eq!(status, Some(1), "{text}");
    assert!(
        text.contains(
            "c has no model: expected files NAME/VERSION.carton, such as llama/1.carton; `torch2carton MODEL -o \
             c/NAME/1.carton` makes one"
        ),
        "{text}"
    );
    let serving = Serving::start(root, &["w.carton"]);
    let (_, port) = serving.address.rsplit_once(':').expect("a port");
    let (status, _, text) = output(root, &["serve", "w.carton", "--port", port]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains(&format!("cannot listen on 127.0.0.1:{port}: ")), "{text}");
    assert!(text.contains("; --port 0 chooses one that is free"), "{text}");
}
