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
    let model = Tokenizer::from_file("tokenizer.model", b"\n\x0e\n\x05<unk>\x15\0\0\0\0\x18\x02");
    assert!(matches!(model, Err(Error::Unsupported { reason: "a SentencePiece model", .. })));
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
    assert_eq!(reason(bytes.clone() + &line(b"a", 256)), "two lines have the same token");
    assert_eq!(reason(line(b"a", 0)), "no token stands for the byte 0");
    assert_eq!(
        reason(bytes.clone() + &line(&[b'a'; 600], 256)),
        "line 257: a token of 600 bytes, expected 1 to 512"
    );
    assert_eq!(reason(bytes + &line(b"", 256)), "line 257: a token of 0 bytes, expected 1 to 512");
}
