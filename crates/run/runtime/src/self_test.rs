//! Runs the self tests that are stored in a carton.
//!
//! Facts: the Carton v1 specification. A nested tensor has parts of different shapes: a model that takes one tensor runs
//! once for each part, and returns as many outputs.

use std::time::Instant;

use byte_source::{Observer, format_things};
use carton_format::{References, SelfTest, TENSOR_REFERENCE, TensorData, TensorIndex};
use serde::Serialize;
use tensor::Tensor;

use crate::compare::{Tolerance, compare_output};
use crate::{Error, InputError, Result, Runnable, RunnableKind};

/// Options for running the self tests of a carton.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct SelfTestOptions {
    /// Largest allowed difference of outputs. `None` stands for [`Tolerance::default`] for weights, which are returned as
    /// they are stored, and for [`Tolerance::for_sums`] for models.
    pub tolerance: Option<Tolerance>,
}

impl SelfTestOptions {
    /// Sets the largest allowed difference of outputs.
    #[must_use]
    pub fn tolerance(self, tolerance: Tolerance) -> Self {
        Self { tolerance: Some(tolerance) }
    }
}

/// Result of all self tests of a carton.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct SelfTestReport {
    /// Version of the report's format.
    pub schema_version: u32,
    /// Path of the carton, as the caller gave it.
    pub file: String,
    /// True if there are tests, and none failed.
    pub ok: bool,
    /// Tolerance that was applied.
    pub tolerance: Tolerance,
    /// Results of the tests, in the order of carton.toml.
    pub tests: Vec<SelfTestRow>,
}

/// Result of one self test.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct SelfTestRow {
    /// Number of the test, from 0.
    pub index: usize,
    /// Name of the test in carton.toml.
    pub name: Option<String>,
    pub outcome: SelfTestOutcome,
    /// Run time of the model, in seconds.
    pub seconds: f64,
    /// Reason for which the test could not run.
    pub error: Option<String>,
    /// Expected outputs, or all outputs if the test expects none.
    pub outputs: Vec<SelfTestOutputRow>,
}

/// Outcome of a self test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SelfTestOutcome {
    /// All outputs are within the tolerance.
    Passed,
    /// An output differs from the expected one, or the test cannot run.
    Failed,
    /// The model ran, but no expected output is stored.
    Ran,
}

/// Result for one output of a test.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SelfTestOutputRow {
    pub name: String,
    /// Largest difference from the expected output; `None` if the two were not compared. NaN (null in JSON) if an element is
    /// NaN.
    pub largest_difference: Option<f64>,
    /// Description of the mismatch; `None` if the output is as expected.
    pub what: Option<String>,
}

/// Runs the self tests of a carton, one after the other. A test that cannot run counts as failed.
///
/// # Errors
/// Returns an error if the tensor index cannot be read, or if `observer` stops the work.
pub fn self_test(
    runnable: &Runnable,
    options: &SelfTestOptions,
    observer: &dyn Observer,
) -> Result<SelfTestReport> {
    let index = runnable.carton().map(carton_format::Carton::tensor_index).transpose();
    let index = index.map_err(|error| error.in_file(runnable.path()))?;
    let index = index.map(|index| index.document).unwrap_or_default();
    let tolerance = options.tolerance.unwrap_or_else(|| match runnable.kind() {
        RunnableKind::Decoder(_) => Tolerance::for_sums(),
        RunnableKind::Weights => Tolerance::default(),
    });
    let runner = SelfTestRunner { runnable, index, tolerance, observer };
    let tests = runnable
        .config()
        .into_iter()
        .flat_map(|config| &config.self_tests)
        .enumerate()
        .map(|(at, test)| runner.run_test(at, test));
    let tests: Vec<SelfTestRow> = tests.collect::<Result<_>>()?;
    Ok(SelfTestReport {
        schema_version: 1,
        file: runnable.path().display().to_string(),
        ok: !tests.is_empty() && tests.iter().all(|test| test.outcome != SelfTestOutcome::Failed),
        tolerance,
        tests,
    })
}

/// Value that a reference of a self test names.
enum ReferencedValue {
    Numbers(Tensor),
    Strings,
    Nested(Vec<Tensor>),
}

/// Outputs of a test: one run for each part of the nested inputs, or a single run.
struct TestOutputs {
    runs: Vec<Vec<(String, Tensor)>>,
    is_nested: bool,
}

struct SelfTestRunner<'r> {
    runnable: &'r Runnable,
    index: TensorIndex,
    tolerance: Tolerance,
    observer: &'r dyn Observer,
}

impl SelfTestRunner<'_> {
    fn run_test(&self, index: usize, test: &SelfTest) -> Result<SelfTestRow> {
        let start = Instant::now();
        let mut row = SelfTestRow {
            index,
            name: test.name.clone(),
            outcome: SelfTestOutcome::Failed,
            seconds: 0.0,
            error: None,
            outputs: Vec::new(),
        };
        let returned = match self.test_outputs(test) {
            Ok(returned) => returned,
            Err(error) if error.is_cancelled() => return Err(error),
            Err(error) => {
                row.error = Some(error.to_string());
                return Ok(row);
            }
        };
        row.seconds = start.elapsed().as_secs_f64();
        let Some(expected) = &test.expected_out else {
            let names = returned.runs.first().into_iter().flatten().map(|(name, _)| name.clone());
            let ran = |name| SelfTestOutputRow { name, largest_difference: None, what: None };
            row.outputs = names.map(ran).collect();
            row.outcome = SelfTestOutcome::Ran;
            return Ok(row);
        };
        match self.compare_outputs(expected, &returned) {
            Ok(outputs) => row.outputs = outputs,
            Err(error) => row.error = Some(error.to_string()),
        }
        let is_right = row.error.is_none() && row.outputs.iter().all(|output| output.what.is_none());
        row.outcome = if is_right { SelfTestOutcome::Passed } else { SelfTestOutcome::Failed };
        Ok(row)
    }

    fn test_outputs(&self, test: &SelfTest) -> Result<TestOutputs> {
        let inputs = self.resolve_references(&test.inputs)?;
        let nested = inputs.iter().filter_map(|(name, value)| match value {
            ReferencedValue::Nested(parts) => Some((name, parts.len())),
            _ => None,
        });
        let mut nested = nested.collect::<Vec<_>>().into_iter();
        let first = nested.next();
        if let Some((name, second)) = nested.find(|(_, len)| first.is_some_and(|(_, first)| first != *len)) {
            let (first_input, first) =
                first.map_or_else(Default::default, |(name, len)| (name.clone(), len.to_string()));
            let symbol = "the number of parts".to_owned();
            let (second_input, second) = (name.clone(), second.to_string());
            return Err(InputError::Symbol { symbol, first_input, first, second_input, second }.into());
        }
        let names: Option<Vec<String>> = test
            .expected_out
            .as_ref()
            .map(|expected| expected.0.iter().map(|(name, _)| name.clone()).collect());
        let mut runs = Vec::new();
        for run in 0..first.map_or(1, |(_, len)| len) {
            let mut tensors = Vec::new();
            for (name, value) in &inputs {
                let tensor = match value {
                    ReferencedValue::Numbers(tensor) => Some(tensor),
                    ReferencedValue::Nested(parts) => parts.get(run),
                    ReferencedValue::Strings => None,
                };
                let found = "a tensor of strings";
                let tensor = tensor.ok_or_else(|| InputError::NotNumbers { name: name.clone(), found })?;
                tensors.push((name.clone(), tensor.clone()));
            }
            runs.push(self.runnable.infer_until(&tensors, names.as_deref(), self.observer)?);
        }
        Ok(TestOutputs { runs, is_nested: first.is_some() })
    }

    fn compare_outputs(
        &self,
        expected: &References,
        returned: &TestOutputs,
    ) -> Result<Vec<SelfTestOutputRow>> {
        let mut rows = Vec::new();
        for (name, value) in self.resolve_references(expected)? {
            let found = returned.runs.iter().map(|run| run.iter().find(|(known, _)| *known == name));
            let found: Option<Vec<&Tensor>> = found.map(|output| Some(&output?.1)).collect();
            let mut row = SelfTestOutputRow { name, largest_difference: None, what: None };
            match (found, value) {
                (None, _) => row.what = Some("is not returned".to_owned()),
                (_, ReferencedValue::Strings) => row.what = Some("is numbers, expected strings".to_owned()),
                (Some(found), ReferencedValue::Numbers(expected)) if !returned.is_nested => {
                    self.compare(&mut row, &found, &[expected])?;
                }
                (Some(found), ReferencedValue::Nested(parts))
                    if returned.is_nested && found.len() == parts.len() =>
                {
                    self.compare(&mut row, &found, &parts)?;
                }
                (Some(found), value) => {
                    let described = |is_nested, parts: usize| {
                        let parts = format_things(parts, "part");
                        if is_nested {
                            format!("a nested tensor of {parts}")
                        } else {
                            "one tensor".to_owned()
                        }
                    };
                    let expected = match value {
                        ReferencedValue::Nested(parts) => described(true, parts.len()),
                        _ => described(false, 1),
                    };
                    row.what = Some(format!(
                        "is {}, expected {expected}",
                        described(returned.is_nested, found.len())
                    ));
                }
            }
            rows.push(row);
        }
        Ok(rows)
    }

    /// Compares the parts of an output; a plain output is one part.
    fn compare(&self, row: &mut SelfTestOutputRow, found: &[&Tensor], expected: &[Tensor]) -> Result<()> {
        let parts = expected.len();
        for (part, (found, expected)) in found.iter().zip(expected).enumerate() {
            let comparison = compare_output(&row.name, found, expected, self.tolerance)?;
            let largest = [row.largest_difference, comparison.largest].into_iter().flatten();
            // A NaN difference stays the largest.
            row.largest_difference = largest.reduce(|a, b| if a.is_nan() || a > b { a } else { b });
            if let (Some(what), None) = (comparison.difference_text, &row.what) {
                let part = if parts == 1 { String::new() } else { format!("part {part}: ") };
                row.what = Some(format!("{part}{what}"));
            }
        }
        Ok(())
    }

    /// Reads and checks the tensors to which references point.
    fn resolve_references(&self, references: &References) -> Result<Vec<(String, ReferencedValue)>> {
        let failed = |error: Error| error.in_file(self.runnable.path());
        let read = |name: &str| {
            let missing = || failed(carton_format::Problem::NoTensor { name: name.to_owned() }.into());
            let spec = self.index.find(name).ok_or_else(missing)?;
            let carton = self.runnable.carton().ok_or_else(missing)?;
            carton.tensor_data(spec).map_err(failed)
        };
        let value = |target: &str| -> Result<ReferencedValue> {
            let name = target.strip_prefix(TENSOR_REFERENCE).unwrap_or(target);
            Ok(match read(name)? {
                TensorData::Numbers(tensor) => ReferencedValue::Numbers(tensor),
                TensorData::Strings { .. } => ReferencedValue::Strings,
                TensorData::Nested(parts) => {
                    let part = |name: &String| {
                        Ok(match read(name)? {
                            TensorData::Numbers(tensor) => Some(tensor),
                            _ => None,
                        })
                    };
                    let parts: Option<Vec<Tensor>> = parts.iter().map(part).collect::<Result<_>>()?;
                    parts.map_or(ReferencedValue::Strings, ReferencedValue::Nested)
                }
            })
        };
        references.0.iter().map(|(name, target)| Ok((name.clone(), value(target)?))).collect()
    }
}
