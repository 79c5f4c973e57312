//! A server for tests of clients: models that return their inputs, one for each datatype, and one for all of them together.
//!
//! `identity [--port N] [--queue N] [--max-body BYTES] [--max-memory BYTES] [--drain SECONDS] [--until-stdin-closes]`
//!
//! It prints its address as one line on standard output. Models:
//!
//! | name | inputs, outputs | shape | batches |
//! |---|---|---|---|
//! | `identity_bool` … `identity_bytes` | `INPUT0`, `OUTPUT0` of that datatype | `[-1]` | up to 8 |
//! | `identity_fp32_unbatched` | `INPUT0`, `OUTPUT0` | `[-1, -1]` | no |
//! | `identity_all` | `IN_BOOL` … `IN_BYTES`, `OUT_BOOL` … `OUT_BYTES` | `[-1]` | up to 8 |
//!
//! Request parameters change what a model does: with `delay_ms` it waits first, with `panic` it panics, with `fail` it
//! returns an error.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use kserve::{Datatype, InferRequest, ModelConfig, OutputTensor, Parameter, TensorConfig};
use serve::{CancelToken, InferModel, ModelError, ModelSource, ServeOptions, Server};

struct Identity {
    tensors: Vec<(String, String, Datatype)>,
    dims: usize,
    max_batch_size: u32,
}

impl InferModel for Identity {
    fn config(&self) -> ModelConfig {
        let tensor = |name: &String, datatype: Datatype| TensorConfig {
            name: name.clone(),
            datatype,
            dims: vec![None; self.dims],
            optional: false,
        };
        ModelConfig {
            name: String::new(),
            platform: "identity".to_owned(),
            backend: "identity".to_owned(),
            max_batch_size: self.max_batch_size,
            input: self.tensors.iter().map(|(input, _, datatype)| tensor(input, *datatype)).collect(),
            output: self.tensors.iter().map(|(_, output, datatype)| tensor(output, *datatype)).collect(),
        }
    }

    fn infer(
        &self,
        request: &InferRequest,
        cancel: &CancelToken<'_>,
    ) -> Result<Vec<OutputTensor>, ModelError> {
        let parameter = |name: &str| {
            request.parameters.iter().find(|(other, _)| other == name).map(|(_, parameter)| parameter)
        };
        if let Some(Parameter::Int(millis)) = parameter("delay_ms") {
            let (since, delay) = (Instant::now(), Duration::from_millis(u64::try_from(*millis).unwrap_or(0)));
            while since.elapsed() < delay {
                if cancel.is_cancelled() {
                    return Err(ModelError::Cancelled);
                }
                thread::sleep(Duration::from_millis(1));
            }
        }
        assert!(parameter("panic") != Some(&Parameter::Bool(true)), "a panic was asked for");
        if parameter("fail") == Some(&Parameter::Bool(true)) {
            return Err(ModelError::Failed("a failure was asked for".into()));
        }
        let outputs = request.inputs.iter().filter_map(|input| {
            let (_, name, _) = self.tensors.iter().find(|(name, _, _)| *name == input.name)?;
            // A server sends what a model returns, so only what was asked for.
            request.outputs.iter().find(|output| output.name == *name)?;
            Some(OutputTensor {
                name: name.clone(),
                datatype: input.datatype,
                shape: input.shape.clone(),
                parameters: Vec::new(),
                data: input.data.clone(),
                is_binary: input.is_binary,
            })
        });
        Ok(outputs.collect())
    }
}

fn models() -> Vec<(String, Arc<dyn InferModel>)> {
    let one = |datatype| vec![("INPUT0".to_owned(), "OUTPUT0".to_owned(), datatype)];
    let model = |tensors, dims, max_batch_size| -> Arc<dyn InferModel> {
        Arc::new(Identity { tensors, dims, max_batch_size })
    };
    let lower = |datatype: Datatype| datatype.name().to_lowercase();
    let mut models: Vec<(String, Arc<dyn InferModel>)> = Datatype::all()
        .map(|datatype| (format!("identity_{}", lower(datatype)), model(one(datatype), 1, 8)))
        .collect();
    models.push(("identity_fp32_unbatched".to_owned(), model(one(Datatype::Fp32), 2, 0)));
    let all = Datatype::all().map(|datatype| (format!("IN_{datatype}"), format!("OUT_{datatype}"), datatype));
    models.push(("identity_all".to_owned(), model(all.collect(), 1, 8)));
    models
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut options = ServeOptions { port: 0, ..ServeOptions::default() };
    let mut until_stdin_closes = false;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        if arg == "--until-stdin-closes" {
            until_stdin_closes = true;
            continue;
        }
        let value = args.next().ok_or_else(|| format!("{arg} needs a value"))?;
        match arg.as_str() {
            "--port" => options.port = value.parse()?,
            "--queue" => options.limits.queue = value.parse()?,
            "--max-body" => options.limits.body = value.parse()?,
            "--max-memory" => options.limits.memory = value.parse()?,
            "--drain" => options.timeouts.drain = Duration::from_secs(value.parse()?),
            _ => return Err(format!("unknown option {arg}").into()),
        }
    }
    let server = Server::new(&options, ModelSource::Fixed(models()), Arc::new(()))?;
    let mut out = io::stdout().lock();
    writeln!(out, "http://{}", server.address())?;
    out.flush()?;
    drop(out);
    if until_stdin_closes {
        let handle = server.handle();
        thread::spawn(move || {
            // Whatever ends standard input ends the server.
            let _ = io::stdin().lock().read_to_end(&mut Vec::new());
            handle.shut_down();
        });
    }
    server.run();
    Ok(())
}
