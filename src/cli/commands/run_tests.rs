//! `torch2carton run --self-test`: runs the self tests stored in a carton.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Result, bail};
use byte_source::format_things;
use runtime::{Runnable, SelfTestOutcome, SelfTestRow};

use crate::cli::args::Run;
use crate::cli::ui::signals::Interruption;
use crate::cli::ui::terminal::{self, escape_hidden};

pub(super) fn run(
    args: &Run,
    quiet: bool,
    runnable: &Runnable,
    interruption: &Interruption,
) -> Result<ExitCode> {
    let report = runtime::self_test(runnable, &args.self_test_options(), interruption)?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    if args.json {
        super::write_json_line(&mut out, &report)?;
    } else {
        for test in &report.tests {
            writeln!(out, "{}", escape_hidden(test_line(test)))?;
            for output in test.outputs.iter().filter(|output| output.what.is_some()) {
                let what = output.what.as_deref().unwrap_or_default();
                writeln!(out, "  {} {}", escape_hidden(&output.name), escape_hidden(what))?;
            }
            if let Some(error) = &test.error {
                writeln!(out, "  {}", escape_hidden(error))?;
            }
        }
    }
    out.flush()?;
    if report.tests.is_empty() {
        bail!("{}: it has no self tests; `convert --self-test` stores one", report.file);
    }
    let failed = report.tests.iter().filter(|test| test.outcome == SelfTestOutcome::Failed).count();
    if failed > 0 {
        bail!("{}: {failed} of {} failed", report.file, format_things(report.tests.len(), "self test"));
    }
    if !quiet && !args.json {
        let passed = report.tests.iter().filter(|test| test.outcome == SelfTestOutcome::Passed).count();
        let ran = report.tests.len() - passed;
        let without = if ran > 0 { format!(", {ran} ran without an expected output") } else { String::new() };
        let passed = format_things(passed, "self test");
        terminal::summary(format_args!("{}: {passed} passed{without}", escape_hidden(&report.file)));
    }
    Ok(ExitCode::SUCCESS)
}

/// Formats one test as `passed  NAME  0.012 s, largest difference 1e-7`.
fn test_line(test: &SelfTestRow) -> String {
    let outcome = match test.outcome {
        SelfTestOutcome::Passed => "passed",
        SelfTestOutcome::Ran => "ran   ",
        _ => "failed",
    };
    let name = test.name.clone().filter(|name| !name.is_empty());
    let name = name.unwrap_or_else(|| format!("test {}", test.index));
    let differences = test.outputs.iter().filter_map(|output| output.largest_difference);
    let largest = differences.reduce(|a, b| if a.is_nan() || a > b { a } else { b });
    let largest = largest.map_or_else(String::new, |largest| format!(", largest difference {largest:.1e}"));
    if test.error.is_some() {
        return format!("{outcome}  {name}");
    }
    format!("{outcome}  {name}  {:.3} s{largest}", test.seconds)
}
