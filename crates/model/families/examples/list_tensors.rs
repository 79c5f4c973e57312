//! Prints what a model has in both layouts, for each `config.json` of the arguments, as a line of JSON.

use families::Model;
use serde_json::{Value, json};

#[expect(clippy::print_stdout, reason = "an example")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    for file in std::env::args().skip(1) {
        let line = match Model::from_config(&std::fs::read_to_string(&file)?) {
            Ok(model) => json!({
                "file": file,
                "released": model.released().map(|(name, shape)| (name, json!(shape))).collect::<serde_json::Map<String, Value>>(),
                "modules": model.modules().map(|(name, shape)| (name, json!(shape))).collect::<serde_json::Map<String, Value>>(),
            }),
            Err(error) => json!({ "file": file, "error": error.to_string() }),
        };
        println!("{line}");
    }
    Ok(())
}
