//! Writes a carton in one pass: zip, SHA-256 and MANIFEST together.
