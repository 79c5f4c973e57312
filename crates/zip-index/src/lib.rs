//! A strict index of a zip file: the central directory checked against every local header.
