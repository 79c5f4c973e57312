//! A tokenizer's file is read or refused, and a text becomes tokens, and tokens a text, or an error: nothing else panics, and
//! memory and time are bounded; a `SentencePiece` model is one, too. In Llama 3's format, tokens become the text that they were made of, at once and one by one.

#![no_main]

use std::panic;

use generate::{Tokenizer, is_catching_panics};
use libfuzzer_sys::{Corpus, fuzz_target};

fuzz_target!(
    init: {
        // That of libFuzzer ends the process, and a panic of the library that reads the files is an error here.
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !is_catching_panics() {
                before(panic);
            }
        }));
    },
    |bytes: &[u8]| -> Corpus {
        // The text, a byte 0, and the file. A text in JSON or base64 has no such byte.
        let Some(at) = bytes.iter().position(|&byte| byte == 0) else { return Corpus::Reject };
        let (text, file) = (String::from_utf8_lossy(&bytes[..at]), &bytes[at + 1..]);
        if let Ok(tokenizer) = Tokenizer::from_file("tokenizer.json", file) {
            if let Ok(tokens) = tokenizer.encode(&text) {
                let _ = one_by_one(&tokenizer, &tokens);
                let _ = tokenizer.decode(&tokens);
            }
            // Those that a model may choose.
            for token in 0..8 {
                let _ = tokenizer.decode_one(token);
            }
            let _ = one_by_one(&tokenizer, &[7, 0, 1, u32::MAX, 2, 3]);
        }
        if let Ok(tokenizer) = Tokenizer::from_file("tokenizer.model", file) {
            let is_ranks = Tokenizer::json_of_tiktoken(file).is_ok_and(|json| json.is_some());
            let tokens = tokenizer.encode(&text).expect("it is short");
            assert_eq!(tokenizer.encode(&text).as_ref(), Ok(&tokens));
            let decoded = tokenizer.decode(&tokens).expect("they are few");
            let streamed = one_by_one(&tokenizer, &tokens);
            if is_ranks {
                assert_eq!(streamed.as_ref(), Ok(&decoded));
                // The names of special tokens are left out.
                if !text.contains("<|") {
                    assert_eq!(decoded, text);
                }
            }
        }
        Corpus::Keep
    }
);

/// The text of tokens that come one after the other.
fn one_by_one(tokenizer: &Tokenizer, tokens: &[u32]) -> generate::Result<String> {
    let mut stream = tokenizer.stream(&[])?;
    let mut text = String::new();
    for token in tokens {
        text += &stream.push(*token)?;
    }
    Ok(text + &stream.finish()?)
}
