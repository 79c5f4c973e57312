//! Computes the logits of a carton for the calls of a JSON file: `logits X.carton CALLS.json FOLDER [THREADS]`.
//!
//! A call is `{"tokens": [[1, 2], [3, 4]], "last_only": false, "cache": "keep"}`. With `keep`, its tokens follow those of
//! the call before; with `tensors`, too, but the cache is first written to tensors and read back. The logits are written
//! to `FOLDER/N.f32` as f32 numbers, and after the last call the cache to `key.f32` and `value.f32`. The conformance tests
//! use it.

use std::error::Error;
use std::path::Path;

use byte_source::Blob;
use forward::{ForwardModel, ForwardOptions, KvCache, LogitPositions};
use serde_json::Value;
use torch_import::{Checkpoint, Container};
use torchscript::Recognised;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let (carton, calls, folder, threads) = match arguments.as_slice() {
        [_, carton, calls, folder] => (carton, calls, folder, None),
        [_, carton, calls, folder, threads] => (carton, calls, folder, Some(threads.parse()?)),
        _ => return Err("usage: logits X.carton CALLS.json FOLDER [THREADS]".into()),
    };
    let carton = carton_format::Carton::open(Path::new(carton))?;
    let container = Container::from_source(carton.source(carton_format::MODEL_PT, &())?)?;
    let checkpoint = Checkpoint::read(&container)?;
    let tensors = checkpoint.to_tensors();
    let found = match torchscript::recognise(&container.records_besides_storages(), tensors) {
        Recognised::Decoder(found) => found,
        Recognised::Weights { .. } => return Err("only weights".into()),
        Recognised::Other { record } => return Err(format!("no conversion writes its {record}").into()),
    };
    let model =
        ForwardModel::new(&found.decoder, &found.tensors, &found.assignment, &ForwardOptions { threads })?;
    let calls: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(calls)?)?;
    let folder = Path::new(folder);
    let mut cache = model.cache(1)?;
    for (number, call) in calls.iter().enumerate() {
        let logits = run(&model, call, &mut cache)?;
        let bytes: Vec<u8> = logits.iter().flat_map(|logit| logit.to_le_bytes()).collect();
        std::fs::write(folder.join(format!("{number}.f32")), bytes)?;
    }
    for (name, (_, tensor)) in ["key.f32", "value.f32"].into_iter().zip(cache.tensors()?) {
        let mut bytes = Vec::new();
        tensor.gathered().write_to(&mut bytes)?;
        std::fs::write(folder.join(name), bytes)?;
    }
    Ok(())
}

fn run(model: &ForwardModel, call: &Value, cache: &mut KvCache) -> Result<Vec<f32>, Box<dyn Error>> {
    let rows = call["tokens"].as_array().ok_or("tokens is not a list of lists")?;
    let ids = rows.iter().flat_map(|row| row.as_array().into_iter().flatten());
    let tokens: Vec<i64> =
        ids.map(|id| id.as_i64().ok_or("a token is not a number")).collect::<Result<_, _>>()?;
    match call["cache"].as_str() {
        Some("keep") => {}
        Some("tensors") => {
            let past: Vec<_> = cache.tensors()?.into_iter().map(|(_, tensor)| tensor).collect();
            *cache = model.cache_from_tensors(rows.len(), &past)?;
        }
        _ => *cache = model.cache(rows.len())?,
    }
    let wanted =
        if call["last_only"] == Value::Bool(true) { LogitPositions::Last } else { LogitPositions::All };
    Ok(model.forward(&tokens, rows.len(), cache, wanted, &())?)
}
