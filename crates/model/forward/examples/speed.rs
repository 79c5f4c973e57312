//! Times a decoder: `speed X.carton [THREADS [PROMPT]]` computes the logits of PROMPT tokens and of 32 more, one by one.

#![expect(clippy::print_stdout, reason = "an example prints")]
#![expect(
    clippy::cast_precision_loss,
    clippy::arithmetic_side_effects,
    reason = "times and rates are rounded"
)]

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use forward::{ForwardModel, ForwardOptions, LogitPositions};
use torch_import::Checkpoint;
use torchscript::Recognised;

const MORE: usize = 32;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |place: usize| arguments.get(place).map(|text| text.parse::<usize>()).transpose();
    let (path, threads, prompt) =
        (arguments.first().ok_or("no carton")?, number(1)?, number(2)?.unwrap_or(512));
    let start = Instant::now();
    let container = carton_reader::Carton::open(Path::new(path))?.model(carton_format::MODEL_PT)?;
    let checkpoint = Checkpoint::read(&container)?;
    let tensors = checkpoint.to_tensors();
    let Recognised::Decoder(found) = torchscript::recognise(&container.records_besides_storages(), tensors)
    else {
        return Err("no decoder".into());
    };
    let model =
        ForwardModel::new(&found.decoder, &found.tensors, &found.assignment, &ForwardOptions { threads })?;
    println!(
        "{} with {} threads, opened in {:.3} s",
        model.kernel(),
        model.threads(),
        start.elapsed().as_secs_f64()
    );
    let tokens: Vec<i64> =
        (0..prompt).map(|place| i64::try_from(place * 31 % model.vocab())).collect::<Result<_, _>>()?;
    for _ in 0..3 {
        let mut cache = model.cache(1)?;
        let start = Instant::now();
        model.forward(&tokens, 1, &mut cache, LogitPositions::Last, &())?;
        let prefill = start.elapsed().as_secs_f64();
        let start = Instant::now();
        for token in 0..MORE {
            model.forward(&[i64::try_from(token)?], 1, &mut cache, LogitPositions::Last, &())?;
        }
        let each = start.elapsed().as_secs_f64() / MORE as f64;
        println!(
            "{prompt} tokens: {prefill:.3} s; then {:.2} ms each, {:.2} GB/s of weights",
            each * 1e3,
            model.weights_nbytes() as f64 / each / 1e9
        );
    }
    Ok(())
}
