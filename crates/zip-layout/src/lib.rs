//! Zip files laid out before they are written: headers, alignment, descriptors, directories, zip64.
