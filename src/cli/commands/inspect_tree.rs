//! Tables of `torch2carton inspect`: the tree of modules, and the statistics of tensors.

use std::io::{self, Write};

use byte_source::{format_bytes, format_count};
use inspect::{TensorRow, TreeRow};
use tensor::ElementValue;

use crate::cli::ui::table::{self, Align};

pub(super) fn print_tree(out: &mut dyn Write, rows: &[TreeRow]) -> io::Result<()> {
    let cells = rows.iter().map(|row| {
        let indent = "  ".repeat(row.depth);
        let shape = row.shape.as_ref().map_or_else(String::new, |shape| shape_text(shape));
        [
            format!("{indent}{}", row.name),
            row.tensors.to_string(),
            format_count(row.parameters),
            format_bytes(row.nbytes),
            row.dtype.unwrap_or("mixed").to_owned(),
            shape,
        ]
    });
    let head = ["module", "tensors", "parameters", "size", "dtype", "shape"];
    let align = [Align::Left, Align::Right, Align::Right, Align::Right, Align::Left, Align::Left];
    table::print_table(out, align, head, cells)
}

pub(super) fn print_statistics(out: &mut dyn Write, rows: &[TensorRow]) -> io::Result<()> {
    let cells = rows.iter().map(|row| {
        let shape = shape_text(row.shape());
        let Some(statistics) = row.statistics.known() else {
            let why = row.note.as_deref().unwrap_or("-").to_owned();
            let empty = String::new;
            let dtype = row.dtype.to_owned();
            return [
                row.name.clone(),
                dtype,
                shape,
                why,
                empty(),
                empty(),
                empty(),
                empty(),
                empty(),
                empty(),
            ];
        };
        let element = |value: Option<ElementValue>| value.map_or_else(|| "-".to_owned(), element_text);
        [
            row.name.clone(),
            row.dtype.to_owned(),
            shape,
            element(statistics.min),
            element(statistics.max),
            element(statistics.mean),
            statistics.std.map_or_else(|| "-".to_owned(), number_text),
            statistics.zeros.to_string(),
            statistics.nan.to_string(),
            statistics.infinite.to_string(),
        ]
    });
    let head = ["name", "dtype", "shape", "min", "max", "mean", "std", "zeros", "nan", "inf"];
    let mut align = [Align::Right; 10];
    align[..3].fill(Align::Left);
    table::print_table(out, align, head, cells)
}

fn shape_text(shape: &[u64]) -> String {
    let sizes: Vec<String> = shape.iter().map(u64::to_string).collect();
    format!("[{}]", sizes.join(", "))
}

fn element_text(value: ElementValue) -> String {
    match value {
        ElementValue::Real(number) => number_text(number),
        ElementValue::Complex(re, im) => {
            let (re, im) = (number_text(re), number_text(im));
            let sign = if im.starts_with('-') { "" } else { "+" };
            format!("{re}{sign}{im}j")
        }
    }
}

/// Formats a number with six digits, as C's `%g` does.
fn number_text(number: f64) -> String {
    if number == 0.0 || !number.is_finite() {
        return number.to_string().to_lowercase();
    }
    let scientific = format!("{number:.5e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trimmed = |text: &str| {
        let has_point = text.contains('.');
        if has_point { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text.to_owned() }
    };
    if (-4..6).contains(&exponent) {
        let places = usize::try_from(5 - exponent).unwrap_or(0);
        return trimmed(&format!("{number:.places$}"));
    }
    format!("{}e{exponent:+03}", trimmed(digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_six_digits() {
        for (number, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (-0.123_456_789, "-0.123457"),
            (123_456.7, "123457"),
            (1_234_567.0, "1.23457e+06"),
            (0.000_012_5, "1.25e-05"),
            (0.000_001_25, "1.25e-06"),
            (f64::NAN, "nan"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(number_text(number), text);
        }
    }
}
