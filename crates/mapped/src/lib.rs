//! Bytes of any size in windows: a mapped file, and the blob and sink through which its bytes flow.
