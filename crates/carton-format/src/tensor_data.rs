//! `tensor_data/index.toml`.

use serde::Serialize;

use crate::Error;

/// The tensors that self tests and examples refer to. The real client needs the document even where
/// there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TensorIndex {
    tensor: [(); 0],
}

impl TensorIndex {
    /// Where it lies in a carton.
    pub const PATH: &'static str = "tensor_data/index.toml";

    /// The document as TOML.
    ///
    /// # Errors
    /// When TOML cannot express it.
    pub fn to_toml(&self) -> Result<String, Error> {
        toml::to_string(self)
            .map_err(|error| Error::Print { document: Self::PATH, reason: error.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_index_names_its_table() {
        assert_eq!(TensorIndex::default().to_toml().as_deref(), Ok("tensor = []\n"));
    }
}
