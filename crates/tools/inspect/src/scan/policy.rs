//! Unknown globals that the user knows: patterns of options and of a policy file.
//!
//! A policy is a file that the user names. None is ever looked for, and one in a folder that is scanned is refused, because the author
//! of the files may have written it.

use std::path::Path;

use byte_source::FileError;
use open::InvalidOption;
use serde::{Deserialize, Serialize};
use torch_import::{Risk, Scan};

use super::ScanOptions;
use crate::Result;

/// Largest policy, in bytes, that is read.
const POLICY_MAX: u64 = 1 << 20;

/// Global that would be unknown, and that the user knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AllowedGlobal {
    /// Module and name of the global.
    pub global: String,
    /// Pattern that allows it.
    pub pattern: String,
    /// Reason that the policy gives; `None` for a pattern of an option.
    pub reason: Option<String>,
    /// Day of the decision, as in the policy; `None` for a pattern of an option.
    pub date: Option<String>,
}

/// Patterns for globals that the user knows.
#[derive(Debug, Default)]
pub(super) struct Policy {
    rules: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    pattern: String,
    reason: Option<String>,
    date: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyDocument {
    allow: Vec<PolicyRule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyRule {
    pattern: String,
    reason: String,
    date: toml::value::Datetime,
}

impl Policy {
    /// Reads the patterns of the options and of the policy that they name.
    pub(super) fn read(options: &ScanOptions) -> Result<Self> {
        let of_option = |pattern: &String| Rule { pattern: pattern.clone(), reason: None, date: None };
        let mut rules: Vec<Rule> = options.allow.iter().map(of_option).collect();
        if let Some(path) = &options.policy {
            let place =
                path.canonicalize().map_err(|reason| FileError::Read { path: path.clone(), reason })?;
            let document = read_document(&place, options).map_err(|reason| InvalidOption::Value {
                name: "policy".to_owned(),
                reason: format!("{}: {reason}", path.display()),
            })?;
            rules.extend(document.allow.into_iter().map(|rule| Rule {
                pattern: rule.pattern,
                reason: Some(rule.reason),
                date: Some(rule.date.to_string()),
            }));
        }
        match rules.iter().find(|rule| rule.pattern.trim_matches('*').is_empty()) {
            Some(rule) => Err(InvalidOption::Pattern {
                pattern: rule.pattern.clone(),
                reason: "it has to name a module, such as `ultralytics.*`".to_owned(),
            }
            .into()),
            None => Ok(Self { rules }),
        }
    }

    /// Returns a note on the globals of a scan that a pattern names and that none allows.
    pub(super) fn note(&self, scan: &Scan) -> Option<String> {
        let mut names: Vec<String> = Vec::new();
        let uses = scan.pickles.iter().flat_map(|pickle| &pickle.uses);
        for used in uses.filter(|used| matches!(used.risk, Risk::Dangerous | Risk::Unreviewed)) {
            let name = used.global.to_string();
            let is_named = |name: &str| self.rules.iter().any(|rule| matches(&rule.pattern, name));
            let familiar = used.global.familiar_name().unwrap_or_else(|| name.clone());
            if (is_named(&name) || is_named(&familiar)) && !names.contains(&familiar) {
                names.push(familiar);
            }
        }
        let verb = if names.len() == 1 { "is" } else { "are" };
        (!names.is_empty())
            .then(|| format!("patterns allow only unknown globals, and {} {verb} not", names.join(", ")))
    }

    /// Makes the unknown globals of a scan known that a pattern allows, and returns them.
    pub(super) fn apply(&self, scan: &mut Scan) -> Vec<AllowedGlobal> {
        let mut allowed: Vec<AllowedGlobal> = Vec::new();
        // A global that is not listed could be one that no pattern allows.
        if self.rules.is_empty() || scan.omitted.globals > 0 {
            return allowed;
        }
        let uses = scan.pickles.iter_mut().flat_map(|pickle| &mut pickle.uses);
        for used in uses.filter(|used| used.risk == Risk::Unknown) {
            let global = used.global.to_string();
            let Some(rule) = self.rules.iter().find(|rule| matches(&rule.pattern, &global)) else { continue };
            used.risk = Risk::Known;
            used.calls.clear();
            used.unlisted_calls = 0;
            if !allowed.iter().any(|it| it.global == global) {
                let Rule { pattern, reason, date } = rule;
                let (pattern, reason, date) = (pattern.clone(), reason.clone(), date.clone());
                allowed.push(AllowedGlobal { global, pattern, reason, date });
            }
        }
        allowed
    }
}

/// Reads the policy at `place`, a path without links.
fn read_document(place: &Path, options: &ScanOptions) -> std::result::Result<PolicyDocument, String> {
    let folders = options.inputs.iter().filter(|input| input.is_local()).map(byte_source::Location::path);
    for folder in folders.filter(|folder| folder.is_dir()) {
        if folder.canonicalize().is_ok_and(|folder| place.starts_with(folder)) {
            return Err(format!(
                "it is in the scanned folder {}, whose author may have written it; a copy outside of that folder is read, and so \
                 is this file if a folder next to it is scanned",
                folder.display()
            ));
        }
    }
    let len = place.metadata().map_err(|error| error.to_string())?.len();
    if len > POLICY_MAX {
        return Err(format!("it has {len} bytes, and a policy at most {POLICY_MAX}"));
    }
    let text = std::fs::read_to_string(place).map_err(|error| error.to_string())?;
    let document: PolicyDocument = toml::from_str(&text).map_err(|error| {
        let line = error.span().and_then(|span| text.get(..span.start)).map_or(1, |before| before.matches('\n').count().saturating_add(1));
        let found = error.message();
        format!("line {line}: {found}; a rule is `[[allow]]` with `pattern`, `reason` and `date`, such as 2026-01-31")
    })?;
    match document.allow.iter().find(|rule| rule.reason.trim().is_empty()) {
        Some(rule) => Err(format!("the pattern `{}` has no reason", rule.pattern)),
        None => Ok(document),
    }
}

/// Returns true if a name fits a pattern, in which `*` stands for any text.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, name) in [
            ("a.*", "a.b.C"),
            ("a.B", "a.B"),
            ("a.*.C", "a.b.c.C"),
            ("a.*C*D", "a.CxD"),
            ("*.Net", "m.n.Net"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("a.*", "ab.C"),
            ("a.B", "a.Bc"),
            ("a.B", "xa.B"),
            ("a.*C*D", "a.D"),
            ("aXa*a", "aXa"),
            ("a.*", "b.a.C"),
        ] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }
}
