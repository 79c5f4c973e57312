//! What candle and pytorch-reader read from files. Each reads each file in a separate process, so that a panic, an
//! endless loop or an abort is one outcome and does not end the run.

use std::error::Error;
use std::fs;
use std::io::{Read as _, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use candle_core::{DType, Device, Tensor};
use pytorch_reader::PytorchReader;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const PEERS: [&str; 2] = ["candle", "pytorch-reader"];

/// `peers read`.
pub(crate) struct Read {
    pub(crate) json: bool,
    pub(crate) seconds: u64,
    pub(crate) files: Vec<PathBuf>,
}

impl Read {
    pub(crate) fn run(&self) -> Result<()> {
        for file in &self.files {
            for peer in PEERS {
                let mut outcome = self.outcome(peer, file)?;
                if self.json {
                    let head = json!({ "file": file.display().to_string(), "peer": peer });
                    if let (Value::Object(outcome), Value::Object(mut head)) = (&mut outcome, head) {
                        head.append(outcome);
                        println!("{}", Value::Object(head));
                    }
                } else {
                    println!("{:<14} {}  {}", peer, summary(&outcome), file.display());
                }
            }
        }
        Ok(())
    }

    /// `{"tensors": […]}`, `{"error": …}`, `{"panic": …}` or `{"killed": …}`.
    fn outcome(&self, peer: &str, file: &Path) -> Result<Value> {
        let (mut out, mut err) = (tempfile::tempfile()?, tempfile::tempfile()?);
        let mut child = Command::new(std::env::current_exe()?)
            .args(["read-one", peer])
            .arg(file)
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(err.try_clone()?)
            .spawn()?;
        let end = Instant::now() + Duration::from_secs(self.seconds);
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if Instant::now() > end {
                child.kill()?;
                child.wait()?;
                return Ok(json!({ "killed": format!("not done after {} s", self.seconds) }));
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let text = |file: &mut fs::File| -> Result<String> {
            let mut bytes = Vec::new();
            file.rewind()?;
            file.read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        if status.success() {
            return Ok(serde_json::from_str(&text(&mut out)?)?);
        }
        let words = text(&mut err)?;
        Ok(match words.split_once("panicked at ") {
            Some((_, panic)) => json!({ "panic": panic.lines().take(2).collect::<Vec<_>>().join(" ") }),
            None => json!({ "killed": status.to_string() }),
        })
    }
}

/// A line for people: the number of tensors, and a hash of their names, dtypes, shapes and bytes.
fn summary(outcome: &Value) -> String {
    let Some(tensors) = outcome["tensors"].as_array() else {
        let text = outcome.to_string();
        return text.chars().take(160).collect();
    };
    let hash = hex(&Sha256::digest(outcome["tensors"].to_string()));
    format!("{:>6} tensors  {}", tensors.len(), &hash[..16])
}

/// `peers read-one PEER FILE`: prints the outcome of this peer.
pub(crate) fn one(peer: &str, file: &Path) -> Result<()> {
    let tensors = match peer {
        "candle" => candle(file),
        "pytorch-reader" => pytorch_reader(file),
        other => return Err(format!("no peer is called {other}").into()),
    };
    println!(
        "{}",
        match tensors {
            Ok(mut tensors) => {
                tensors.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
                json!({ "tensors": tensors })
            }
            Err(error) => json!({ "error": error.to_string().lines().next().unwrap_or_default() }),
        }
    );
    Ok(())
}

fn row(name: &str, dtype: &str, shape: &[usize], bytes: &[u8]) -> Value {
    json!({ "name": name, "dtype": dtype, "shape": shape, "sha256": hex(&Sha256::digest(bytes)) })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

fn pytorch_reader(file: &Path) -> Result<Vec<Value>> {
    use pytorch_reader::DType::{BF16, Bool, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
    let reader = PytorchReader::new(file)?;
    let rows = reader.tensors().iter().map(|(name, tensor)| {
        let dtype = match tensor.dtype() {
            F64 => "float64",
            F32 => "float32",
            F16 => "float16",
            BF16 => "bfloat16",
            I64 => "int64",
            I32 => "int32",
            I16 => "int16",
            I8 => "int8",
            U64 => "uint64",
            U32 => "uint32",
            U16 => "uint16",
            U8 => "uint8",
            Bool => "bool",
        };
        Ok(row(name, dtype, tensor.shape(), &tensor.read()?))
    });
    rows.collect()
}

/// Reads with the module for the format: `safetensors` for a safetensors file, `pickle` for all others.
fn candle(file: &Path) -> Result<Vec<Value>> {
    let mut head = [0; 9];
    let is_safetensors = fs::File::open(file)?.read_exact(&mut head).is_ok()
        && head[8] == b'{'
        && u64::from_le_bytes(head[..8].try_into()?) < fs::metadata(file)?.len();
    let tensors: Vec<(String, Tensor)> = if is_safetensors {
        candle_core::safetensors::load(file, &Device::Cpu)?.into_iter().collect()
    } else {
        candle_core::pickle::read_all(file)?
    };
    tensors.iter().map(|(name, tensor)| candle_row(name, tensor)).collect()
}

fn candle_row(name: &str, tensor: &Tensor) -> Result<Value> {
    let flat = tensor.flatten_all()?;
    macro_rules! bytes {
        ($t:ty) => {
            flat.to_vec1::<$t>()?.into_iter().flat_map(<$t>::to_le_bytes).collect::<Vec<u8>>()
        };
    }
    let (dtype, bytes) = match tensor.dtype() {
        DType::U8 => ("uint8", flat.to_vec1::<u8>()?),
        DType::U32 => ("uint32", bytes!(u32)),
        DType::I16 => ("int16", bytes!(i16)),
        DType::I32 => ("int32", bytes!(i32)),
        DType::I64 => ("int64", bytes!(i64)),
        DType::BF16 => ("bfloat16", bytes!(half::bf16)),
        DType::F16 => ("float16", bytes!(half::f16)),
        DType::F32 => ("float32", bytes!(f32)),
        DType::F64 => ("float64", bytes!(f64)),
        other => return Err(format!("tensor {name}: candle hands out no bytes of {other:?}").into()),
    };
    Ok(row(name, dtype, tensor.dims(), &bytes))
}
