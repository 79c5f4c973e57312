//! Names of the outputs of a TorchScript module that a conversion wrapped.
//!
//! Facts: carton.toml lists only outputs whose dtype and shape are known, which those of a module are not. The code of the
//! wrapper, which a conversion writes, names each output in a call `put_1(out, "NAME", value)`.

use torch_import::Container;

/// End of the name of the record with the wrapper.
const WRAPPER: &str = "code/__torch__/torch2carton.py";
/// Start of a call that adds an output with a fixed name, after the name of the function.
const CALL: &str = "(out, \"";
const NAMES_MAX: usize = 1024;

/// Returns the names of the outputs; none for a module that was not wrapped, or whose names depend on the inputs.
pub(crate) fn script_outputs(model: &Container) -> Vec<String> {
    let records = model.records_besides_storages();
    let wrapper = records.iter().find(|(name, _)| name.ends_with(WRAPPER));
    let bytes = wrapper.and_then(|(_, bytes)| bytes.as_deref()).unwrap_or_default();
    std::str::from_utf8(bytes).map(output_names).unwrap_or_default()
}

fn output_names(code: &str) -> Vec<String> {
    let mut names = Vec::new();
    for after in code.split("torch2carton.put").skip(1) {
        let Some((function, literal)) = after.split_once(CALL) else { continue };
        let is_call = function.chars().all(|c| c == '_' || c.is_ascii_digit());
        if let Some(name) = string_literal(literal).filter(|_| is_call)
            && !names.contains(&name)
            && names.len() < NAMES_MAX
        {
            names.push(name);
        }
    }
    names
}

/// Reads a string literal of TorchScript after its first quote; `None` if it does not end, or is not a text.
fn string_literal(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    loop {
        match rest.next()? {
            b'"' => return String::from_utf8(bytes).ok(),
            b'\\' => match rest.next()? {
                digit @ b'0'..=b'3' => {
                    let (second, third) = (rest.next()?, rest.next()?);
                    let octal = [digit, second, third];
                    bytes.push(u8::from_str_radix(std::str::from_utf8(&octal).ok()?, 8).ok()?);
                }
                b'n' => bytes.push(b'\n'),
                b't' => bytes.push(b'\t'),
                other => bytes.push(other),
            },
            byte => bytes.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_calls() {
        let code = r#"
    wrong = __torch__.torch2carton.put_1(out, "boxes", value)
    wrong = __torch__.torch2carton.put_2(out, "a\"b\303\274", value)
    wrong = __torch__.torch2carton.put_1(out, "boxes", value)
    return __torch__.torch2carton.put(out, name, value)
    wrong = __torch__.torch2carton.put_3(out, __torch__.torch2carton.join("x", key), value)
    wrong = __torch__.torch2carton.put_1(out, "open"#;
        assert_eq!(output_names(code), ["boxes", "a\"bü"]);
        assert!(output_names("").is_empty());
    }
}
