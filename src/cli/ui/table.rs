//! Text tables with aligned columns.

use std::io::{self, Write};

use anstyle::Style;

use super::terminal::{BOLD, escape_hidden};

/// Maximum cell length in characters. A hostile name could fill the terminal.
const CELL_CHARS_MAX: usize = 400;

/// Alignment of a column.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Prints `head` in bold and `rows`, each column as wide as its widest cell. Hidden characters are escaped.
pub(crate) fn print_table<const N: usize>(
    out: &mut dyn Write,
    align: [Align; N],
    head: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> io::Result<()> {
    let rows: Vec<[String; N]> =
        rows.map(|row| row.map(|cell| truncate_cell(&escape_hidden(cell)))).collect();
    let head = head.map(str::to_owned);
    let mut widths = [0_usize; N];
    for row in rows.iter().chain([&head]) {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut line = |row: &[String; N], style: Style| {
        let mut text = String::new();
        for ((cell, width), align) in row.iter().zip(widths).zip(align) {
            let gap = " ".repeat(width - cell.chars().count());
            text.push_str(if text.is_empty() { "" } else { "  " });
            let (first, second) = if align == Align::Left { (cell, &gap) } else { (&gap, cell) };
            text.push_str(first);
            text.push_str(second);
        }
        writeln!(out, "{style}{}{style:#}", text.trim_end())
    };
    line(&head, BOLD)?;
    rows.iter().try_for_each(|row| line(row, Style::new()))
}

/// Cuts text to [`CELL_CHARS_MAX`] characters, followed by an ellipsis and the full length.
pub(crate) fn truncate_cell(text: &str) -> String {
    let len = text.chars().count();
    if len <= CELL_CHARS_MAX {
        return text.to_owned();
    }
    let start: String = text.chars().take(CELL_CHARS_MAX).collect();
    format!("{start}… ({len} characters)")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(rows: &[[&str; 2]]) -> String {
        let mut out = anstream::StripStream::new(Vec::new());
        let rows = rows.iter().map(|row| row.map(str::to_owned));
        print_table(&mut out, [Align::Left, Align::Right], ["name", "size"], rows).expect("memory takes it");
        String::from_utf8(out.into_inner()).expect("text")
    }

    #[test]
    fn columns_are_aligned() {
        assert_eq!(printed(&[["a", "1"], ["layers", "1000"]]), "name    size\na          1\nlayers  1000\n");
    }

    #[test]
    fn long_cells_are_cut_with_their_length() {
        let long = "x".repeat(65_536);
        let text = printed(&[[&long, "1"]]);
        assert!(text.contains("x… (65536 characters)"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() < 500), "{text}");
    }
}
