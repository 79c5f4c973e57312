//! Helpers for tests that measure a whole process, such as its peak memory.

#![expect(clippy::print_stdout, reason = "the figures are shown with --nocapture")]

use std::path::Path;
use std::process::Command;

/// Environment variable that names the case of a child process.
const CASE: &str = "TEST_SUPPORT_CASE";

/// Runs each case in a process of its own, two at a time: starts the test program again with the test `test`, which calls this function
/// again, and runs `run` for one case there. Prints the output of each case.
///
/// `test` is the path of the calling test in its program, such as `memory::memory_is_bounded_by_the_pickle`.
///
/// # Panics
///
/// Panics if a case fails, or if the program has no test with this path.
pub fn each_in_own_process<'c>(test: &str, cases: impl IntoIterator<Item = &'c str>, run: impl Fn(&str)) {
    if let Ok(case) = std::env::var(CASE) {
        run(&case);
        return;
    }
    let program = std::env::current_exe().expect("a test has a program");
    let cases: Vec<&str> = cases.into_iter().collect();
    let (first, second) = cases.split_at(cases.len() / 2);
    std::thread::scope(|scope| {
        for half in [first, second] {
            scope.spawn(|| half.iter().for_each(|case| check_case(&program, test, case)));
        }
    });
}

fn check_case(program: &Path, test: &str, case: &str) {
    let output = run_case(program, test, case);
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{case}: {printed}{}", String::from_utf8_lossy(&output.stderr));
    assert!(printed.contains("1 passed"), "{case}: the program has no test {test}");
    println!("{case}: {printed}");
}

fn run_case(program: &Path, test: &str, case: &str) -> std::process::Output {
    let mut child = Command::new(program);
    child.args(["--exact", test, "--nocapture"]).env(CASE, case);
    child.output().expect("a test can be run again")
}

/// Returns the peak memory of this process, in bytes.
///
/// # Panics
///
/// Panics on systems other than Linux, which do not have `/proc/self/status`.
pub fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux counts it");
    let kibibytes: u64 = line.trim().trim_end_matches("kB").trim().parse().expect("it is a number");
    kibibytes << 10
}
