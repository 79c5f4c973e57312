//! A folder of models: index, load, unload, versions, and names that try to leave the folder.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use byte_source::Stores;
use serde_json::{Value, json};
use serve::{Error, ModelSource, ModelVersion, RepositoryFolder, ServeOptions, Server};

use crate::client::{Client, request};
use crate::harness::{Echo, Gated, Running};

type Opened = Arc<Mutex<Vec<String>>>;

/// A repository whose models echo. A file with the text `broken` cannot be loaded.
fn models(path: &Path) -> (ModelSource, Opened) {
    let opened = Opened::default();
    let (log, root) = (opened.clone(), path.to_owned());
    let load = move |found: &ModelVersion| {
        let path = found.location.path();
        let relative = path.strip_prefix(&root).expect("it is in the folder").display().to_string();
        log.lock().expect("no panic").push(relative);
        if fs::read_to_string(path)? == "broken" {
            return Err(format!("{}: the file is broken", path.display()).into());
        }
        Ok(Arc::new(Echo) as Arc<dyn serve::InferModel>)
    };
    let folder =
        RepositoryFolder { path: path.to_owned(), extension: "carton".to_owned(), stores: Stores::default() };
    (ModelSource::Folder { folder, load: Box::new(load) }, opened)
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().expect("it has one")).expect("a folder");
    fs::write(path, text).expect("a file");
}

fn index(client: &mut Client, body: &str) -> Value {
    let reply = client.post("/v2/repository/index", &[], body.as_bytes());
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()
}

fn change(client: &mut Client, name: &str, what: &str) -> u16 {
    client.post(&format!("/v2/repository/models/{name}/{what}"), &[], b"").status
}

#[test]
fn versions_are_loaded_unloaded_and_listed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(folder.path(), "a/1.carton", "");
    write(folder.path(), "a/10.carton", "");
    write(folder.path(), "a/2.carton", "");
    let (models, _) = models(folder.path());
    let server = Running::with_models(models, |_| {});
    let mut client = server.client();
    let routes = client.get("/").json()["routes"].to_string();
    assert!(routes.contains("/v2/repository/models/{model}/unload"), "{routes}");
    assert_eq!(client.get("/v2/models/a").json()["versions"], json!(["1", "2", "10"]));
    let body = br#"{"inputs":[{"name":"IN","datatype":"FP32","shape":[1,1],"data":[1]}]}"#;
    let version = |client: &mut Client, path: &str| {
        let reply = client.post(path, &[], body);
        (reply.status, reply.json()["model_version"].clone())
    };
    assert_eq!(version(&mut client, "/v2/models/a/infer"), (200, json!("10")), "the newest");
    assert_eq!(version(&mut client, "/v2/models/a/versions/2/infer"), (200, json!("2")));
    assert_eq!(version(&mut client, "/v2/models/a/versions/3/infer").0, 404);

    // New files are seen when somebody loads them.
    write(folder.path(), "b/1.carton", "");
    write(folder.path(), "a/11.carton", "");
    let ready = |version: &str| json!({"name": "a", "version": version, "state": "READY"});
    let new = json!({"name": "a", "version": "11", "state": "UNAVAILABLE", "reason": "not loaded"});
    let all = json!([ready("1"), ready("2"), ready("10"), new, {"name": "b"}]);
    assert_eq!(index(&mut client, ""), all);
    assert_eq!(index(&mut client, r#"{"ready":false}"#), all);
    assert_eq!(index(&mut client, r#"{"ready":true}"#), json!([ready("1"), ready("2"), ready("10")]));
    assert_eq!(client.get("/v2/models/b").status, 404);
    assert_eq!(change(&mut client, "b", "load"), 200);
    assert_eq!(client.get("/v2/models/b/ready").status, 200);
    fs::remove_file(folder.path().join("a/1.carton")).expect("it is there");
    assert_eq!(change(&mut client, "a", "load"), 200);
    assert_eq!(client.get("/v2/models/a").json()["versions"], json!(["2", "10", "11"]));

    assert_eq!(change(&mut client, "b", "unload"), 200);
    assert_eq!(client.get("/v2/models/b/ready").status, 400);
    assert_eq!(client.get("/v2/models/b").status, 404);
    let unloaded = json!({"name": "b", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"});
    assert_eq!(index(&mut client, "")[3], unloaded);
    assert_eq!(change(&mut client, "b", "unload"), 200, "once more changes nothing");
    assert_eq!(change(&mut client, "b", "load"), 200);
    assert_eq!(client.get("/v2/models/b/ready").status, 200);
    assert_eq!(client.get("/v2/health/ready").status, 200);
}

#[test]
fn an_empty_repository_is_an_error() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // Neither is a version of a model.
    write(folder.path(), "direct.carton", "");
    write(folder.path(), "a/latest.carton", "");
    let (models, opened) = models(folder.path());
    let options = ServeOptions { port: 0, ..ServeOptions::default() };
    let error = Server::new(&options, models, Arc::new(())).expect_err("there is no model");
    assert!(matches!(error, Error::EmptyRepository { .. }), "{error}");
    let expected = "has no model: expected files NAME/VERSION.carton, such as llama/1.carton";
    assert!(error.to_string().ends_with(expected), "{error}");
    assert!(opened.lock().expect("no panic").is_empty());
}

#[test]
fn a_model_that_is_unloaded_answers_what_it_has() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(folder.path(), "a/1.carton", "");
    let (model, gate) = Gated::new();
    let model: Arc<dyn serve::InferModel> = Arc::new(model);
    let source = RepositoryFolder {
        path: folder.path().to_owned(),
        extension: "carton".to_owned(),
        stores: Stores::default(),
    };
    let load = { Box::new(move |_: &ModelVersion| Ok(model.clone())) };
    let server = Running::with_models(ModelSource::Folder { folder: source, load }, |_| {});
    let body = br#"{"inputs":[{"name":"IN","datatype":"FP32","shape":[1,1],"data":[1]}]}"#;
    let (mut running, mut client) = (server.client(), server.client());
    running.send(request("/v2/models/a/infer", &[], body));
    gate.called();
    assert_eq!(change(&mut client, "a", "unload"), 200);
    assert_eq!(client.post("/v2/models/a/infer", &[], body).status, 404);
    gate.release_model();
    assert_eq!(running.reply().status, 200);
}

#[test]
fn a_version_that_cannot_be_loaded_changes_nothing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(folder.path(), "a/1.carton", "");
    let (models, _) = models(folder.path());
    let server = Running::with_models(models, |_| {});
    let mut client = server.client();
    write(folder.path(), "a/2.carton", "broken");
    let reply = client.post("/v2/repository/models/a/load", &[], b"{}");
    assert_eq!(reply.status, 500);
    assert!(reply.error().ends_with("a/2.carton: the file is broken"), "{reply:?}");
    assert_eq!(client.get("/v2/models/a").json()["versions"], json!(["1"]));
    let listed = index(&mut client, "");
    assert_eq!(listed[0]["state"], "READY");
    assert_eq!(listed[1]["state"], "UNAVAILABLE");
    assert!(listed[1]["reason"].as_str().is_some_and(|reason| reason.contains("broken")), "{listed}");
}

#[test]
fn no_name_leaves_the_folder() {
    let outside = tempfile::tempdir().expect("a temporary folder");
    write(outside.path(), "repository/a/1.carton", "");
    write(outside.path(), "secret/1.carton", "");
    let repository = outside.path().join("repository");
    let (models, opened) = models(&repository);
    let server = Running::with_models(models, |_| {});
    let mut client = server.client();
    let absolute = outside.path().join("secret").display().to_string().replace('/', "%2F");
    for name in ["..%2Fsecret", "%2e%2e%2Fsecret", &absolute, "a%2F..%2F..%2Fsecret", "A", "a%00", ".", ".."]
    {
        assert_eq!(change(&mut client, name, "load"), 404, "{name}");
        assert_eq!(change(&mut client, name, "unload"), 404, "{name}");
        assert_eq!(client.get(&format!("/v2/models/{name}")).status, 404, "{name}");
    }
    for body in [r#"{"parameters":{"config":"{}"}}"#, r#"{"parameters":{"file:1/x":"AA=="}}"#, "[", "[1]"] {
        let reply = client.post("/v2/repository/models/a/load", &[], body.as_bytes());
        assert_eq!(reply.status, 400, "{body}");
    }
    assert_eq!(client.post("/v2/repository/index", &[], br#"{"ready":"yes"}"#).status, 400);
    assert_eq!(*opened.lock().expect("no panic"), ["a/1.carton"]);
}

#[test]
fn without_a_repository_nothing_is_loaded() {
    let server = Running::start(|_| {});
    let mut client = server.client();
    assert_eq!(index(&mut client, ""), json!([{"name": "m", "version": "1", "state": "READY"}]));
    assert_eq!(change(&mut client, "m", "load"), 503);
    assert_eq!(change(&mut client, "m", "unload"), 503);
    assert_eq!(client.get("/v2/models/m/ready").status, 200);
}

#[test]
fn a_server_does_not_start_with_models_that_it_cannot_serve() {
    let start =
        |models| Server::new(&ServeOptions { port: 0, ..ServeOptions::default() }, models, Arc::new(()));
    let echo = |name: &str| (name.to_owned(), Arc::new(Echo) as Arc<dyn serve::InferModel>);
    let error = start(ModelSource::Fixed(vec![echo("a"), echo("a")])).expect_err("the same name");
    assert!(matches!(&error, Error::SameName { name } if name == "a"), "{error}");
    assert!(matches!(start(ModelSource::Fixed(vec![echo("")])), Err(Error::NoName)));
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(folder.path(), "a/1.carton", "broken");
    let error = start(models(folder.path()).0).expect_err("it is broken");
    assert!(error.to_string().ends_with("a/1.carton: the file is broken"), "{error}");
    let error = start(models(&folder.path().join("none")).0).expect_err("there is no folder");
    assert!(matches!(error, Error::List { .. }), "{error}");

    let server = start(ModelSource::Fixed(vec![echo("a")])).expect("it starts");
    let port = server.address().port();
    let options = ServeOptions { port, ..ServeOptions::default() };
    let error =
        Server::new(&options, ModelSource::Fixed(vec![]), Arc::new(())).expect_err("the port is in use");
    assert!(matches!(error, Error::Bind { .. }), "{error}");
}
