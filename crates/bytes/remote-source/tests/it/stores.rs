//! Folders of services behave as every store does.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

use remote_source::{Address, Neighbours, RemoteOptions, open_files, open_input};
use test_support::{STORE_FILES, StoreClaims, check_store};

use crate::server::{Server, send_range, send_status};

/// A server of the Hub with one repository, which has the files of the suite at its top.
fn hub() -> (Server, RemoteOptions) {
    let server = Server::start("127.0.0.1", |_, request, stream| {
        if request.path.starts_with("/api/models/o/m/") {
            let mut siblings = String::new();
            for (path, bytes) in STORE_FILES {
                let comma = if siblings.is_empty() { "" } else { "," };
                write!(siblings, r#"{comma}{{"rfilename": "{path}", "size": {}}}"#, bytes.len())
                    .expect("a text");
            }
            let commit = "0123456789abcdef0123456789abcdef01234567";
            let listing = format!(r#"{{"sha": "{commit}", "siblings": [{siblings}]}}"#);
            return write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{listing}", listing.len());
        }
        let requested = request.path.split('?').next().unwrap_or_default();
        match STORE_FILES.iter().find(|(path, _)| requested.ends_with(&format!("/{path}"))) {
            Some((_, bytes)) => send_range(stream, request, bytes, "\"v\""),
            None => send_status(stream, "404 Not Found", ""),
        }
    });
    let mut options = RemoteOptions::default();
    options.allow_http = true;
    options.timeout = Duration::from_secs(20);
    options.hub_endpoint.clone_from(&server.url);
    (server, options)
}

#[test]
fn a_repository_of_the_hub_is_a_store() {
    let (_server, options) = hub();
    let address = Address::parse("hf://o/m").expect("an address");
    let folder = open_input(&address, Neighbours::default(), &options).expect("it answers");
    assert_eq!(folder.folder_name(), "m");
    check_store(&folder, StoreClaims { lists: true, creates: false });
}

#[test]
fn files_on_a_web_server_are_in_one_store() {
    let (server, options) = hub();
    let addresses = ["a.bin?sig=secret", "missing.bin"]
        .map(|name| Address::parse(&format!("{}/x/{name}", server.url)).expect("an address"));
    let files = open_files(&addresses, &|_| false, &options).expect("nothing is requested");
    let [first, second] = files.as_slice() else { panic!("two addresses: {files:?}") };
    assert!(first.path().ends_with("x/a.bin"), "{first:?} has no query");
    let source = first.open().expect("it is there");
    assert_eq!(source.read_range(0..source.len()).expect("it is there"), STORE_FILES[0].1);
    second.open().map(|_| ()).expect_err("it is not there");
}
