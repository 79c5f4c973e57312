//! The page around the data: HTML, style sheet and program in one file.

use std::io::{BufWriter, Write};

use askama::Template;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use serde::Serialize;

use crate::Result;
use crate::trace::unwritten;

/// Template of a page. Only the constants are markup; the title is escaped, and the data are base64.
#[derive(Template)]
#[template(path = "page.html")]
struct Page<'d> {
    title: &'d str,
    /// Last word of the window's title.
    kind: &'static str,
    style: &'static str,
    /// Functions that every page uses.
    helpers: &'static str,
    /// Program that shows the data.
    sections: &'static str,
    /// Deflated JSON text in base64.
    data: &'d str,
}

/// Writes a page with a title and a kind, whose program `sections` shows `data`.
///
/// # Errors
/// When `out` cannot be written.
pub(crate) fn write_page(
    (title, kind): (&str, &'static str),
    sections: &'static str,
    data: &impl Serialize,
    mut out: &mut dyn Write,
) -> Result<()> {
    // The encoder prepares its whole buffer at each call, and JSON is written a few bytes at a time.
    let mut encoder = BufWriter::with_capacity(64 << 10, ZlibEncoder::new(Vec::new(), Compression::new(9)));
    serde_json::to_writer(&mut encoder, data).map_err(|error| unwritten(error.into()))?;
    let encoder = encoder.into_inner().map_err(|error| unwritten(error.into_error()))?;
    let data = STANDARD.encode(encoder.finish().map_err(unwritten)?);
    let page = Page {
        title,
        kind,
        style: include_str!("../../templates/page.css"),
        helpers: include_str!("../../templates/page.js"),
        sections,
        data: &data,
    };
    page.write_into(&mut out).map_err(unwritten)
}
