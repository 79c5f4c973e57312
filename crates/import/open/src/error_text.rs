//! Parts of error texts: lists of keys, paths, counts.

/// Lists the keys of the root dict that contain tensors, as the end of a sentence.
pub(crate) fn with_tensors_under(under: &[String]) -> String {
    if under.is_empty() {
        return String::new();
    }
    let keys: Vec<String> = under.iter().map(|key| format!("`{key}`")).collect();
    format!("; tensors are under {}", keys.join(", "))
}

/// Lists keys with the number of tensors and bytes under each.
pub(crate) fn key_list(keys: &[(String, u64, u64)]) -> String {
    let keys =
        keys.iter().map(|(key, tensors, nbytes)| format!("`{key}` ({tensors} tensors, {nbytes} bytes)"));
    keys.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_listed_with_their_sizes() {
        let keys = [("model".to_owned(), 2, 16), ("ema".to_owned(), 1, 8)];
        assert_eq!(key_list(&keys), "`model` (2 tensors, 16 bytes), `ema` (1 tensors, 8 bytes)");
    }
}
