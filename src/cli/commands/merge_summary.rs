//! Lines of a conversion's summary about merged adapters and summed checkpoints.

use std::collections::BTreeMap;

use byte_source::format_things;
use open::{AdapterReport, MergeKind, MergedTensor, SumReport};

const LINES_MAX: usize = 24;

/// Tensors that differ only in the number of their layer or expert.
#[derive(Default)]
struct LayerGroup {
    numbers: Vec<String>,
    smallest: Option<f64>,
    largest: Option<f64>,
}

/// Describes a sum: for each file a line with its label, and one for what is not summed.
pub(super) fn sum_lines(report: &SumReport) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    for (number, file) in report.files.iter().enumerate() {
        let (label, weight) = match file.weight {
            Some(weight) => ("added", format!(", {weight} times its difference from the input")),
            None if number == 0 => ("mean of", "the input and ".to_owned()),
            None => ("", String::new()),
        };
        let tensors = format_things(file.tensors, "tensor");
        let text = match file.weight {
            Some(_) => format!("{}{weight}: {tensors}", file.file),
            None => format!("{weight}{}: {tensors}", file.file),
        };
        lines.push((label, text));
        lines.extend(names_line("left out", &file.left_out));
    }
    lines.extend(names_line("kept", &report.kept));
    lines
}

/// Lists the first names; `None` if there are none.
fn names_line(label: &'static str, names: &[String]) -> Option<(&'static str, String)> {
    const SHOWN: usize = 4;
    let more = names.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let shown = names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    (!names.is_empty()).then(|| (label, format!("{shown}{more}")))
}

/// Describes what an adapter changed: a line for the adapter, and one for the tensors that have one name in each layer.
pub(super) fn adapter_lines(report: &AdapterReport) -> Vec<String> {
    let weight = if (report.weight - 1.0).abs() < f64::EPSILON {
        String::new()
    } else {
        format!(", times {}", report.weight)
    };
    let merged = format_things(report.merged.len(), "tensor");
    let used = format_things(report.adapter_tensors, "adapter tensor");
    let mut lines = vec![format!("{}{weight}: {merged} changed by {used}", report.adapter)];
    let mut groups: BTreeMap<(String, String), LayerGroup> = BTreeMap::new();
    let mut order = Vec::new();
    for row in &report.merged {
        let (pattern, number) = name_pattern(&row.name);
        let key = (pattern, kind_text(row));
        let group = groups.entry(key.clone()).or_insert_with(|| {
            order.push(key);
            LayerGroup::default()
        });
        group.numbers.extend(number);
        if let Some(norm) = row.norm {
            group.smallest = Some(group.smallest.map_or(norm, |least| least.min(norm)));
            group.largest = Some(group.largest.map_or(norm, |most| most.max(norm)));
        }
    }
    let shown = order.iter().take(LINES_MAX).filter_map(|key| Some((key, groups.get(key)?)));
    lines.extend(
        shown.map(|((pattern, kind), group)| format!("  {}: {kind}{}", group.name(pattern), group.norm())),
    );
    let more = order.len().saturating_sub(LINES_MAX);
    if more > 0 {
        lines.push(format!("  … {more} more names; --json lists all"));
    }
    lines
}

impl LayerGroup {
    fn name(&self, pattern: &str) -> String {
        let numbers = match self.numbers.as_slice() {
            [] => return pattern.to_owned(),
            [one] => one.clone(),
            [first, .., last] => format!("{{{first}..{last}}}"),
        };
        pattern.replacen('#', &numbers, 1)
    }

    fn norm(&self) -> String {
        match (self.smallest, self.largest) {
            (Some(least), Some(most)) if most - least > most * 1e-3 => {
                format!(", norm of the change {least:.4} to {most:.4}")
            }
            (_, Some(norm)) => format!(", norm of the change {norm:.4}"),
            _ => String::new(),
        }
    }
}

/// Replaces the first number in a name by `#`.
fn name_pattern(name: &str) -> (String, Option<String>) {
    let mut found = None;
    let parts = name.split('.').map(|part| {
        let is_number = found.is_none() && !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if is_number {
            found = Some(part.to_owned());
        }
        if is_number { "#" } else { part }
    });
    let pattern = parts.collect::<Vec<_>>().join(".");
    (pattern, found)
}

fn kind_text(row: &MergedTensor) -> String {
    match row.kind {
        MergeKind::LowRank { rank, scale } => format!("rank {rank}, scale {scale}"),
        MergeKind::Dora { rank, scale } => format!("DoRA of rank {rank}, scale {scale}"),
        MergeKind::Bias { scale } => format!("bias, scale {scale}"),
        MergeKind::Replaced => "replaced".to_owned(),
        MergeKind::Added => "added".to_owned(),
        MergeKind::Rows { rows } => format!("{} replaced", format_things(rows, "row")),
        _ => "changed".to_owned(),
    }
}
