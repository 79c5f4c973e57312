//! What is left when a signal ends a program. A process of its own: `remove_unfinished` concerns all its outputs.

use std::io::Write;

use output::{IfExists, OutputFile, RECORDS_NAME, Scratch};

#[test]
fn unfinished_files_and_folders_are_removed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let left = || {
        let entries = folder.path().read_dir().expect("it exists").flatten();
        entries.filter(|entry| entry.file_name() != RECORDS_NAME).count()
    };
    let mut output = OutputFile::create(folder.path().join("x"), 3).expect("there is room");
    output.write_all(b"abc").expect("it can be written");
    let scratch = Scratch::create(folder.path()).expect("it can be created");
    std::fs::write(scratch.path().join("y"), b"y").expect("it can be written");
    let committed = OutputFile::create(folder.path().join("z"), 0).expect("there is room");
    committed.commit(IfExists::Fail).expect("it can be renamed");
    assert_eq!(left(), 3);
    drop(output::remove_unfinished());
    assert_eq!(left(), 1);
    assert!(folder.path().join("z").exists());
    output.commit(IfExists::Replace).expect_err("its file was removed");
}
