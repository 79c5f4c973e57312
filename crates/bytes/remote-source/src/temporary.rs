//! Temporary objects next to the target of an upload.

use std::time::{Duration, SystemTime};

/// Age from which a temporary object is one that a run left which was killed: it is there only while it is copied.
const ABANDONED: Duration = Duration::from_secs(60 * 60);
const TEMPORARY_PREFIX: &str = ".torch2carton-";
const TEMPORARY_SUFFIX: &str = ".partial";

/// Returns the name of a temporary object in the folder of an object.
pub(crate) fn temporary_key(key: &str, id: &str) -> String {
    format!("{}{TEMPORARY_PREFIX}{id}{TEMPORARY_SUFFIX}", folder_of(key))
}

/// Returns the folder of an object, with its slash.
pub(crate) fn folder_of(key: &str) -> &str {
    key.rfind('/').and_then(|slash| key.get(..=slash)).unwrap_or_default()
}

/// Returns true for a temporary object that no run can still need.
pub(crate) fn is_abandoned(name: &str, modified: SystemTime, now: SystemTime) -> bool {
    name.starts_with(TEMPORARY_PREFIX)
        && name.ends_with(TEMPORARY_SUFFIX)
        && now.duration_since(modified).is_ok_and(|age| age > ABANDONED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_object_is_next_to_its_target() {
        assert_eq!(temporary_key("a/b/c.pth", "1f"), "a/b/.torch2carton-1f.partial");
        assert_eq!(temporary_key("c.pth", "1f"), ".torch2carton-1f.partial");
    }

    #[test]
    fn an_old_temporary_object_is_abandoned() {
        let now = SystemTime::now();
        let found =
            |name: &str, minutes: u64| is_abandoned(name, now - Duration::from_secs(60 * minutes), now);
        let name = temporary_key("c.pth", "1f");
        assert!(found(&name, 61) && !found(&name, 59), "{name}");
        assert!(!found("c.pth", 61) && !found(".torch2carton-1f", 61) && !found("1f.partial", 61));
    }
}
