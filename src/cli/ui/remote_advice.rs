//! Advice on errors of files at addresses.

use std::io;

use byte_source::Detail;
use remote_source::Error;

use super::advice_table::advice_on;

pub(crate) fn remote_text(error: &Error) -> String {
    format!("{error}{}", remote_advice(error))
}

/// Returns the error of an address that is the cause of an error of the system.
pub(crate) fn remote_cause(reason: &io::Error) -> Option<&Error> {
    reason.get_ref()?.downcast_ref::<byte_source::Error>()?.detail()
}

/// Returns what helps against an error.
pub(crate) fn remote_advice(error: &Error) -> &'static str {
    match error {
        Error::Disabled { address } if address.starts_with("http") || address.starts_with("hf:") => {
            "; build the program with the feature `remote`"
        }
        Error::Disabled { .. } => "; build the program, or the Python package, with the feature `buckets`",
        Error::Denied { address, has_token: false, .. } if address.starts_with("hf://") => {
            "; accept the model's terms on its page if it has any, and set HF_TOKEN to a token that may read it"
        }
        Error::Denied { address, has_token: true, .. } if address.starts_with("hf://") => {
            "; the token in HF_TOKEN or in the Hub's token file may not read it: accept the model's terms on its page, \
             or take another token"
        }
        Error::Denied { address, .. } if address.starts_with("s3://") => {
            "; set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, to credentials that may read it"
        }
        Error::Denied { address, .. } if address.starts_with("gs://") => {
            "; set GOOGLE_APPLICATION_CREDENTIALS to a file with credentials that may read it, or run \
             `gcloud auth application-default login`"
        }
        Error::Denied { address, .. } if address.starts_with("az://") => {
            "; set AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN to credentials that may read it"
        }
        Error::Denied { .. } => {
            "; an https address is read without credentials: check it, or ask for a signed one"
        }
        error => advice_on(error.code()),
    }
}
