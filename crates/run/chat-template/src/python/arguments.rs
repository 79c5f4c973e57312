//! Arguments of Python's functions, by position or by name.

use minijinja::value::{Kwargs, from_args};
use minijinja::{Error, Value};

use super::values::failed;

/// Arguments of a call, which are taken in their order.
pub(super) struct CallArguments {
    positional: std::vec::IntoIter<Value>,
    named: Option<Kwargs>,
}

impl CallArguments {
    /// Splits the arguments of a call.
    pub(super) fn new(args: &[Value]) -> Result<Self, Error> {
        let (positional, named): (&[Value], Option<Kwargs>) = match args.split_last() {
            Some((last, rest)) if last.is_kwargs() => {
                (rest, Some(from_args::<(Kwargs,)>(std::slice::from_ref(last))?.0))
            }
            _ => (args, None),
        };
        Ok(Self { positional: Vec::from(positional).into_iter(), named })
    }

    /// Returns the next argument, which may also be given by its name; `None` if it is left out or none.
    pub(super) fn optional(&mut self, name: &str) -> Result<Option<Value>, Error> {
        let value = match (self.positional.next(), &self.named) {
            (Some(value), _) => Some(value),
            (None, Some(named)) if named.has(name) => Some(named.get::<Value>(name)?),
            (None, _) => None,
        };
        Ok(value.filter(|value| !value.is_none()))
    }

    /// Returns the next argument, which must be given.
    pub(super) fn required(&mut self, name: &str) -> Result<Value, Error> {
        self.optional(name)?.ok_or_else(|| failed(format!("the argument `{name}` is missing")))
    }

    /// Returns the next argument, a text; `None` if it is left out.
    pub(super) fn optional_text(&mut self, name: &str) -> Result<Option<String>, Error> {
        self.optional(name)?.map(|value| text_of(&value, name)).transpose()
    }

    /// Returns the next argument, a text that must be given.
    pub(super) fn text(&mut self, name: &str) -> Result<String, Error> {
        text_of(&self.required(name)?, name)
    }

    /// Returns the next argument, a whole number; `None` if it is left out.
    pub(super) fn optional_number(&mut self, name: &str) -> Result<Option<i64>, Error> {
        let number = |value: Value| {
            value.as_i64().ok_or_else(|| failed(format!("the argument `{name}` is not a whole number")))
        };
        self.optional(name)?.map(number).transpose()
    }

    /// Returns the next argument, a truth value; false if it is left out.
    pub(super) fn flag(&mut self, name: &str) -> Result<bool, Error> {
        Ok(self.optional(name)?.is_some_and(|value| value.is_true()))
    }

    /// Checks that all arguments were taken.
    pub(super) fn end(mut self) -> Result<(), Error> {
        if self.positional.next().is_some() {
            return Err(failed("there are too many arguments"));
        }
        self.named.map_or(Ok(()), |named| named.assert_all_used())
    }
}

fn text_of(value: &Value, name: &str) -> Result<String, Error> {
    value.as_str().map(str::to_owned).ok_or_else(|| failed(format!("the argument `{name}` is not a text")))
}
