//! Failures of a connection, and their effect on the next connection.

use crate::Error;

/// Failure of a connection, by its effect on the download.
pub(super) enum DownloadFailure {
    /// The connection broke: keep the partial file and resume from its end.
    Resume(Error),
    /// The partial file belongs to another file, or the server cannot resume from it: start anew.
    Restart(Error),
    /// Another connection would not help: give up.
    Final(Error),
}
