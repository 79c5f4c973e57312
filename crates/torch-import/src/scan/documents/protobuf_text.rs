//! Reads protocol buffers as text, in which Caffe has its networks and Triton the settings of a model.
//!
//! Facts: the specification of the text format; `python_param` of Caffe, which imports a module, and `hdf5_output_param`, which opens a
//! file to write; `EXECUTION_ENV_PATH` of Triton's Python backend, an environment that it runs; `op` of a
//! graph of `TensorFlow`; `external_data` of a tensor of ONNX.

use super::judge::Judge;

/// Reads a message: the events of its fields.
pub(super) fn read(bytes: &[u8], judge: &mut Judge<'_>) {
    let text = String::from_utf8_lossy(bytes);
    let (mut rest, mut is_value) = (&*text, false);
    // Open messages and lists, of which the latter have no keys.
    let mut levels = vec![false];
    judge.open(true);
    while let Some(first) = rest.chars().next() {
        let at = text.len().saturating_sub(rest.len()) as u64;
        match first {
            '#' => rest = rest.split_once('\n').map_or("", |(_, rest)| rest),
            '"' | '\'' => {
                let (value, after) = joined_text(rest);
                judge.text(&value, at);
                (rest, is_value) = (after, false);
            }
            // Without a colon before it, a name in brackets is that of an extension.
            '{' | '<' | '[' if first != '[' || is_value => {
                if !judge.open(first != '[') {
                    return;
                }
                levels.push(first == '[');
                (rest, is_value) = (rest.get(1..).unwrap_or_default(), false);
            }
            '}' | '>' | ']' => {
                if levels.len() > 1 && (first != ']' || levels.last() == Some(&true)) {
                    judge.close(at);
                    levels.pop();
                }
                rest = rest.get(1..).unwrap_or_default();
            }
            ':' => (rest, is_value) = (rest.get(1..).unwrap_or_default(), true),
            _ if first.is_ascii_alphanumeric() || matches!(first, '_' | '-' | '.') => {
                let end =
                    rest.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '+')));
                let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
                match word {
                    "op" if !is_value => {
                        judge.add_missed(|| {
                            "a graph of TensorFlow, whose operators may write files".to_owned()
                        });
                    }
                    "external_data" => {
                        judge.add_missed(|| "the numbers that an ONNX model has in other files".to_owned());
                    }
                    _ => {}
                }
                judge.text(word, at);
                (rest, is_value) = (after, false);
            }
            _ => rest = rest.get(first.len_utf8()..).unwrap_or_default(),
        }
    }
    for _ in levels {
        judge.close(text.len() as u64);
    }
}

/// Reads texts that follow one another, which are one text. Returns what follows them.
fn joined_text(mut rest: &str) -> (String, &str) {
    let mut value = Vec::new();
    while let Some(quote) = rest.chars().next().filter(|first| matches!(first, '"' | '\'')) {
        let mut chars = rest.char_indices().skip(1);
        let mut end = rest.len();
        while let Some((at, next)) = chars.next() {
            if next == quote {
                end = at.saturating_add(1);
                break;
            }
            if next != '\\' {
                value.extend_from_slice(next.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
            let after = rest.get(at.saturating_add(1)..).unwrap_or_default();
            let (byte, len) = escape(after);
            value.push(byte);
            for _ in 0..len {
                chars.next();
            }
        }
        rest = rest.get(end..).unwrap_or_default().trim_start();
    }
    (String::from_utf8_lossy(&value).into_owned(), rest)
}

/// Reads an escape after its backslash: the byte, and the number of its characters.
fn escape(after: &str) -> (u8, usize) {
    let digits = |from: usize, most: usize, radix: u32| {
        let digits = after.get(from..).unwrap_or_default().chars().take(most);
        digits.take_while(|digit| digit.is_digit(radix)).count()
    };
    let number = |from: usize, len: usize, radix: u32| {
        let text = after.get(from..from.saturating_add(len)).unwrap_or_default();
        u8::try_from(u32::from_str_radix(text, radix).unwrap_or(0) & 0xff).unwrap_or(0)
    };
    match after.bytes().next() {
        Some(b'x' | b'X') => {
            let len = digits(1, 2, 16);
            (number(1, len, 16), len.saturating_add(1))
        }
        Some(b'0'..=b'7') => {
            let len = digits(0, 3, 8);
            (number(0, len, 8), len)
        }
        Some(b'n') => (b'\n', 1),
        Some(byte) if byte.is_ascii() => (byte, 1),
        _ => (b'?', 1),
    }
}
