//! Tokenizer files that are nonsense, or traps: each is an error, and none ends the process.
#![cfg(feature = "tokenizer")]

use generate::{Error, Tokenizer};
use serde_json::{Value, json};

/// A byte-level tokenizer of a few letters, with `change` made to it.
fn changed(change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let mut file = json!({
        "version": "1.0",
        "added_tokens": [{
            "id": 5, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true
        }],
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "fuse_unk": false, "byte_fallback": false,
            "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "\u{120}": 4}, "merges": [["a", "b"]]
        }
    });
    change(&mut file);
    file.to_string().into_bytes()
}

fn read(change: impl FnOnce(&mut Value)) -> Result<Tokenizer, Error> {
    Tokenizer::from_file("tokenizer.json", &changed(change))
}

fn refused(change: impl FnOnce(&mut Value)) -> Error {
    read(change).expect_err("it is hostile")
}

#[test]
fn the_unchanged_file_works() {
    let tokenizer = read(|_| ()).expect("a tokenizer");
    let tokens = tokenizer.encode("abc ab<s>").expect("known letters");
    assert_eq!(tokens, [3, 2, 4, 3, 5]);
    assert_eq!(tokenizer.decode(&tokens).as_deref(), Ok("abc ab"));
    assert_eq!(tokenizer.decode_one(5).as_deref(), Ok("<s>"));
    assert_eq!(tokenizer.decode(&[3, 99, 0]).as_deref(), Ok("aba"));
}

#[test]
fn what_is_not_a_tokenizer_is_an_error() {
    for bytes in [&b""[..], b"{}", b"[1]", b"\xff\xfe", b"{\"model\": {\"vocab\": 3}}", b"null"] {
        let error = Tokenizer::from_file("tokenizer.json", bytes).expect_err("not a tokenizer");
        assert!(matches!(error, Error::Invalid { .. }), "{error:?}");
    }
    let deep = [b"{\"model\":".to_vec(), b"[".repeat(1_000_000)].concat();
    assert!(matches!(Tokenizer::from_file("tokenizer.json", &deep), Err(Error::Invalid { .. })));
    let model: &[u8] = b"\n\x0e\n\x05<unk>\x15\0\0\0\0\x18\x02";
    assert!(Tokenizer::from_file("tokenizer.model", model).is_ok());
    for len in 0..model.len() {
        let cut = Tokenizer::from_file("tokenizer.model", model.get(..len).unwrap_or_default());
        assert!(matches!(cut, Err(Error::Invalid { .. })), "{len}");
    }
    let words = [model, b"\x12\x02\x18\x03"].concat();
    assert!(matches!(Tokenizer::from_file("tokenizer.model", &words), Err(Error::Unsupported { .. })));
    let other = Tokenizer::from_file("sentencepiece.bpe.model", model);
    assert!(matches!(other, Err(Error::Unsupported { .. })));
    assert!(matches!(Tokenizer::from_file("vocab.json", b"{}"), Err(Error::Unsupported { .. })));
    let mut none = |_: &str| Ok::<_, Error>(None);
    assert_eq!(Tokenizer::from_files(&mut none).expect_err("no file"), Error::NoTokenizer);
}

#[test]
fn a_panic_of_the_library_is_an_error() {
    // The library expects a decoder to be an object.
    let error = refused(|file| file["decoder"] = json!(7));
    assert!(matches!(error, Error::Invalid { .. }), "{error:?}");
    // It cuts more characters off the end than there are.
    let strip = json!({"type": "Strip", "content": "a", "start": 0, "stop": 9});
    let tokenizer = read(|file| file["decoder"] = strip).expect("a tokenizer");
    assert!(matches!(tokenizer.decode(&[0]), Err(Error::Tokenizer { .. })));
    assert_eq!(tokenizer.encode("ab"), Ok(vec![3]), "it still works");
    // A table of characters that leads out of itself.
    let map = json!({"type": "Precompiled", "precompiled_charsmap": "BAAAAP////8A"});
    match read(|file| file["normalizer"] = map) {
        Ok(tokenizer) => {
            let _ = tokenizer.encode("\u{e4}bc");
        }
        Err(error) => assert!(matches!(error, Error::Invalid { .. }), "{error:?}"),
    }
}

#[test]
fn components_that_double_a_text_again_and_again_are_refused() {
    let double = json!({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"});
    let between = json!({"type": "Replace", "pattern": {"Regex": ""}, "content": "aa"});
    let bytes =
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
    for component in [double, between, bytes] {
        for (place, list) in
            [("normalizer", "normalizers"), ("pre_tokenizer", "pretokenizers"), ("decoder", "decoders")]
        {
            let error = refused(|file| {
                file[place] = json!({"type": "Sequence", list: vec![component.clone(); 60]});
            });
            assert!(matches!(error, Error::TextExpansion { .. }), "{place}: {error:?}");
        }
    }
    let once = json!({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"});
    let tokenizer = read(|file| file["normalizer"] = once).expect("once is fine");
    assert_eq!(tokenizer.encode("ab"), Ok(vec![0, 3]));
    let long = "b".repeat(40 << 20);
    assert!(matches!(tokenizer.encode(&long), Err(Error::TextExpansion { .. })));
}

#[test]
fn tokens_that_are_repeated_again_and_again_are_refused() {
    let twice = json!({
        "type": "TemplateProcessing", "special_tokens": {}, "pair": [],
        "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    });
    let error = refused(|file| {
        file["post_processor"] = json!({"type": "Sequence", "processors": vec![twice; 60]});
    });
    assert!(matches!(error, Error::TextExpansion { .. }), "{error:?}");
}

#[test]
fn padding_and_truncation_of_a_file_do_not_count() {
    let tokenizer = read(|file| {
        file["padding"] = json!({
            "strategy": {"Fixed": 1_u64 << 60}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0,
            "pad_type_id": 0, "pad_token": "a"
        });
        file["truncation"] =
            json!({"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0});
    });
    assert_eq!(tokenizer.expect("a tokenizer").encode("abc"), Ok(vec![3, 2]));
}

#[test]
fn a_vocabulary_with_a_token_of_a_million_bytes_is_refused() {
    // The library frees it by recursion, a level for each byte.
    let error = refused(|file| {
        file["model"] = json!({"type": "Unigram", "unk_id": 0, "vocab": [["a".repeat(1 << 20), 0.0]]});
    });
    assert!(matches!(error, Error::LongToken { found: 1_048_576, .. }), "{error:?}");
    let error = refused(|file| file["added_tokens"][0]["content"] = json!("a".repeat(5000)));
    assert!(matches!(error, Error::LongToken { found: 5000, .. }), "{error:?}");
}

#[test]
fn tiktoken_files_are_checked() {
    let line = |bytes: &[u8], rank: usize| {
        use base64::Engine;
        format!("{} {rank}\n", base64::engine::general_purpose::STANDARD.encode(bytes))
    };
    let bytes: String = (0..=255).map(|byte| line(&[byte], usize::from(byte))).collect();
    let read = |text: String| Tokenizer::from_file("tokenizer.model", text.as_bytes());
    let reason = |text: String| match read(text) {
        Err(Error::Invalid { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    let tokenizer = read(bytes.clone() + &line(b"ab", 256) + &line(b"abab", 257)).expect("a tokenizer");
    // `abab` is a token, so it needs no merges; and text starts with <|begin_of_text|>, the first token after those of the file.
    assert_eq!(tokenizer.encode("abab ab"), Ok(vec![258, 257, 32, 256]));
    assert_eq!(tokenizer.encode("<|eot_id|>"), Ok(vec![258, 267]));
    assert_eq!(tokenizer.stops(), [259, 266, 267]);
    assert_eq!(tokenizer.decode(&[258, 228, 184, 173, 256]).as_deref(), Ok("中ab"));
    assert_eq!(reason(bytes.clone() + &line(b"ab", 300)), "line 257: rank 300, expected 256");
    assert_eq!(reason(bytes.clone() + "?"), "line 257: not base64, a space and a number");
    assert_eq!(reason(bytes.clone() + &line(b"a", 256)), "two tokens are the same");
    assert_eq!(reason(line(b"a", 0)), "no token stands for the byte 0");
    assert_eq!(
        reason(bytes.clone() + &line(&[b'a'; 600], 256)),
        "line 257: a token of 600 bytes, expected 1 to 512"
    );
    assert_eq!(reason(bytes + &line(b"", 256)), "line 257: a token of 0 bytes, expected 1 to 512");
}

/// A `Unigram` of `a`, `aa` and so on up to `longest` letters.
fn unigram(longest: usize) -> Value {
    let vocab: Vec<Value> = (1..=longest).map(|len| json!(["a".repeat(len), -1.0])).collect();
    json!({"type": "Unigram", "unk_id": 0, "vocab": vocab})
}

#[test]
fn a_text_is_not_made_thousands_of_times_as_long() {
    let between = json!({"type": "Replace", "pattern": {"Regex": ""}, "content": "a".repeat(250)});
    let list = |count| json!({"type": "Sequence", "normalizers": vec![between.clone(); count]});
    read(|file| file["normalizer"] = list(1)).expect("once is fine");
    let error = refused(|file| file["normalizer"] = list(2));
    assert!(matches!(error, Error::TextExpansion { .. }), "{error:?}");
}

#[test]
fn components_with_long_texts_are_refused() {
    let long = "a".repeat(1 << 20);
    let prepend = json!({"type": "Prepend", "prepend": long});
    let replace = json!({"type": "Replace", "pattern": {"String": "b"}, "content": long});
    let pattern = json!({"type": "Replace", "pattern": {"Regex": "(a|b)".repeat(1000)}, "content": ""});
    for (component, what, found) in
        [(prepend, "text", 1 << 20), (replace, "text", 1 << 20), (pattern, "pattern", 5000)]
    {
        let error = refused(|file| file["normalizer"] = component);
        let Error::LongComponent { part: "normalizer", what: found_what, found: bytes, .. } = error else {
            panic!("{error:?}")
        };
        assert_eq!((found_what, bytes), (what, found));
    }
    let error = refused(|file| file["model"]["continuing_subword_prefix"] = json!("a".repeat(5000)));
    assert!(matches!(error, Error::LongComponent { part: "model", found: 5000, .. }), "{error:?}");
}

#[test]
fn lists_of_many_components_are_refused() {
    let split = json!({"type": "Split", "pattern": {"Regex": "a+"}, "behavior": "Isolated", "invert": false});
    let list = |count| json!({"type": "Sequence", "pretokenizers": vec![split.clone(); count]});
    read(|file| file["pre_tokenizer"] = list(63)).expect("fewer are read");
    let error = refused(|file| file["pre_tokenizer"] = list(5000));
    let expected = "`tokenizer.json` needs 5001 components for its pre_tokenizer, at most 64 are run; use a shorter text or another tokenizer";
    assert_eq!(error.to_string(), expected);
    let strip = json!({"type": "Strip", "content": "a", "start": 1, "stop": 1});
    let error = refused(|file| file["decoder"] = json!({"type": "Sequence", "decoders": vec![strip; 5000]}));
    assert!(matches!(error, Error::TokenizerWork { part: "decoder", .. }), "{error:?}");
    // Each added token goes through the normalizer when the file is read.
    let error = refused(|file| {
        let added = |id: usize| {
            json!({"id": id, "content": format!("<{id}>"), "single_word": false, "lstrip": false, "rstrip": false,
                   "normalized": true, "special": false})
        };
        file["added_tokens"] = (5..20_005).map(added).collect();
        file["normalizer"] = json!({"type": "Sequence", "normalizers": vec![json!({"type": "NFC"}); 40]});
    });
    assert!(matches!(error, Error::TokenizerWork { part: "added tokens", .. }), "{error:?}");
}

#[test]
fn the_work_of_a_model_is_bounded_before_it_runs() {
    let word_piece = json!({
        "type": "WordPiece", "unk_token": "a", "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 1_u64 << 40, "vocab": {"a": 0, "##a": 1}
    });
    let whole = |file: &mut Value, model: Value| {
        file["pre_tokenizer"] = Value::Null;
        file["decoder"] = Value::Null;
        file["added_tokens"] = json!([]);
        file["model"] = model;
    };
    let tokenizer = read(|file| whole(file, word_piece)).expect("a tokenizer");
    assert_eq!(tokenizer.encode("aaa"), Ok(vec![0, 1, 1]));
    let error = tokenizer.encode(&"a".repeat(100_000)).expect_err("every part of the word would be tried");
    assert!(matches!(error, Error::TokenizerWork { part: "model `WordPiece`", .. }), "{error:?}");
    // Words of ordinary length are fine.
    let bert = json!({
        "type": "WordPiece", "unk_token": "a", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
        "vocab": {"a": 0, "##a": 1}
    });
    let tokenizer = read(|file| {
        whole(file, bert);
        file["pre_tokenizer"] = json!({"type": "Whitespace"});
    });
    let words = "aaaaa ".repeat(100_000);
    assert_eq!(tokenizer.expect("a tokenizer").encode(&words).map(|tokens| tokens.len()), Ok(500_000));

    let tokenizer = read(|file| whole(file, unigram(2000))).expect("a tokenizer");
    assert_eq!(tokenizer.encode("aaa").map(|tokens| tokens.len()), Ok(1));
    let error = tokenizer.encode(&"a".repeat(100_000)).expect_err("2000 tokens start at each letter");
    assert!(matches!(error, Error::TokenizerWork { part: "model `Unigram`", .. }), "{error:?}");
    let tokenizer = read(|file| whole(file, unigram(90))).expect("a tokenizer");
    assert!(tokenizer.encode(&"a".repeat(50_000)).is_ok(), "the longest real tokens have about 90 bytes");
}

fn split(pattern: &str) -> Value {
    json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false})
}

fn replace(pattern: &str) -> Value {
    json!({"type": "Replace", "pattern": {"Regex": pattern}, "content": "b"})
}

#[test]
fn the_work_of_patterns_is_bounded_by_the_text() {
    let text = "a".repeat(20_000);
    let part = |error: Error| match error {
        Error::PatternWork { part, .. } => part,
        other => panic!("{other:?}"),
    };
    // Each match looks ahead to the end of the text; each attempt fails there; and each in many ways.
    for pattern in ["(?<=a)a(?=a*$)", "a(?=a*$)", "a*c|a", "(?:a|aa)+c", "(?:a*)*c", "(?:(?=a)a?){0,10}c"] {
        let tokenizer = read(|file| file["pre_tokenizer"] = split(pattern)).expect("a tokenizer");
        assert_eq!(part(tokenizer.encode(&text).expect_err(pattern)), "pre_tokenizer");
        assert!(tokenizer.encode("aaaa").is_ok(), "{pattern}");
    }
    // The other parts count the same steps.
    let pattern = "a*c|a";
    let tokenizer = read(|file| file["normalizer"] = replace(pattern)).expect("a tokenizer");
    assert_eq!(part(tokenizer.encode(&text).expect_err(pattern)), "normalizer");
    assert!(tokenizer.encode("aaaa").is_ok());
    let decoder = json!({"type": "Sequence", "decoders": [{"type": "Fuse"}, replace(pattern)]});
    let tokenizer = read(|file| file["decoder"] = decoder).expect("a tokenizer");
    assert_eq!(part(tokenizer.decode(&vec![0; 20_000]).expect_err(pattern)), "decoder");
    assert!(tokenizer.decode(&[0, 5, 1]).is_ok());
    // Added tokens are normalized when the file is read.
    let error = refused(|file| {
        file["normalizer"] = replace("(?:a|aa)+c");
        file["added_tokens"][0]["content"] = json!("a".repeat(4000));
        file["added_tokens"][0]["normalized"] = json!(true);
    });
    assert!(matches!(error, Error::PatternWork { part: "normalizer", .. }), "{error:?}");
}

#[test]
fn patterns_that_become_large_are_refused() {
    let refused_for = |component: Value| match refused(|file| file["pre_tokenizer"] = component) {
        Error::Pattern { part: "pre_tokenizer", reason, .. } => reason,
        other => panic!("{other:?}"),
    };
    let expected = "127552 parts when its repetitions are written out, expected at most 512";
    assert_eq!(refused_for(split("((a{1,50}){1,50}){1,50}c")), expected);
    let many = json!({"type": "Sequence", "pretokenizers": vec![split(r"\p{L}{1,300}"); 4]});
    assert_eq!(refused_for(many), "its patterns have 1200 parts together, expected at most 1024");
    assert!(refused_for(split(r"(a)\1")).contains("a back reference"));
}

#[test]
fn decoders_that_search_decode_as_the_library_does() {
    let decoder =
        json!({"type": "Sequence", "decoders": [replace("^\u{120}"), {"type": "Fuse"}, replace("a(?!b)")]});
    let tokenizer = read(|file| file["decoder"] = decoder).expect("a tokenizer");
    assert_eq!(tokenizer.decode(&[4, 0, 3, 5]).as_deref(), Ok("bbab"));
    assert_eq!(tokenizer.decode_one(5).as_deref(), Ok("<s>"));
}

#[test]
fn added_tokens_that_strip_themselves_are_refused() {
    // For each of them in a run of white space, the library would copy the rest of the run.
    for (content, normalized, side) in
        [(" ", false, "rstrip"), ("\u{3000}\n", false, "lstrip"), ("x", true, "rstrip")]
    {
        let error = refused(|file| {
            file["normalizer"] = json!({"type": "Replace", "pattern": {"String": "x"}, "content": "\t"});
            file["added_tokens"][0]["content"] = json!(content);
            file["added_tokens"][0]["normalized"] = json!(normalized);
            file["added_tokens"][0][side] = json!(true);
        });
        let expected = "an added token is white space, and strips white space around itself";
        assert!(matches!(error, Error::Unsupported { reason, .. } if reason == expected), "{error:?}");
    }
    let tokenizer = read(|file| file["added_tokens"][0]["content"] = json!(" ")).expect("it strips nothing");
    assert_eq!(tokenizer.encode(&" ".repeat(100_000)).map(|tokens| tokens.len()), Ok(100_000));
    let tokenizer =
        read(|file| file["added_tokens"][0]["rstrip"] = json!(true)).expect("it is not white space");
    assert_eq!(tokenizer.encode("<s>  a"), Ok(vec![5, 0]));
}
