//! Reader of the source text of TorchScript archives: extracts the signature of a class's `forward` and the operators that
//! the code calls. Nothing is compiled.
//!
//! ```
//! use torchscript::script_text::{ScriptSources, ScriptType};
//!
//! let mut sources = ScriptSources::default();
//! sources.add("code/__torch__/net.py", b"class Net(Module):\n  def forward(self: __torch__.net.Net,\n    x: Tensor) -> int:\n")?;
//! let signature = sources.signature("__torch__.net", "Net", "forward")?;
//! assert_eq!(signature.arguments[0].name, "x");
//! assert_eq!(*signature.types.kind(signature.returns), ScriptType::Int);
//! # Ok::<(), torchscript::script_text::Error>(())
//! ```
//!
//! Facts: `PythonPrint` in `torch/csrc/jit/serialization/python_print.cpp` writes the text, `SourceImporter` in
//! `import_source.cpp` reads it; archives that PyTorch 1.13, 2.0.1 and 2.15 wrote.

mod error;
mod lexer;
mod name_scanner;
mod operators;
mod signature;
mod types;

pub use error::{Error, Result};
pub use operators::{UnsupportedOperators, unloadable_operator, unsupported_operators};
pub use signature::{Argument, ScriptSources, Signature, is_code};
pub use types::{EnumMember, ScriptType, ScriptTypeId, ScriptTypes, TupleField};
