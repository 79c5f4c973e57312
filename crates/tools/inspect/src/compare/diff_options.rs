//! Options of a comparison of two inputs.

use byte_source::Location;
use open::{InvalidOption, Selection};
use serde::{Deserialize, Serialize};

use crate::compare::input::InputOptions;

/// Options of a comparison.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default)]
#[non_exhaustive]
pub struct DiffOptions {
    /// First checkpoint or carton.
    #[serde(skip)]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub a: Location,
    /// Second checkpoint or carton.
    #[serde(skip)]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub b: Location,
    /// Elements that differ by at most T are equal
    #[cfg_attr(feature = "cli", arg(long, value_name = "T", allow_negative_numbers = true))]
    pub tolerance: Option<f64>,
    /// List at most N tensors and N values
    #[cfg_attr(feature = "cli", arg(long, value_name = "N"))]
    pub limit: Option<usize>,
    /// Do not compare values that are not tensors, such as epochs
    #[cfg_attr(feature = "cli", arg(long))]
    pub no_values: bool,
    /// Compare the numbers that quantized weights stand for; a file without is compared as it is
    #[cfg_attr(feature = "cli", arg(long))]
    pub dequantize: bool,
    /// A and B are single shards
    #[cfg_attr(feature = "cli", arg(long))]
    pub single: bool,
    /// Selection of the tensors of both inputs.
    #[serde(flatten)]
    #[cfg_attr(feature = "cli", command(flatten, next_help_heading = "Tensors of both files"))]
    pub selection: Selection,
    /// Parts of the selection that are for one input.
    #[serde(flatten)]
    #[cfg_attr(
        feature = "cli",
        command(flatten, next_help_heading = "Tensors of one file, instead of the same option for both")
    )]
    pub sides: SideSelections,
}

/// Selections that apply to one of two inputs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default)]
pub struct SideSelections {
    /// --key for A
    #[cfg_attr(feature = "cli", arg(long, value_name = "KEY"))]
    pub key_a: Option<String>,
    /// --key for B
    #[cfg_attr(feature = "cli", arg(long, value_name = "KEY"))]
    pub key_b: Option<String>,
    /// --include for A; repeatable
    #[cfg_attr(feature = "cli", arg(long, value_name = "GLOB"))]
    pub include_a: Vec<String>,
    /// --include for B; repeatable
    #[cfg_attr(feature = "cli", arg(long, value_name = "GLOB"))]
    pub include_b: Vec<String>,
    /// --exclude for A; repeatable
    #[cfg_attr(feature = "cli", arg(long, value_name = "GLOB"))]
    pub exclude_a: Vec<String>,
    /// --exclude for B; repeatable
    #[cfg_attr(feature = "cli", arg(long, value_name = "GLOB"))]
    pub exclude_b: Vec<String>,
    /// --strip-prefix for A
    #[cfg_attr(feature = "cli", arg(long, value_name = "PREFIX"))]
    pub strip_prefix_a: Option<String>,
    /// --strip-prefix for B
    #[cfg_attr(feature = "cli", arg(long, value_name = "PREFIX"))]
    pub strip_prefix_b: Option<String>,
}

impl DiffOptions {
    /// Creates options that compare all bits and values of the inputs at `a` and `b`.
    pub fn new(a: impl Into<Location>, b: impl Into<Location>) -> Self {
        Self { a: a.into(), b: b.into(), ..Self::default() }
    }

    /// Checks the options before any file is opened.
    ///
    /// # Errors
    /// When the tolerance is negative or not a number.
    pub(crate) fn check(&self) -> open::Result<()> {
        if self.tolerance.is_some_and(|tolerance| tolerance.is_nan() || tolerance < 0.0) {
            let (name, reason) =
                ("tolerance".to_owned(), "expected a number that is not negative".to_owned());
            return Err(InvalidOption::Value { name, reason }.into());
        }
        Ok(())
    }

    pub(crate) fn input_a(&self) -> InputOptions {
        let SideSelections { key_a, include_a, exclude_a, strip_prefix_a, .. } = &self.sides;
        let selection = self.selection(key_a.as_ref(), include_a, exclude_a, strip_prefix_a.as_ref());
        self.input(&self.a, selection)
    }

    pub(crate) fn input_b(&self) -> InputOptions {
        let SideSelections { key_b, include_b, exclude_b, strip_prefix_b, .. } = &self.sides;
        let selection = self.selection(key_b.as_ref(), include_b, exclude_b, strip_prefix_b.as_ref());
        self.input(&self.b, selection)
    }

    fn input(&self, input: &Location, selection: Selection) -> InputOptions {
        let (dequantize, single) = (self.dequantize, self.single);
        InputOptions { dequantize, single, ..InputOptions::new(input.clone()).select(selection) }
    }

    /// Returns the selection for both inputs, with the parts that were given for one of them.
    fn selection(
        &self,
        key: Option<&String>,
        include: &[String],
        exclude: &[String],
        strip_prefix: Option<&String>,
    ) -> Selection {
        let mut selection = self.selection.clone();
        if key.is_some() {
            selection.key = key.cloned();
        }
        if !include.is_empty() {
            selection.include = include.to_vec();
        }
        if !exclude.is_empty() {
            selection.exclude = exclude.to_vec();
        }
        if strip_prefix.is_some() {
            selection.strip_prefix = strip_prefix.cloned();
        }
        selection
    }
}
