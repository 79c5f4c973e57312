//! Scan of ONNX models, of which a runtime takes operators, code and numbers from elsewhere.

use super::budget::truncate_name;
use super::scanner::Scanner;
use super::{GlobalUse, PicklePlace, onnx_reader};
use crate::{Global, Risk};

impl Scanner<'_, '_> {
    /// Scans a model for what a runtime takes from elsewhere.
    pub(super) fn scan_onnx(&mut self, record: &PicklePlace, bytes: &[u8]) {
        self.has_content = true;
        // The formats have no signature.
        self.report_foreign(record);
        if !self.budget.spend(bytes.len() as u64) {
            return self.add_missed(|| format!("{record}: the limit on the work for one file was reached"));
        }
        let found = onnx_reader::read(bytes);
        if let Some(error) = found.error {
            self.add_missed(|| format!("{record}: {error}"));
        }
        for operator in found.running {
            self.add_missed(|| format!("{record}: the code that the operator {operator} runs"));
        }
        for path in found.elsewhere {
            let path = truncate_name(path.escape_debug().to_string());
            self.add_finding("elsewhere", || {
                format!("{record}: numbers in `{path}`, which is in another folder, and may be any file")
            });
        }
        let unknown = |(domain, name): (&str, &str)| {
            let (module, name) = (truncate_name(domain.to_owned()), truncate_name(name.to_owned()));
            let global = Global::with_risk(&module, &name, 0, Risk::Unknown);
            GlobalUse {
                global,
                risk: Risk::Unknown,
                calls: Vec::new(),
                unlisted_calls: 0,
                after_error: false,
            }
        };
        let uses = found.operators.into_iter().map(unknown).collect();
        self.add_pickle(record, 0, uses, None);
    }
}
