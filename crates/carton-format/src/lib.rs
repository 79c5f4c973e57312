//! The documents of the Carton file format v1 as types.
