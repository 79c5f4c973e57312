//! Inputs at addresses: the results are those of the same file on a disk.

use std::io::Result;
use std::sync::atomic::Ordering;

use crate::carton_tools::{names, run, scratch};
use crate::download_server::{Request, server};
use crate::made::{dict, tensor, write_pth};
use crate::program::{folder, torch2carton, transcript};

/// Sends the range that was asked for.
fn range(request: Request<'_>) -> Result<()> {
    if request.path().starts_with("/gone.pth") {
        return request.send("404 Not Found", "", 0, b"");
    }
    let file = request.file;
    request.range(file)
}

/// Starts a server that has a golden input at each path, and returns its address.
fn serve(input: &str) -> String {
    server(std::fs::read(folder().join(input)).expect("the input is checked in"), range).0
}

#[test]
fn a_remote_file_is_read_as_a_local_one() {
    for input in [
        "checkpoints/plain.safetensors",
        "checkpoints/tar.pth",
        "checkpoints/legacy_protocol_0.pth",
        "checkpoints/dtypes.pth",
    ] {
        let address = format!("{}/{input}", serve(input));
        for arguments in
            [&["inspect", "--sha256"][..], &["scan", "--all"], &["digest"], &["inspect", "--all"]]
        {
            let run = |file: &str| {
                let mut arguments = [arguments, &[file][..]].concat();
                arguments.extend((file == address).then_some("--allow-http"));
                transcript(&torch2carton(arguments)).replace(file, "FILE")
            };
            assert_eq!(run(&address), run(input), "{arguments:?} of {input}");
        }
        let difference = transcript(&torch2carton(["diff", "--allow-http", &address, input]));
        assert!(!difference.contains("exit status"), "{difference}");
    }
}

#[test]
fn a_remote_file_is_converted_to_the_same_bytes() {
    let out = tempfile::tempdir().expect("a folder");
    let input = "checkpoints/plain.pth";
    let address = format!("{}/{input}", serve(input));
    let convert = |file: &str, name: &str| {
        let path = out.path().join(name);
        let arguments = ["convert", "--quiet", "--allow-http", file, "-o", path.to_str().expect("UTF-8")];
        assert_eq!(transcript(&torch2carton(arguments)), "");
        std::fs::read(path).expect("it was written")
    };
    for extension in ["safetensors", "pth"] {
        let [remote, local] = ["remote", "local"].map(|name| format!("{name}/model.{extension}"));
        assert!(convert(&address, &remote) == convert(input, &local), "{extension}");
    }
}

#[test]
fn a_conversion_requests_each_byte_once_and_no_other() {
    let out = tempfile::tempdir().expect("a folder");
    let path = |name: &str| out.path().join(name).to_str().expect("UTF-8").to_owned();
    // The names of the larger ones, and of the smaller ones, are in another order than their bytes.
    let names: Vec<String> = (0..40).map(|number| format!("layers.{number}.weight")).collect();
    let len = |number: usize| if number.is_multiple_of(4) { 1_500_000 } else { 10_000 };
    let items: Vec<_> =
        names.iter().enumerate().map(|(n, name)| (name.as_str(), tensor(len(n) as u64))).collect();
    write_pth(out.path().join("model.pth").as_path(), &dict(&items));
    let file = std::fs::read(path("model.pth")).expect("it was written");
    let whole = file.len();
    let address = format!("{}/model.pth", server(file, range).0);
    for (output, arguments, most) in [
        ("a.safetensors", &[][..], whole),
        ("a.pth", &[], whole),
        ("a.carton", &[], whole),
        ("b.safetensors", &["--cast", "uint8=int16"], whole),
        // The edges of the file are read to open it.
        ("c.safetensors", &["--include", "layers.24.*"], len(24) + (520 << 10)),
    ] {
        let local = path(&format!("local-{output}"));
        let convert = |input: &str, output: &str| {
            let of = ["convert", "--json", "--allow-http", "--name", "model", input, "-o", output];
            let of = if output.ends_with(".carton") { of.to_vec() } else { [&of[..3], &of[5..]].concat() };
            torch2carton([&of[..], arguments].concat())
        };
        let shown = convert(&address, &path(output));
        assert!(shown.status.success(), "{}", transcript(&shown));
        let report: serde_json::Value = serde_json::from_slice(&shown.stdout).expect("JSON");
        let bytes = report["remote"]["bytes"].as_u64().expect("a number");
        assert!(bytes <= most as u64, "{output} {arguments:?}: {bytes} bytes, {whole} in the file");
        assert!(convert(&path("model.pth"), &local).status.success());
        assert!(std::fs::read(path(output)).ok() == std::fs::read(&local).ok(), "{output}");
    }
}

#[test]
fn few_requests_list_a_file() {
    let input = "checkpoints/dtypes.pth";
    let file = std::fs::read(folder().join(input)).expect("the input is checked in");
    let (address, requests) = server(file, range);
    let listed = torch2carton(["inspect", "--allow-http", &format!("{address}/model.pth")]);
    assert!(listed.status.success());
    assert_eq!(requests.load(Ordering::Relaxed), 2);
}

/// The log of ureq has a call for each 16 bytes of a body. Compiled, they take as long as receiving the bytes.
#[test]
fn logs_of_requests_are_left_out_of_releases() {
    let compiled = if cfg!(debug_assertions) { log::LevelFilter::Trace } else { log::LevelFilter::Off };
    assert_eq!(log::STATIC_MAX_LEVEL, compiled);
}

#[test]
fn refused_addresses_say_what_helps() {
    let address = serve("checkpoints/plain.safetensors");
    let refused = |arguments: &[&str]| transcript(&torch2carton(arguments)).replace(&address, "http://HOST");
    insta::assert_snapshot!(refused(&["inspect", &address]), @"
    error: http://HOST/ is not encrypted; --allow-http reads it anyway
    exit status 1
    ");
    insta::assert_snapshot!(refused(&["scan", "https://127.0.0.1:1/a.pth"]), @"
    error: https://127.0.0.1:1/a.pth: 127.0.0.1 is an address of a private network; --allow-http reads it anyway
    exit status 2
    ");
    insta::assert_snapshot!(refused(&["digest", "--allow-http", &format!("{address}/gone.pth")]), @"
    error: http://HOST/gone.pth does not exist; check the address
    exit status 1
    ");
    insta::assert_snapshot!(refused(&["inspect", "--offline", "hf://a/b/c.pth"]), @"
    error: hf://a/b/c.pth is remote, and requests are switched off; leave out --offline, and unset HF_HUB_OFFLINE
    exit status 1
    ");
    let set = |second| refused(&["convert", "https://example.org/a/x.pth", second, "-o", "x.carton"]);
    insta::assert_snapshot!(set("https://example.org/a/x.pth"), @"
    error: https://example.org/a/x.pth is given more than once; leave out all but one of them
    exit status 1
    ");
    insta::assert_snapshot!(set("https://example.org/b/y.pth"), @"
    error: https://example.org/a/x.pth and https://example.org/b/y.pth are not in one folder; give the shards of one folder, or convert each file in a run of its own
    exit status 1
    ");
    insta::assert_snapshot!(refused(&["inspect", "https://u:secret@[/c?sig=secret"]), @"
    error: https://[/c is not an address that can be read, expected https://HOST/PATH
    exit status 1
    ");
}

#[test]
fn blobs_and_the_cartons_that_need_them_are_not_written_to_buckets() {
    let scratch = scratch();
    let root = scratch.path();
    std::fs::write(root.join("m.jsonl"), r#"{"input": "a.pth"}"#).expect("a temporary folder");
    let mut texts = String::new();
    let base = ["--base", "https://example.org", "--blobs"];
    for arguments in [
        &["shrink", "x.carton", "-o", "y.carton"][..],
        &["shrink", "https://example.org/x.carton", "-o", "s3://bucket/y.carton"],
        &["batch", "m.jsonl", "-o", "out"],
        &["batch", "m.jsonl", "-o", "s3://bucket/out"],
    ] {
        let has_output =
            arguments.contains(&"s3://bucket/out") || arguments.contains(&"s3://bucket/y.carton");
        let blobs = if has_output { "blobs" } else { "s3://bucket/blobs" };
        let (status, text) = run(root, &[arguments, &base, &[blobs]].concat());
        assert_eq!(status, Some(2), "{text}");
        texts.push_str(&text);
    }
    insta::assert_snapshot!(texts, @"
    error: cannot write s3://bucket/blobs: it is not a local path; write it to a local path, and copy it from there
    exit status 2
    error: cannot write s3://bucket/y.carton: it is not a local path; write it to a local path, and copy it from there
    exit status 2
    error: --blobs: cannot write s3://bucket/blobs: it is not a local path; write it to a local path, and copy it from there
    exit status 2
    error: --blobs: cannot write s3://bucket/out: it is not a local path; write it to a local path, and copy it from there
    exit status 2
    ");
    assert_eq!(names(root), ["m.jsonl"], "nothing was written");
}

#[test]
fn a_batch_reads_addresses_and_goes_on() {
    let out = tempfile::tempdir().expect("a folder");
    let path = |name: &str| out.path().join(name).to_str().expect("UTF-8").to_owned();
    let input = "checkpoints/plain.pth";
    let file = std::fs::read(folder().join(input)).expect("the input is checked in");
    let (address, requests) = server(file, range);
    let line =
        |input: &str| serde_json::json!({ "input": input, "options": {"allow-http": true} }).to_string();
    let lines =
        [line(&format!("{address}/plain.pth")), line(&format!("{address}/gone.pth")), line("hf://owner")];
    std::fs::write(path("m.jsonl"), lines.join("\n")).expect("a temporary folder");
    let batch = |task: &str, more: &[&str]| {
        let (manifest, results) = (path("m.jsonl"), path(&format!("{task}.jsonl")));
        let arguments =
            ["batch", &manifest, "--task", task, "--results", &results, "--resume", "--jobs", "1", "-q"];
        let text = transcript(&torch2carton([&arguments, more].concat()));
        assert!(text.ends_with("exit status 1\n"), "{text}");
        let found = std::fs::read_to_string(results).expect("results");
        let found = found.lines().map(|line| serde_json::from_str(line).expect("JSON"));
        found.collect::<Vec<serde_json::Value>>()
    };
    for task in ["digest", "inspect", "scan"] {
        let found = batch(task, &[]);
        let codes: Vec<_> = found.iter().map(|line| line["code"].as_str()).collect();
        assert_eq!(codes, [None, Some("io"), Some("input")], "{found:?}");
        let local = transcript(&torch2carton(["digest", input]));
        assert!(local.starts_with(found[0]["digest"].as_str().expect("a digest")), "{found:?}");
        assert_eq!(found[0]["bytes"], folder().join(input).metadata().expect("it is there").len());
    }
    let convert = ["-o", &path("out"), "--to", "safetensors"];
    let first = batch("convert", &convert);
    let written = path("out/plain.safetensors");
    assert_eq!(first[0]["output"], written.as_str(), "{first:?}");
    let (before, asked) =
        (std::fs::metadata(&written).expect("it was written"), requests.load(Ordering::Relaxed));
    assert_eq!(batch("convert", &convert)[0], first[0], "it is kept");
    assert_eq!(std::fs::metadata(&written).expect("it is there").modified().ok(), before.modified().ok());
    // Four for the ends of two files. Each run may leave one on its way, which is counted later, when the missing file is known.
    assert!(requests.load(Ordering::Relaxed) - asked <= 6, "only the ends of the file are read");
}

/// Returns a checkpoint in the format before PyTorch 1.6 with one tensor of `len` bytes.
fn legacy(len: usize) -> Vec<u8> {
    let text =
        |text: &str| [&[b'X', u8::try_from(text.len()).expect("short"), 0, 0, 0], text.as_bytes()].concat();
    let number = |number: usize| [&b"J"[..], &i32::try_from(number).expect("small").to_le_bytes()].concat();
    let magic = 0x1950_a86a_20f9_469c_fc6c_u128.to_le_bytes();
    let storage = [
        b"(",
        &text("storage")[..],
        b"ctorch\nByteStorage\n",
        &text("0"),
        &text("cpu"),
        &number(len),
        b"NtQ",
    ];
    let tensor = [
        b"ctorch._utils\n_rebuild_tensor_v2\n(",
        &storage.concat()[..],
        b"K\0",
        &number(len),
        b"\x85K\x01\x85\x89",
    ];
    let root = [b"\x80\x02}", &text("a")[..], &tensor.concat(), b"ccollections\nOrderedDict\n)RtRs."];
    let pickles = [
        b"\x80\x02\x8a\x0a",
        &magic[..10],
        b".\x80\x02M\xe9\x03.\x80\x02}.",
        &root.concat(),
        b"\x80\x02]",
        &text("0"),
        b"a.",
    ];
    let elements: Vec<u8> = (0..=250).cycle().take(len).collect();
    [pickles.concat(), len.to_le_bytes().to_vec(), elements].concat()
}

#[test]
fn a_legacy_file_is_read_in_part() {
    let out = tempfile::tempdir().expect("a folder");
    let local = out.path().join("model.pth").to_str().expect("UTF-8").to_owned();
    let file = legacy(3_000_000);
    std::fs::write(&local, &file).expect("a temporary folder");
    let whole = file.len();
    let (address, requests) = server(file, range);
    let remote = format!("{address}/model.pth");
    for arguments in [&["inspect"][..], &["scan", "--all"], &["digest"]] {
        let before = requests.load(Ordering::Relaxed);
        let run = |file: &str| {
            transcript(&torch2carton([arguments, &["--allow-http", file]].concat())).replace(file, "FILE")
        };
        assert_eq!(run(&remote), run(&local), "{arguments:?}");
        let count = requests.load(Ordering::Relaxed) - before;
        assert!(arguments == ["digest"] || count == 2, "{arguments:?}: {count} requests");
    }
    // A file that ends too early is damaged in the same words.
    let cut = legacy(3_000_000)[..whole - 1].to_vec();
    std::fs::write(&local, &cut).expect("a temporary folder");
    let remote = format!("{}/model.pth", server(cut, range).0);
    let error =
        |file: &str| transcript(&torch2carton(["inspect", "--allow-http", file])).replace(file, "FILE");
    assert_eq!(error(&remote), error(&local));
}

#[test]
fn a_carton_is_read_where_it_is() {
    let out = tempfile::tempdir().expect("a folder");
    let local = out.path().join("model.carton").to_str().expect("UTF-8").to_owned();
    assert_eq!(transcript(&torch2carton(["convert", "--quiet", "checkpoints/plain.pth", "-o", &local])), "");
    let remote = format!("{}/model.carton", server(std::fs::read(&local).expect("it was written"), range).0);
    for arguments in [&["inspect", "--quiet"][..], &["inspect", "--stats"], &["digest"]] {
        let run = |file: &str| {
            transcript(&torch2carton([arguments, &["--allow-http", file]].concat())).replace(file, "FILE")
        };
        assert_eq!(run(&remote), run(&local), "{arguments:?}");
    }
    assert!(
        !transcript(&torch2carton(["diff", "--allow-http", &remote, "checkpoints/plain.pth"]))
            .contains("exit status")
    );
}

#[test]
fn the_model_in_a_carton_is_scanned_in_part() {
    let out = tempfile::tempdir().expect("a folder");
    let path = |name: &str| out.path().join(name).to_str().expect("UTF-8").to_owned();
    std::fs::write(path("model.pth"), legacy(3_000_000)).expect("a temporary folder");
    let convert = ["convert", "--quiet", &path("model.pth"), "-o", &path("model.carton")];
    assert_eq!(transcript(&torch2carton(convert)), "");
    let file = std::fs::read(path("model.carton")).expect("it was written");
    let (address, requests) = server(file, range);
    let scan = |file: &str| {
        transcript(&torch2carton(["scan", "--pickles-only", "--allow-http", file])).replace(file, "FILE")
    };
    let remote = scan(&format!("{address}/model.carton"));
    assert!(remote.starts_with("FILE: clean"), "{remote}");
    assert!(remote.contains("`model/model.pt`: 1 storage of 3000000 bytes"), "{remote}");
    assert!(requests.load(Ordering::Relaxed) <= 3, "{}", requests.load(Ordering::Relaxed));
}

#[test]
fn a_pickle_is_traced_and_reported_where_it_is() {
    let page = |file: &str| {
        let shown = transcript(&torch2carton(["report", "--allow-http", "--trace", file, "-o", "-"]));
        assert!(shown.contains("</html>") && !shown.contains("exit status"), "{file}");
    };
    for input in ["checkpoints/plain.pth", "checkpoints/legacy_protocol_0.pth", "pickles/bytes_2.pkl"] {
        let address = format!("{}/{input}?signature=secret", serve(input));
        let shown = address.trim_end_matches("?signature=secret");
        for options in [&["--lines"][..], &["--summary"], &["--dis"], &["--json", "--limit", "9"]] {
            // Where a storage begins is known once its local header is read.
            let run = |file: &str, shown: &str| {
                let text = transcript(&torch2carton([&["trace", "--allow-http", file], options].concat()));
                let mut parts = text.split(", at byte ");
                let first = parts.next().unwrap_or_default().to_owned();
                let rest = parts.map(|part| part.split_once(" of the file").map_or(part, |(_, rest)| rest));
                rest.fold(first, |text, rest| text + rest).replace(shown, "FILE")
            };
            let remote = run(&address, shown);
            assert!(
                remote == run(input, input),
                "{options:?} of {input}: {}",
                &remote[..remote.len().min(900)]
            );
            assert!(!remote.contains("secret"), "{remote}");
        }
        if !input.starts_with("pickles/") {
            page(&address);
        }
    }
    let advice = transcript(&torch2carton(["trace", "owner/model"]));
    assert!(advice.contains("pass hf://owner/model"), "{advice}");
}

#[test]
fn a_carton_is_verified_unpacked_and_run_where_it_is() {
    let out = tempfile::tempdir().expect("a folder");
    let path = |name: &str| out.path().join(name).to_str().expect("UTF-8").to_owned();
    let local = path("model.carton");
    let original = "checkpoints/plain.pth";
    assert_eq!(transcript(&torch2carton(["convert", "--quiet", original, "-o", &local])), "");
    let file = std::fs::read(&local).expect("it was written");
    let remote = format!("{}/model.carton", server(file.clone(), range).0);
    let original_at = format!("{}/plain.pth", serve(original));
    let run = |arguments: &[&str], file: &str| {
        transcript(&torch2carton([arguments, &["--allow-http", file]].concat())).replace(file, "FILE")
    };
    for arguments in [&["verify"][..], &["verify", "--against", original], &["run"]] {
        assert_eq!(run(arguments, &remote), run(arguments, &local), "{arguments:?}");
    }
    assert_eq!(
        run(&["verify", "--against", &original_at], &remote),
        run(&["verify", "--against", original], &local)
    );
    let name = transcript(&torch2carton(["digest", "--lines", &local]));
    let name = name.lines().find_map(|line| line.split_whitespace().next_back()).unwrap_or_default();
    assert!(!name.is_empty());
    for (kind, file) in [("remote", &remote), ("local", &local)] {
        assert_eq!(run(&["unpack", "--quiet", "-o", &path(kind)], file), "");
        let array = path(&format!("{kind}.npy"));
        run(&["run", "--quiet", "--get", name, "-o", &array], file);
    }
    let manifest = |kind: &str| std::fs::read(out.path().join(kind).join("MANIFEST")).expect("a file");
    assert_eq!(manifest("remote"), manifest("local"));
    assert_eq!(std::fs::read(path("remote.npy")).ok(), std::fs::read(path("local.npy")).ok());
    let mut damaged = file;
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    let damaged = format!("{}/model.carton", server(damaged, range).0);
    assert!(run(&["verify"], &damaged).contains("exit status"), "it was damaged");
    let other = run(&["verify"], &original_at);
    assert!(other.contains("FILE is a checkpoint"), "{other}");
    let folder = run(&["pack"], &format!("{remote}?signature=secret"));
    assert!(folder.contains("not a folder") && !folder.contains("secret"), "{folder}");
}

#[test]
fn checkpoints_at_addresses_are_summed() {
    let out = tempfile::tempdir().expect("a folder");
    let input = "checkpoints/plain.pth";
    let address = format!("{}/{input}", serve(input));
    let convert = |flag: &str, other: &str| {
        let path = out.path().join("model.safetensors");
        let output = path.to_str().expect("UTF-8");
        let arguments = ["convert", "--quiet", "--force", "--allow-http", input, flag, other, "-o", output];
        let shown = transcript(&torch2carton(arguments));
        (shown.replace(other, "OTHER"), std::fs::read(path).unwrap_or_default())
    };
    let copy = out.path().join("plain.pth");
    std::fs::copy(folder().join(input), &copy).expect("a folder");
    let copy = copy.to_str().expect("UTF-8");
    for flag in ["--average", "--add"] {
        let (remote, local) = (convert(flag, &address), convert(flag, copy));
        assert!(!remote.1.is_empty() && remote == local, "{flag}: {}", remote.0);
    }
    let adapter = convert("--merge", &address).0;
    assert!(adapter.contains("adapter_config.json"), "{adapter}");
}

#[test]
fn nothing_secret_in_an_address_is_printed() {
    let input = "checkpoints/plain.pth";
    let server = serve(input);
    let host = server.trim_start_matches("http://");
    let address = |path: &str| format!("http://user:secret@{host}/{path}?signature=secret#secret");
    let (found, gone) = (address(input), address("gone.pth"));
    let (found, gone) = (found.as_str(), gone.as_str());
    for arguments in [
        &["inspect", "--json", found][..],
        &["inspect", "--json", gone],
        &["inspect", found, "no.such.tensor"],
        &["scan", "--json", found],
        &["scan", "--sarif", found],
        &["digest", found],
        &["diff", "--json", found, found],
        &["trace", "--limit", "3", found],
        &["report", "-o", "-", found],
        &["convert", "--json", "--dry-run", found],
        &["convert", "--json", found, "-o", "/no/such/folder/x.safetensors"],
        &["convert", "--json", gone, "-o", "/no/such/folder/x.safetensors"],
        &["convert", found, found],
        &["convert", "--dry-run", input, "--add", found],
        &["convert", "--dry-run", input, "--merge", found],
        &["verify", "--json", found],
        &["verify", "--json", input, "--against", found],
        &["unpack", found],
        &["run", found],
        &["serve", found],
        &["pack", found],
    ] {
        let has_flag = !matches!(arguments[0], "serve" | "pack");
        let flag = if has_flag { &["--allow-http"][..] } else { &[] };
        let shown = transcript(&torch2carton([arguments, flag].concat()));
        assert!(!shown.contains("secret"), "{arguments:?}: {shown}");
    }
}
