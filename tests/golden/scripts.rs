//! Notes and refusals about TorchScript modules that Carton's runner cannot run as they are. `scripts.py` writes the files.

use crate::carton_tools::{run, scratch};
use crate::program::folder;

#[test]
fn scripts_that_carton_cannot_run_are_noted_or_refused() {
    let scratch = scratch();
    let root = scratch.path();
    let mut files: Vec<_> = folder().join("scripts").read_dir().expect("it is there").flatten().collect();
    files.sort_by_key(std::fs::DirEntry::file_name);
    let mut texts = String::new();
    for file in files {
        let name = file.file_name().into_string().expect("plain names");
        std::fs::copy(file.path(), root.join(&name)).expect("it can be copied");
        for flags in [&[][..], &["--input", "x=bfloat16[batch,4]"]] {
            let (status, text) = run(root, &[&["--force", name.as_str()], flags].concat());
            texts.extend([name.as_str(), " ", &flags.join(" "), &format!(": status {status:?}\n")]);
            let is_message = |line: &&str| line.starts_with("note") || line.starts_with("error: ");
            texts.extend(text.lines().filter(is_message).flat_map(|line| [line, "\n"]));
        }
    }
    insta::assert_snapshot!(texts);
}
