//! Error texts of sets of files that are not a checkpoint together, and of damaged shards.

use crate::program::{folder, torch2carton, transcript};

#[test]
fn sets_are_refused() {
    let mut names: Vec<String> = folder()
        .join("shards")
        .read_dir()
        .expect("the inputs are checked in")
        .map(|entry| entry.expect("it can be listed").path())
        .filter(|path| path.is_dir())
        .map(|path| path.file_name().unwrap_or_default().to_string_lossy().into_owned())
        .collect();
    names.sort();
    let mut texts = String::new();
    for name in names {
        let scratch = tempfile::tempdir().expect("a temporary folder");
        let target = scratch.path().join("out.carton");
        let set = format!("shards/{name}");
        let args =
            [set.as_ref(), "-q".as_ref(), "--arch=weights".as_ref(), "-o".as_ref(), target.as_os_str()];
        let output = torch2carton(args);
        assert_eq!(output.status.code(), Some(1), "{name}: {}", transcript(&output));
        let left = scratch.path().read_dir().expect("it is there").count();
        assert_eq!(left, 0, "{name} left something");
        let text = transcript(&output).replace("exit status 1\n", "");
        let text = text.replace(&*scratch.path().to_string_lossy(), "SCRATCH");
        texts.extend([&name, "\n  ", &text]);
    }
    insta::assert_snapshot!(texts);
}
