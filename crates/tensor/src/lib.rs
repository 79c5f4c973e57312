//! Dtypes, tensors and storages: the middle where readers and writers meet.
