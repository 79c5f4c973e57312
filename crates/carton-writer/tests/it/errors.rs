//! Pins the text of the error.

use carton_writer::Problem;

#[test]
fn a_wrong_hash_has_its_text() {
    let (found, expected) = ("0123".to_owned(), "4567".to_owned());
    let problem = Problem::Hash { path: "misc/a".to_owned(), found, expected };
    assert_eq!(problem.to_string(), "`misc/a` has SHA-256 0123, expected 4567");
}
