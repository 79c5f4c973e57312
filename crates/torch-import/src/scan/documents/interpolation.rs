//! Interpolations of `OmegaConf`, such as `${oc.env:HOME}`: which of them evaluate a text, or make a configuration of one.
//!
//! Facts: `omegaconf/grammar` and the resolvers that `OmegaConf` registers itself. The name of a resolver may be computed:
//! `${oc.${x}:…}`.

/// Bytes of the name of a resolver.
const NAME_MAX: usize = 256;

/// Returns true if a text calls a resolver that evaluates a text or makes configurations, or one whose name is computed.
pub(super) fn evaluates(text: &str) -> bool {
    text.match_indices("${").any(|(at, _)| {
        let rest = text.get(at.saturating_add(2)..).unwrap_or_default();
        resolver_name(rest).is_some_and(|name| {
            let name = name.to_ascii_lowercase();
            name.contains("${")
                || ["create", "decode", "eval", "exec", "python"].iter().any(|it| name.contains(it))
        })
    })
}

/// Returns the name of the resolver in the rest of a text after `${`; `None` for a path. What is too long for a name is one.
fn resolver_name(rest: &str) -> Option<&str> {
    let mut depth = 1_usize;
    for (at, byte) in rest.bytes().enumerate().take(NAME_MAX) {
        match byte {
            b'{' => depth = depth.saturating_add(1),
            b'}' if depth == 1 => return None,
            b'}' => depth = depth.saturating_sub(1),
            b':' if depth == 1 => return rest.get(..at),
            _ => {}
        }
    }
    (rest.len() > NAME_MAX).then_some("${")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolvers_that_make_something_of_a_text_are_found() {
        for (text, expected) in [
            ("${a.b}", false),
            ("${oc.env:HOME}/${now:%Y}", false),
            ("${host}:${port}", false),
            ("${a[0]}${", false),
            ("${eval:'1'}", true),
            ("${ oc.create : '{_target_: os.system}'}", true),
            ("a ${oc.decode:${x}}", true),
            ("${oc.${x}:'{}'}", true),
            ("${${x}:a}", true),
            ("${oc.env:${oc.decode:x}}", true),
        ] {
            assert_eq!(evaluates(text), expected, "{text}");
        }
        assert!(evaluates(&["${", &"a".repeat(NAME_MAX), ":x}"].concat()));
    }
}
