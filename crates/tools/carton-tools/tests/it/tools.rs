//! Cartons that are packed, unpacked, verified, shrunk, resolved and listed.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use byte_source::ProgressUpdate;
use carton_format::Carton;
use carton_tools::{
    ArrayFile, Error, Observer, PackCompression, PackOptions, Problem, ResolveOptions, Selection,
    ShrinkOptions, UnpackOptions, UnpackReport, VerifyOptions, contents, pack, resolve, shrink, unpack,
};
use convert::{ConvertOptions, convert};
use tempfile::TempDir;
use test_support::safetensors;

use crate::verify;

/// A safetensors file with tensors of 4 bytes, all of which are the given byte.
fn write_safetensors(path: &Path, tensors: &[(&str, u8)]) {
    let file = safetensors(tensors.iter().map(|(name, byte)| (name, "U8", [4], [*byte; 4])));
    std::fs::write(path, file).expect("a temporary folder");
}

/// A folder with `m.safetensors` and the carton that is made from it, `m.carton`.
fn converted(tensors: &[(&str, u8)], selection: Selection) -> (TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (checkpoint, carton) = (folder.path().join("m.safetensors"), folder.path().join("m.carton"));
    write_safetensors(&checkpoint, tensors);
    let mut options = ConvertOptions::new(&checkpoint);
    options.selection = selection;
    convert(&options, &()).expect("it can be converted");
    (folder, checkpoint, carton)
}

fn including(pattern: &str) -> Selection {
    Selection::default().include(pattern)
}

fn names(carton: &Path) -> Vec<String> {
    contents(carton).expect("a carton").tensors.into_iter().map(|tensor| tensor.name).collect()
}

fn in_folder(folder: &Path) -> Vec<String> {
    let items = folder.read_dir().expect("a folder");
    let mut names: Vec<String> =
        items.map(|item| item.expect("readable").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Stops the work after `steps` steps.
struct StopAfter {
    steps: usize,
    seen: AtomicUsize,
}

impl Observer for StopAfter {
    fn progress(&self, _: ProgressUpdate<'_>) {
        self.seen.fetch_add(1, Ordering::Relaxed);
    }

    fn is_cancelled(&self) -> bool {
        self.seen.load(Ordering::Relaxed) > self.steps
    }
}

/// Runs `work` with observers that stop it after every number of steps, and checks after each that `is_clean`.
fn stop_everywhere<T: std::fmt::Debug>(
    work: impl Fn(&dyn Observer) -> Result<T, Error>,
    is_clean: impl Fn(),
) -> T {
    for steps in 0.. {
        match work(&StopAfter { steps, seen: AtomicUsize::new(0) }) {
            Ok(report) => {
                assert!(steps > 0, "nothing asked the observer");
                return report;
            }
            Err(error) if error.is_cancelled() => is_clean(),
            Err(error) => panic!("after {steps} steps: {error}"),
        }
    }
    unreachable!("the work has an end")
}

#[test]
fn each_tensor_is_listed_once() {
    let (_folder, _, carton) = converted(&[("w", 1), ("a.b", 2), ("__tensors__.x", 3)], Selection::default());
    let mut found = names(&carton);
    found.sort();
    assert_eq!(found, ["__tensors__.x", "a.b", "w"]);
    // No tree of modules can hold these names.
    let (_folder, _, carton) = converted(&[("a", 1), ("a.b", 2)], Selection::default());
    assert_eq!(names(&carton), ["a", "a.b"]);
}

#[test]
fn each_tensor_of_a_model_that_runs_is_listed_once() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let checkpoint = test_support::tiny_llama::write(folder.path()).expect("it can be written");
    let mut options = ConvertOptions::new(&checkpoint);
    options.output = Some(folder.path().join("llama.carton"));
    let converted = convert(&options, &()).expect("it can be converted");
    assert!(converted.carton().is_some_and(convert::CartonReport::is_model));
    let found = names(Path::new(&converted.output));
    assert_eq!(found.len(), converted.tensors, "{found:?}");
    let mut options = VerifyOptions::new(&converted.output);
    options.against = vec![checkpoint.into()];
    let report = verify(&options, &()).expect("a carton");
    assert_eq!((report.findings, report.tensors_compared), (Vec::new(), Some(converted.tensors)));
}

#[test]
fn a_carton_is_equal_to_its_checkpoint() {
    let (_folder, checkpoint, carton) =
        converted(&[("w", 1), ("a.b", 2), ("__tensors__.x", 3)], Selection::default());
    let mut options = VerifyOptions::new(&carton);
    options.against = vec![checkpoint.clone().into()];
    let report = verify(&options, &()).expect("a carton");
    assert_eq!(report.findings, []);
    assert_eq!((report.ok, report.tensors_compared), (true, Some(3)));
    // Compressed, the model cannot be mapped.
    let folder = UnpackOptions::new(&carton);
    let folder = PathBuf::from(unpack(&folder, &()).expect("it can be unpacked").output);
    let mut packing = PackOptions::new(folder);
    packing.compression = PackCompression::Zstd;
    pack(&packing, &()).expect("it can be packed");
    let report = verify(&options, &()).expect("a carton");
    assert!(report.ok, "{:?}", report.findings);
}

#[test]
fn only_own_names_are_compared_with_a_checkpoint() {
    let (_folder, checkpoint, carton) = converted(&[("w", 1), ("v", 2)], Selection::default());
    let findings = |selection: Selection| {
        let mut options = VerifyOptions::new(&carton);
        options.against = vec![checkpoint.clone().into()];
        options.selection = selection;
        let report = verify(&options, &()).expect("a carton");
        report.findings.into_iter().map(|finding| finding.what).collect::<Vec<_>>()
    };
    assert_eq!(findings(including("w")), ["tensor `v` is not in the checkpoint"]);
    let renamed = including("w").strip_prefix("w");
    assert_eq!(
        findings(renamed),
        [
            "tensor `tensor` is missing",
            "tensor `v` is not in the checkpoint",
            "tensor `w` is not in the checkpoint"
        ]
    );
    write_safetensors(&checkpoint, &[("w", 1), ("v", 3)]);
    assert_eq!(findings(Selection::default()), ["tensor `v` differs from the checkpoint in its elements"]);
    let (_folder, checkpoint, carton) = converted(&[("w", 1), ("v", 2)], including("w"));
    let mut options = VerifyOptions::new(carton);
    options.against = vec![checkpoint.into()];
    let report = verify(&options, &()).expect("a carton");
    assert_eq!(report.findings.len(), 1);
    assert_eq!(report.findings[0].what, "tensor `v` is missing");
}

#[test]
fn a_damaged_carton_is_a_report() {
    let (_folder, _, carton) = converted(&[("w", 1)], Selection::default());
    let mut bytes = std::fs::read(&carton).expect("it was written");
    let at = bytes.windows(4).position(|bytes| bytes == [1; 4]).expect("the tensor");
    bytes[at] = 2;
    std::fs::write(&carton, &bytes).expect("it can be written");
    let report = verify(&VerifyOptions::new(&carton), &()).expect("a carton");
    assert!(!report.ok);
    assert!(report.findings.iter().all(|finding| finding.entry == "model/model.pt"), "{report:?}");
    std::fs::write(&carton, &bytes[..bytes.len() - 30]).expect("it can be written");
    assert!(Carton::is_at(&carton.as_path().into()));
    let report = verify(&VerifyOptions::new(&carton), &()).expect("a carton");
    assert_eq!((report.ok, report.findings.len(), report.manifest_sha256), (false, 1, None));
}

#[test]
fn what_is_not_a_packed_carton_is_rejected_by_kind() {
    let (folder, checkpoint, carton) = converted(&[("w", 1)], Selection::default());
    let is_carton = |path: &Path| Carton::is_at(&path.into());
    assert!(is_carton(&carton) && !is_carton(&checkpoint) && !is_carton(folder.path()));
    let error = contents(&checkpoint).expect_err("a checkpoint");
    assert!(matches!(error.detail(), Some(Problem::IsCheckpoint { format: "safetensors", .. })), "{error}");
    let error = verify(&VerifyOptions::new(&checkpoint), &()).expect_err("a checkpoint");
    assert!(matches!(error.detail(), Some(Problem::IsCheckpoint { .. })), "{error}");
    let error = verify(&VerifyOptions::new(folder.path().join("no")), &()).expect_err("no file");
    assert!(error.detail::<byte_source::FileError>().is_some(), "{error}");
    let error = contents("s3://a/b.carton".as_ref()).expect_err("an address");
    assert!(error.to_string().ends_with(" is not a local path"), "{error}");
    let unpacked = unpack(&UnpackOptions::new(&carton), &()).expect("it can be unpacked").output;
    let error = unpack(&UnpackOptions::new(&unpacked), &()).expect_err("a folder");
    assert!(matches!(error.detail(), Some(Problem::IsFolder { .. })), "{error}");
    let error = pack(&PackOptions::new(&carton), &()).expect_err("a file");
    assert!(matches!(error.detail(), Some(Problem::NotAFolder { .. })), "{error}");
    let mut options = PackOptions::new(&unpacked);
    options.output = Some(Path::new(&unpacked).join("x.carton"));
    let error = pack(&options, &()).expect_err("inside");
    assert!(matches!(error.detail(), Some(Problem::OutputInFolder { .. })), "{error}");
    let mut options = VerifyOptions::new(&carton);
    options.selection = including("w");
    let error = verify(&options, &()).expect_err("no checkpoint");
    assert!(matches!(error.detail(), Some(Problem::NoCheckpoint)));
}

#[test]
fn a_carton_is_unpacked_next_to_itself() {
    let (folder, _, carton) = converted(&[("w", 1)], Selection::default());
    let UnpackReport { output, files, absent, .. } =
        unpack(&UnpackOptions::new(&carton), &()).expect("it can be unpacked");
    assert_eq!((Path::new(&output), files, absent), (folder.path().join("m").as_path(), 4, 0));
    let error = unpack(&UnpackOptions::new(&carton), &()).expect_err("it is there");
    assert!(matches!(error.detail(), Some(Problem::FolderNotEmpty { .. })), "{error}");
    let mut into = UnpackOptions::new(&carton);
    into.output = Some(output.clone().into());
    let error = unpack(&into, &()).expect_err("it is there");
    assert!(matches!(error.detail(), Some(Problem::FilesExist { paths }) if paths.len() == 4), "{error}");
    let mut again = UnpackOptions::new(&carton);
    again.force = true;
    unpack(&again, &()).expect("it is replaced");
    let before = std::fs::read(&carton).expect("it is there");
    let report = pack(&PackOptions::new(&output), &()).expect("it can be packed");
    assert_eq!(Path::new(&report.output), carton);
    let listed = contents(&carton).expect("a carton");
    assert_eq!(listed.manifest_sha256.as_deref(), Some(report.manifest_sha256.as_str()));
    std::fs::write(&carton, before).expect("it can be written");
    let before = contents(&carton).expect("a carton");
    assert_eq!(listed.manifest_sha256, before.manifest_sha256);
}

#[test]
fn a_stopped_unpack_or_pack_leaves_nothing() {
    let (folder, _, carton) = converted(&[("w", 1), ("v", 2)], Selection::default());
    let root = folder.path();
    let mut options = UnpackOptions::new(&carton);
    options.output = Some(root.join("a/b"));
    let clean = || assert_eq!(in_folder(root), ["m.carton", "m.safetensors"]);
    let report = stop_everywhere(|observer| unpack(&options, observer), clean);
    assert_eq!(report.files, 4);
    let mut options = PackOptions::new(root.join("a/b"));
    options.output = Some(root.join("n.carton"));
    options.compression = PackCompression::Deflate;
    let clean = || assert_eq!(in_folder(root), ["a", "m.carton", "m.safetensors"]);
    let report = stop_everywhere(|observer| pack(&options, observer), clean);
    // The same files, MANIFEST among them.
    assert_eq!(report.files, 4);
    let verified = verify(&VerifyOptions::new(root.join("n.carton")), &()).expect("a carton");
    assert_eq!(verified.files, 4);
}

#[test]
fn a_file_of_another_kind_is_not_a_damaged_carton() {
    let (folder, _, carton) = converted(&[("w", 1)], Selection::default());
    let bytes = std::fs::read(&carton).expect("a carton");
    let path = folder.path().join("x");
    let verified = |bytes: &[u8]| {
        std::fs::write(&path, bytes).expect("a temporary folder");
        verify(&VerifyOptions::new(&path), &()).map(|report| report.findings.len())
    };
    let unlisted = zip_of_another_program();
    for other in [&b"hello, world\n"[..], b"", b"\x7fELF", &unlisted] {
        let error = verified(other).expect_err("not a carton");
        assert_eq!(error.to_string(), format!("{} is not a carton", path.display()));
        let error = contents(&path).expect_err("not a carton");
        assert!(matches!(error.detail(), Some(Problem::NotACarton { .. })), "{error}");
    }
    // What is left of a carton is a damaged one.
    for end in [100, 400, bytes.len().saturating_sub(1)] {
        let start = bytes.get(..end).expect("it is longer");
        assert_eq!(verified(start).expect("a report"), 1, "{end} bytes");
    }
    let mut flipped = bytes;
    if let Some(first) = flipped.first_mut() {
        *first ^= 1;
    }
    assert_eq!(verified(&flipped).expect("a report"), 1);
}

/// A zip file without a document of a carton.
fn zip_of_another_program() -> Vec<u8> {
    test_support::stored_zip([("word/document.xml", b"text")])
}

#[test]
fn a_verification_can_be_stopped() {
    let (_folder, checkpoint, carton) = converted(&[("w", 1)], Selection::default());
    let mut options = VerifyOptions::new(&carton);
    options.against = vec![checkpoint.into()];
    let report = stop_everywhere(|observer| verify(&options, observer), || {});
    assert!(report.ok);
}

/// Serves the files of a folder over HTTP until the test ends, and returns the URL.
fn serve(folder: PathBuf) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            // A stopped download may close the connection before it has sent a request.
            let lines = BufReader::new(stream.try_clone().expect("a socket")).lines().map_while(Result::ok);
            let lines: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            let path = lines.first().and_then(|line| line.split(' ').nth(1)).unwrap_or_default();
            let path = path.trim_start_matches('/');
            let body = std::fs::read(folder.join(path)).unwrap_or_default();
            let head =
                format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
            // A stopped download closes the connection.
            let _ = stream.write_all(&[head.as_bytes(), &body].concat());
        }
    });
    url
}

#[test]
fn a_shrunk_carton_is_resolved_to_the_same_model() {
    let (folder, _, carton) = converted(&[("w", 1), ("v", 2)], Selection::default());
    let root = folder.path();
    let (small, whole, blobs) = (root.join("s.carton"), root.join("w.carton"), root.join("blobs"));
    let base = serve(blobs.clone());
    let mut options = ShrinkOptions::new(&carton, &small, &base, &blobs);
    options.min_size = 1;
    let no_carton = || assert!(!small.exists());
    let shrunk = stop_everywhere(|observer| shrink(&options, observer), no_carton);
    assert_eq!((shrunk.moved_files, in_folder(&blobs).len()), (1, 1));
    let unpacked = unpack(&UnpackOptions::new(&small), &()).expect("it can be unpacked");
    assert_eq!(unpacked.absent, 1);
    assert_eq!(unpacked.notes[0].to_string(), "1 file is not in the carton");
    assert_eq!(contents(&small).expect("a carton").absent[0].urls.len(), 1);

    let mut options = ResolveOptions::new(&small, &whole);
    options.allow_http = true;
    let before = in_folder(root);
    let clean = || assert_eq!(in_folder(root), before);
    let resolved = stop_everywhere(|observer| resolve(&options, observer), clean);
    assert_eq!((resolved.fetched_files, resolved.downloaded_nbytes), (1, shrunk.moved_nbytes));
    assert_eq!(resolved.manifest_sha256, shrunk.manifest_sha256);
    assert!(verify(&VerifyOptions::new(&whole), &()).expect("a carton").ok);

    options.cache = Some(root.join("cache"));
    resolve(&options, &()).expect("it can be fetched");
    let cached = resolve(&options, &()).expect("it is in the cache");
    assert_eq!((cached.downloaded_nbytes, cached.notes.len()), (0, 0));
    let name = in_folder(&root.join("cache"))[0].clone();
    std::fs::write(root.join("cache").join(&name), "damaged").expect("it can be written");
    let again = resolve(&options, &()).expect("it can be fetched");
    assert_eq!((again.downloaded_nbytes, again.notes.len()), (shrunk.moved_nbytes, 1));

    std::fs::write(blobs.join(name), "damaged").expect("it can be written");
    let mut options = ShrinkOptions::new(&carton, &small, &base, &blobs);
    options.min_size = 1;
    let error = shrink(&options, &()).expect_err("a damaged blob");
    assert!(matches!(error.detail(), Some(Problem::BlobLength { found: 7, .. })), "{error}");
    let mut options = ResolveOptions::new(&small, &whole);
    options.allow_http = true;
    let error = resolve(&options, &()).expect_err("a damaged blob");
    let Some(Problem::Fetch { failures, .. }) = error.detail() else { panic!("{error}") };
    assert!(matches!(failures[..], [remote_source::Error::WrongHash { .. }]), "{error}");
}

#[test]
fn arrays_become_tensors() {
    let (folder, _, carton) = converted(&[("w", 1)], Selection::default());
    let unpacked = unpack(&UnpackOptions::new(&carton), &()).expect("it can be unpacked").output;
    let header = "{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }\n";
    let len = u16::try_from(header.len()).expect("it is short").to_le_bytes();
    let path = folder.path().join("x.npy");
    let bytes = [b"\x93NUMPY\x01\x00", &len[..], header.as_bytes(), &1.5_f32.to_be_bytes()].concat();
    std::fs::write(&path, bytes).expect("a temporary folder");
    let mut options = PackOptions::new(&unpacked);
    options.tensors = vec![ArrayFile { name: "x".to_owned(), path: path.clone() }];
    pack(&options, &()).expect("it can be packed");
    let report = serde_json::to_value(contents(&carton).expect("a carton")).expect("it is JSON");
    assert_eq!(report["tensor_data"][0]["name"], "x");
    assert_eq!(report["tensor_data"][0]["dtype"], "float32");
    assert_eq!(report["format"], "carton");
    options.tensors.push(ArrayFile { name: "x".to_owned(), path: path.clone() });
    let error = pack(&options, &()).expect_err("twice").to_string();
    assert_eq!(error, "tensor `x`: two arrays have this name");
    options.tensors = vec![ArrayFile { name: "x".to_owned(), path: carton }];
    let error = pack(&options, &()).expect_err("no array");
    assert!(error.detail::<carton_tools::NpyError>().is_some());
}

/// A server keeps what it opened, and passes it to its threads.
#[test]
fn reports_are_static_and_can_be_shared() {
    const fn is_shared<T: 'static + Send + Sync>() {}
    is_shared::<carton_tools::ContentsReport>();
    is_shared::<carton_tools::VerifyReport>();
    is_shared::<carton_tools::PackReport>();
    is_shared::<carton_tools::UnpackReport>();
    is_shared::<carton_tools::ShrinkReport>();
    is_shared::<carton_tools::ResolveReport>();
    is_shared::<Error>();
}
