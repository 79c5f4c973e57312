//! Text tables with aligned columns.

use std::io::{self, Write};

use anstyle::Style;

use super::terminal::{self, BOLD, escape_hidden};

/// Maximum cell length in characters. A hostile name could fill the terminal.
const CELL_CHARS_MAX: usize = 400;

/// Alignment of a column.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Width up to which a column is as wide as its widest cell, in characters.
const WIDE_COLUMN: usize = 60;

/// Prints `head` in bold and `rows` in aligned columns. A cell that is much longer than most of its column does not widen
/// it. On a terminal, a row that does not fit has its first cell on a line of its own. Hidden characters are escaped.
pub(crate) fn print_table<const N: usize>(
    out: &mut dyn Write,
    align: [Align; N],
    head: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> io::Result<()> {
    print_table_in(terminal::columns(), out, align, head, rows)
}

/// Prints a table for a terminal with this number of columns, if the output is one.
fn print_table_in<const N: usize>(
    columns: Option<usize>,
    out: &mut dyn Write,
    align: [Align; N],
    head: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> io::Result<()> {
    let rows: Vec<[String; N]> =
        rows.map(|row| row.map(|cell| truncate_cell(&escape_hidden(cell)))).collect();
    let head = head.map(str::to_owned);
    let mut widths: [usize; N] = std::array::from_fn(|column| column_width(column, &head, &rows));
    let gaps = 2 * N.saturating_sub(1);
    // Rows whose first cell is longer have two lines.
    let mut first_max = usize::MAX;
    if let (Some(columns), Some((first, others))) = (columns, widths.split_first_mut()) {
        let others: usize = others.iter().sum();
        if *first + others + gaps > columns {
            first_max = columns.saturating_sub(others + gaps);
            *first = (*first).min(first_max);
        }
    }
    let mut line = |row: &[String; N], style: Style| {
        let mut text = String::new();
        for (column, ((cell, width), align)) in row.iter().zip(widths).zip(align).enumerate() {
            let len = cell.chars().count();
            if column == 0 && len > first_max {
                writeln!(out, "{style}{cell}{style:#}")?;
                text.push_str(&" ".repeat(width));
                continue;
            }
            let gap = " ".repeat(width.saturating_sub(len));
            text.push_str(if column == 0 { "" } else { "  " });
            let (first, second) = if align == Align::Left { (cell, &gap) } else { (&gap, cell) };
            text.push_str(first);
            text.push_str(second);
        }
        writeln!(out, "{style}{}{style:#}", text.trim_end())
    };
    line(&head, BOLD)?;
    rows.iter().try_for_each(|row| line(row, Style::new()))
}

/// Returns the width of a column: that of its widest cell, unless most cells are much shorter.
fn column_width<const N: usize>(column: usize, head: &[String; N], rows: &[[String; N]]) -> usize {
    let cells = rows.iter().chain([head]).filter_map(|row| row.get(column));
    let mut lengths: Vec<usize> = cells.map(|cell| cell.chars().count()).collect();
    lengths.sort_unstable();
    let median = lengths.get(lengths.len() / 2).copied().unwrap_or(0);
    let limit = WIDE_COLUMN.max(2 * median);
    lengths.into_iter().rev().find(|len| *len <= limit).unwrap_or(0)
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
        printed_in(None, rows)
    }

    fn printed_in(columns: Option<usize>, rows: &[[&str; 2]]) -> String {
        let mut out = anstream::StripStream::new(Vec::new());
        let rows = rows.iter().map(|row| row.map(str::to_owned));
        print_table_in(columns, &mut out, [Align::Left, Align::Right], ["name", "size"], rows)
            .expect("memory takes it");
        String::from_utf8(out.into_inner()).expect("text")
    }

    #[test]
    fn columns_are_aligned() {
        assert_eq!(printed(&[["a", "1"], ["layers", "1000"]]), "name    size\na          1\nlayers  1000\n");
    }

    #[test]
    fn one_long_cell_does_not_widen_the_other_rows() {
        let long = "x".repeat(100);
        let text = printed(&[["a", "1"], [&long, "20"], ["bb", "3"]]);
        assert_eq!(text, format!("name  size\na        1\n{long}    20\nbb       3\n"));
    }

    #[test]
    fn rows_that_do_not_fit_have_two_lines() {
        let text = printed_in(Some(12), &[["a", "1"], ["a.long.name", "2000"]]);
        assert_eq!(text, "name    size\na          1\na.long.name\n        2000\n");
    }

    #[test]
    fn long_cells_are_cut_with_their_length() {
        let long = "x".repeat(65_536);
        let text = printed(&[[&long, "1"]]);
        assert!(text.contains("x… (65536 characters)"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() < 500), "{text}");
    }
}
