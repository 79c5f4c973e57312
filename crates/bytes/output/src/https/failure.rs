//! What a failed connection means for the next one.

use crate::Error;

/// Why a connection did not bring the file.
pub(super) enum Failure {
    /// The connection broke. What is there stays, and the next connection resumes from it.
    Resume(Error),
    /// What is there does not belong to the file, or the server cannot resume from it.
    Restart(Error),
    /// Another connection would not help.
    Final(Error),
}
