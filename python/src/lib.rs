//! The native part of the Python package `torch2carton`, over the library of the same name. The package in
//! `python/torch2carton` is the interface; nothing here is public.

mod checkpoint;
mod errors;
mod fleet;
mod index;
mod maps;
mod memory;
mod objects;
mod opened;
mod run;
mod storage;
mod tensor;
mod text_model;
mod unmapped_file;
mod verbs;
mod views;
mod work;

use pyo3::prelude::*;

#[pymodule(gil_used = false)]
mod _native {
    #[pymodule_export]
    use crate::checkpoint::{Checkpoint, Items};
    #[pymodule_export]
    use crate::fleet::{Batch, BatchWorker, batch_request, failed_job};
    #[pymodule_export]
    use crate::memory::Buffer;
    #[pymodule_export]
    use crate::objects::Objects;
    #[pymodule_export]
    use crate::run::run;
    #[pymodule_export]
    use crate::storage::Storage;
    #[pymodule_export]
    use crate::tensor::Tensor;
    #[pymodule_export]
    use crate::text_model::TextModel;
    #[pymodule_export]
    use crate::verbs::{
        TraceLines, check, convert, diff, digest, inspect, main, scan, trace, verify, verify_statement,
    };
    #[pymodule_export]
    use crate::views::report;

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
