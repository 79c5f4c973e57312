//! Makes the checkpoint in a folder: `cargo run --example tiny-llama -- DIR`.

use std::error::Error;
use std::io::{self, Write};
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "demo/tiny-llama".to_owned());
    let path = test_support::tiny_llama::write(Path::new(&folder))?;
    writeln!(io::stdout(), "wrote {}", path.display())?;
    Ok(())
}
