//! Declares the inputs and outputs of a carton, and checks inputs against the declaration.
//!
//! Facts: the Carton v1 specification: a symbol has the same value wherever it is used, `*` has a value of its own each
//! time, and the runner knows a port by its internal name.

use std::collections::HashMap;

use carton_format::{DataType, Dimension, Shape};
use tensor::{Dtype, Tensor};

use crate::InputError;

/// Wildcard symbol, which may have a different value at each use.
const ANY: &str = "*";

/// Input or output of a carton.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RunnablePort {
    /// Name of the port for callers.
    pub name: String,
    /// Name in the model, if it differs from `name`.
    pub internal_name: Option<String>,
    pub dtype: DataType,
    /// Shape in elements, with sizes or symbols as dimensions.
    pub shape: Shape,
    /// True if callers may leave out this input.
    pub optional: bool,
    pub description: Option<String>,
}

impl RunnablePort {
    pub(crate) fn new(port: &carton_format::Port, optional: bool) -> Self {
        Self {
            name: port.name.clone(),
            internal_name: port.internal_name.clone(),
            dtype: port.dtype,
            shape: port.shape.clone(),
            optional,
            description: port.description.clone(),
        }
    }

    /// Returns the name of the port in the model.
    pub fn internal(&self) -> &str {
        self.internal_name.as_deref().unwrap_or(&self.name)
    }

    /// Returns the dtype of the port's tensors; `None` for strings.
    pub fn tensor_dtype(&self) -> Option<Dtype> {
        Dtype::from_name(self.dtype.name())
    }
}

/// Checks names, dtypes and shapes of inputs against the ports of a model.
pub(crate) fn check_inputs_fit(
    ports: &[RunnablePort],
    inputs: &[(String, Tensor)],
) -> Result<(), InputError> {
    let mut seen: HashMap<&str, &Tensor> = HashMap::with_capacity(inputs.len());
    let mut symbols = Symbols::default();
    for (name, tensor) in inputs {
        let Some(port) = ports.iter().find(|port| port.name == *name) else {
            let known = ports.iter().map(|port| port.name.clone()).collect();
            return Err(InputError::Unknown { name: name.clone(), known });
        };
        if seen.insert(name, tensor).is_some() {
            return Err(InputError::DuplicateInput { name: name.clone() });
        }
        if port.tensor_dtype() != Some(tensor.dtype()) {
            let (found, expected) = (tensor.dtype().name().to_owned(), port.dtype.name());
            return Err(InputError::Dtype { name: name.clone(), found, expected });
        }
        symbols.bind(port, tensor.shape())?;
    }
    match ports.iter().find(|port| !port.optional && !seen.contains_key(port.name.as_str())) {
        Some(port) => Err(InputError::Missing { name: port.name.clone() }),
        None => Ok(()),
    }
}

/// Values of the symbols bound so far, each with the input in which the symbol occurs first.
#[derive(Default)]
struct Symbols<'p> {
    sizes: HashMap<&'p str, (&'p str, u64)>,
    shapes: HashMap<&'p str, (&'p str, Vec<u64>)>,
}

impl<'p> Symbols<'p> {
    fn bind(&mut self, port: &'p RunnablePort, shape: &[u64]) -> Result<(), InputError> {
        let differs = |symbol: &str, first_input: &str, first: String, second: String| {
            let (symbol, first_input) = (symbol.to_owned(), first_input.to_owned());
            Err(InputError::Symbol { symbol, first_input, first, second_input: port.name.clone(), second })
        };
        let dimensions = match &port.shape {
            Shape::Symbol(symbol) if symbol == ANY => return Ok(()),
            Shape::Symbol(symbol) => {
                let (input, first) =
                    self.shapes.entry(symbol).or_insert_with(|| (&port.name, shape.to_vec()));
                if first != shape {
                    return differs(symbol, input, format!("{first:?}"), format!("{shape:?}"));
                }
                return Ok(());
            }
            Shape::Dimensions(dimensions) => dimensions,
        };
        let fits = |(dimension, size): (&Dimension, &u64)| match dimension {
            Dimension::Size(expected) => expected == size,
            Dimension::Symbol(_) => true,
        };
        if dimensions.len() != shape.len() || !dimensions.iter().zip(shape).all(fits) {
            let (found, expected) = (shape.to_vec(), port.shape.to_string());
            return Err(InputError::Shape { name: port.name.clone(), found, expected });
        }
        for (dimension, size) in dimensions.iter().zip(shape) {
            let Dimension::Symbol(symbol) = dimension else { continue };
            if symbol == ANY {
                continue;
            }
            let (input, first) = *self.sizes.entry(symbol).or_insert((&port.name, *size));
            if first != *size {
                return differs(symbol, input, first.to_string(), size.to_string());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use test_support::zeros as tensor;

    use super::*;

    fn port(name: &str, dtype: DataType, shape: Shape, optional: bool) -> RunnablePort {
        RunnablePort::new(&carton_format::Port::new(name, dtype, shape), optional)
    }

    fn dims(text: &str) -> Shape {
        let dimension = |part: &str| match part.parse() {
            Ok(size) => Dimension::Size(size),
            Err(_) => Dimension::Symbol(part.to_owned()),
        };
        Shape::Dimensions(text.split(' ').filter(|part| !part.is_empty()).map(dimension).collect())
    }

    fn checked(ports: &[RunnablePort], inputs: &[(&str, Tensor)]) -> Option<String> {
        let inputs: Vec<_> =
            inputs.iter().map(|(name, tensor)| ((*name).to_owned(), tensor.clone())).collect();
        check_inputs_fit(ports, &inputs).err().map(|error| error.to_string())
    }

    #[test]
    fn names_dtypes_and_shapes_are_checked() {
        let ports = [
            port("x", DataType::Float32, dims("n 3 *"), false),
            port("y", DataType::Int64, dims("n"), true),
            port("z", DataType::Int8, dims(""), true),
        ];
        let x = || tensor(Dtype::Float32, &[2, 3, 5]);
        let y = |n| tensor(Dtype::Int64, &[n]);
        assert_eq!(checked(&ports, &[("x", x())]), None);
        assert_eq!(checked(&ports, &[("y", y(2)), ("x", x()), ("z", tensor(Dtype::Int8, &[]))]), None);
        let error = |inputs: &[(&str, Tensor)]| checked(&ports, inputs).expect("they do not fit");
        assert_eq!(error(&[("y", y(2))]), "the input `x` is missing");
        assert_eq!(error(&[("w", y(2))]), "there is no input `w`; the inputs are x, y, z");
        assert_eq!(error(&[("y", y(2)), ("y", y(2))]), "the input `y` is given twice");
        assert_eq!(
            error(&[("x", tensor(Dtype::Float64, &[2, 3, 5]))]),
            "the input `x` is float64, expected float32"
        );
        for shape in [&[2, 3][..], &[2, 4, 5], &[2, 3, 5, 1]] {
            let expected = format!("the input `x` has the shape {shape:?}, expected [n, 3, *]");
            assert_eq!(error(&[("x", tensor(Dtype::Float32, shape))]), expected);
        }
        assert_eq!(
            error(&[("x", x()), ("y", y(4))]),
            "`n` is 2 in the input `x` and 4 in the input `y`, expected the same"
        );
        let shape = error(&[("x", x()), ("z", tensor(Dtype::Int8, &[1]))]);
        assert_eq!(shape, "the input `z` has the shape [1], expected []");
        assert_eq!(checked(&[], &[("x", x())]).expect("none"), "there is no input `x`; there are none");
    }

    #[test]
    fn a_symbol_can_be_a_whole_shape_and_repeat_within_one() {
        let ports = [
            port("a", DataType::Int8, Shape::Symbol("s".to_owned()), false),
            port("b", DataType::Int8, Shape::Symbol("s".to_owned()), true),
            port("c", DataType::Int8, Shape::any(), true),
            port("d", DataType::Int8, dims("k k"), true),
            port("e", DataType::Int8, dims("* *"), true),
        ];
        let t = |shape: &[u64]| tensor(Dtype::Int8, shape);
        assert_eq!(checked(&ports, &[("a", t(&[2, 3])), ("b", t(&[2, 3])), ("c", t(&[7]))]), None);
        assert_eq!(checked(&ports, &[("a", t(&[])), ("d", t(&[2, 2])), ("e", t(&[2, 3]))]), None);
        assert_eq!(
            checked(&ports, &[("a", t(&[2, 3])), ("b", t(&[6]))]).expect("they differ"),
            "`s` is [2, 3] in the input `a` and [6] in the input `b`, expected the same"
        );
        assert_eq!(
            checked(&ports, &[("a", t(&[])), ("d", t(&[2, 3]))]).expect("they differ"),
            "`k` is 2 in the input `d` and 3 in the input `d`, expected the same"
        );
    }
}
