//! Credentials and settings of a profile of the AWS command line.
//!
//! Facts: the shared files `config` and `credentials` of the AWS SDKs, and the variables `AWS_PROFILE`, `AWS_CONFIG_FILE`
//! and `AWS_SHARED_CREDENTIALS_FILE`.

use std::collections::HashMap;
use std::path::PathBuf;

/// Largest length in bytes of a file that is read.
const FILE_MAX: u64 = 1 << 20;

/// A profile of `~/.aws/config` and `~/.aws/credentials`.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct AwsProfile {
    /// Identifier of a key, and the secret key.
    pub(crate) keys: Option<(String, String)>,
    pub(crate) token: Option<String>,
    pub(crate) region: Option<String>,
    pub(crate) endpoint: Option<String>,
}

impl AwsProfile {
    /// Reads the profile that `AWS_PROFILE` names, by default `default`; `None` if there is no such profile.
    ///
    /// # Errors
    /// When `AWS_PROFILE` names a profile that is not there, or that gets its keys from another program.
    pub(crate) fn read(variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>, String> {
        let home = variable("HOME").or_else(|| variable("USERPROFILE")).map(PathBuf::from);
        let file = |name: &str, file: &str| {
            let path = variable(name).map(PathBuf::from);
            path.or_else(|| Some(home.as_ref()?.join(".aws").join(file)))
        };
        let read = |path: Option<PathBuf>| {
            let path = path.filter(|path| path.metadata().is_ok_and(|metadata| metadata.len() <= FILE_MAX));
            path.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default()
        };
        let config = read(file("AWS_CONFIG_FILE", "config"));
        let credentials = read(file("AWS_SHARED_CREDENTIALS_FILE", "credentials"));
        let named = variable("AWS_PROFILE").or_else(|| variable("AWS_DEFAULT_PROFILE"));
        let name = named.as_deref().unwrap_or("default");
        let found = Self::parse(name, &config, &credentials)?;
        match (found, named) {
            (None, Some(name)) => Err(format!("AWS_PROFILE: there is no profile `{name}`")),
            (found, _) => Ok(found),
        }
    }

    fn parse(name: &str, config: &str, credentials: &str) -> Result<Option<Self>, String> {
        let mut values = HashMap::new();
        let mut is_found = false;
        for (text, prefix) in [(config, "profile "), (credentials, "")] {
            let mut is_inside = false;
            for line in text.lines() {
                // An indented line belongs to the value above it.
                if line.starts_with([' ', '\t', '#', ';']) {
                    continue;
                }
                if let Some(section) = line.trim().strip_prefix('[').and_then(|rest| rest.split(']').next()) {
                    let section = section.trim();
                    let is_default = name == "default" && section == "default";
                    is_inside =
                        is_default || section.strip_prefix(prefix).is_some_and(|rest| rest.trim() == name);
                    is_found |= is_inside;
                } else if let Some((key, value)) = line.split_once('=').filter(|_| is_inside) {
                    values.insert(key.trim().to_ascii_lowercase(), value.trim().to_owned());
                }
            }
        }
        let mut take = |key: &str| values.remove(key).filter(|value| !value.is_empty());
        let keys = take("aws_access_key_id").zip(take("aws_secret_access_key"));
        for key in ["credential_process", "sso_session", "sso_start_url", "role_arn"] {
            if keys.is_none() && take(key).is_some() {
                return Err(format!(
                    "the AWS profile `{name}` gets its keys by {key}, which is not supported; put them into the \
                     environment, as `aws configure export-credentials` prints them"
                ));
            }
        }
        let (token, region, endpoint) = (take("aws_session_token"), take("region"), take("endpoint_url"));
        Ok(is_found.then_some(Self { keys, token, region, endpoint }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_has_keys_and_settings() {
        let config = "[default]\nregion = eu-west-1\n[profile a]\nregion=us-west-2\ns3 =\n  region = no\n[profile b]\nsso_session = x\n";
        let credentials = "# comment\n[default]\naws_access_key_id = K\naws_secret_access_key = S=+/\n[a]\naws_access_key_id=A\naws_secret_access_key=B\naws_session_token = T\n";
        let parse = |name: &str| AwsProfile::parse(name, config, credentials);
        let keys = |id: &str, secret: &str| Some((id.to_owned(), secret.to_owned()));
        let default = parse("default").ok().flatten().expect("it is there");
        assert!(default.keys == keys("K", "S=+/") && default.region.as_deref() == Some("eu-west-1"));
        let a = parse("a").ok().flatten().expect("it is there");
        assert!(a.keys == keys("A", "B") && a.region.as_deref() == Some("us-west-2"));
        assert!(a.token.as_deref() == Some("T") && a.endpoint.is_none());
        assert!(parse("b").is_err_and(|reason| reason.contains("sso_session")));
        assert!(parse("c").is_ok_and(|found| found.is_none()));
    }
}
