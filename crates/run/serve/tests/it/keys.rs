//! Keys of clients, and the page for browsers.

use serve::ApiKeys;

use crate::harness::Running;

#[test]
fn a_request_needs_a_key() {
    let server = Running::start(|options| options.api_keys = ApiKeys::new(["secret"]).expect("a key"));
    let mut client = server.client();
    let mut get = |path: &str, headers: &str| {
        client.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n"));
        client.reply()
    };
    for path in ["/", "/v2", "/v2/models/m", "/metrics", "/v1/models", "/unknown"] {
        for header in ["", "Authorization: Bearer secre\r\n", "Authorization: secret\r\n"] {
            let reply = get(path, header);
            assert_eq!((reply.status, reply.header("www-authenticate")), (401, Some("Bearer")), "{path}");
        }
        assert_ne!(get(path, "Authorization: Bearer secret\r\n").status, 401, "{path}");
    }
    let error = get("/v1/models", "").json();
    assert_eq!(error["error"]["code"], "invalid_api_key");
    for path in ["/v2/health/live", "/v2/health/ready", "/page.js"] {
        assert_eq!(get(path, "").status, 200, "{path}");
    }
    assert_eq!(get("/", "Accept: text/html\r\n").status, 200);
}

#[test]
fn browsers_get_a_page_without_scripts_from_elsewhere() {
    let server = Running::start(|_| {});
    let mut client = server.client();
    let mut get = |path: &str, headers: &str| {
        client.send(format!("GET {path} HTTP/1.1\r\nHost: localhost:8000\r\n{headers}\r\n"));
        client.reply()
    };
    let page = get("/", "Accept: text/html,application/xhtml+xml;q=0.9,*/*;q=0.8\r\n");
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let policy = page.header("content-security-policy").expect("a policy");
    assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
    let text = String::from_utf8(page.body.clone()).expect("it is text");
    assert!(!text.contains("://"), "it names no other server");
    for (path, kind) in
        [("/page.js", "text/javascript; charset=utf-8"), ("/page.css", "text/css; charset=utf-8")]
    {
        assert_eq!(get(path, "").header("content-type"), Some(kind));
    }
    for headers in ["", "Accept: */*\r\n", "Accept: application/json\r\n"] {
        assert_eq!(get("/", headers).header("content-type"), Some("application/json"));
    }
    // The page's own requests are answered, and those of others are not.
    for (headers, status) in [
        ("Origin: http://localhost:8000\r\nSec-Fetch-Site: same-origin\r\n", 200),
        ("Sec-Fetch-Site: same-origin\r\n", 200),
        ("Origin: http://localhost:8001\r\nSec-Fetch-Site: same-site\r\n", 403),
        ("Origin: http://localhost:8001\r\n", 403),
        ("Origin: null\r\n", 403),
        ("Origin: http://localhost:8000\r\nOrigin: http://evil.example\r\n", 403),
        ("Sec-Fetch-Site: cross-site\r\n", 403),
    ] {
        assert_eq!(get("/v1/models", headers).status, status, "{headers}");
    }
}
