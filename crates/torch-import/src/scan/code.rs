//! Finds the globals in the code of a TorchScript archive.

use byte_source::Blob;

use super::budget::ScanBudget;
use super::script;
use crate::script_modules::is_code;
use crate::{Container, Global, Problem, Result};

impl Container {
    /// Returns the operators and classes in the code of a TorchScript archive that are not PyTorch's own harmless ones,
    /// each with the record that uses it.
    ///
    /// # Errors
    /// As [`script_records`](Self::script_records), and when a record of code cannot be read.
    pub fn globals_in_code(&self) -> Result<Vec<(String, Global)>> {
        let mut found = Vec::new();
        for (record, storage) in self.script_records()? {
            if is_code(&record) {
                let mut code: Vec<u8> = Vec::new();
                storage.write_to(&mut code).map_err(|reason| Problem::Inflate {
                    record: record.clone(),
                    reason: reason.to_string(),
                })?;
                found.extend(globals(&code).map(|global| (record.clone(), global)));
            }
        }
        Ok(found)
    }
}

/// Returns the operators and classes in a text of TorchScript code that are not PyTorch's own harmless ones.
fn globals(code: &[u8]) -> impl Iterator<Item = Global> {
    let mut budget = ScanBudget::new(code.len() as u64);
    script::uses_in_code(code, &mut budget).into_iter().map(|used| used.global)
}
