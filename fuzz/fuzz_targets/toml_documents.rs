//! A document of a carton that is parsed, printed and parsed again is the same document, and problems are inside the text.

#![no_main]

use std::fmt::Debug;

use carton_format::{
    Config, Error, FileLen, Links, Manifest, Parsed, Problem, StringTensorFile, TensorIndex,
};
use libfuzzer_sys::{Corpus, fuzz_target};

fuzz_target!(|bytes: &[u8]| -> Corpus {
    let Some((which, Ok(text))) = bytes.split_first().map(|(first, rest)| (first, str::from_utf8(rest)))
    else {
        return Corpus::Reject;
    };
    // Digits, so that the seeds are readable.
    match which {
        b'0' => check(text, Config::parse, |config| config.document.to_toml(), |parsed| parsed.document),
        b'1' => check(text, index, |index| index.document.to_toml(), |parsed| parsed.document),
        b'2' => check(text, Links::parse, Links::to_toml, |links| links),
        b'3' => check(text, Manifest::parse, |manifest| Ok(manifest.to_string()), |manifest| manifest),
        b'4' => places(text, StringTensorFile::parse("tensor_data/x.toml", text, 2).err()),
        _ => return Corpus::Reject,
    }
    Corpus::Keep
});

fn index(text: &str) -> Result<Parsed<TensorIndex>, Error> {
    TensorIndex::parse(text, &|path| match path.len() % 3 {
        0 => FileLen::Missing,
        1 => FileLen::Unknown,
        _ => FileLen::Bytes(8),
    })
}

fn check<T, D: Debug + PartialEq>(
    text: &str,
    parse: impl Fn(&str) -> Result<T, Error>,
    print: impl Fn(&T) -> Result<String, Problem>,
    document: impl Fn(T) -> D,
) {
    let parsed = match parse(text) {
        Ok(parsed) => parsed,
        Err(error) => return places(text, Some(error)),
    };
    let printed = print(&parsed).expect("it was read from a text");
    let again = parse(&printed).expect("it was printed from a valid document");
    assert_eq!(print(&again).expect("it was printed before"), printed);
    let (document, again) = (document(parsed), document(again));
    let texts = [format!("{document:?}"), format!("{again:?}")];
    // Numbers that are not a number differ from themselves; places are those of another text.
    assert!(document == again || texts[0].contains("NaN") || texts[0].contains("places"), "{texts:?}");
}

/// Every problem has a place inside the text.
fn places(text: &str, error: Option<Error>) {
    let Some(Ok(Problem::Document(problems))) = error.map(Error::downcast) else { return };
    assert!(!problems.0.is_empty());
    for problem in problems.0 {
        let Some(place) = problem.place else { continue };
        assert!(place.line >= 1 && place.column >= 1);
        assert!(place.line <= text.split('\n').count(), "{problem}");
    }
}
