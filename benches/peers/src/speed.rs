//! How long each reader takes for one checkpoint. They take turns, so that other load on the machine affects all of them.

use std::error::Error;
use std::hint::black_box;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use candle_core::pickle::{PthTensors, Stack};
use pytorch_reader::PytorchReader;
use torch_import::{Checkpoint, Container};

use crate::python::Python;
use crate::whole;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// `peers speed`.
pub(crate) struct Speed {
    pub(crate) rounds: usize,
    pub(crate) tensors: u32,
    pub(crate) binary: Option<PathBuf>,
    pub(crate) file: Option<PathBuf>,
}

/// A reader to be timed.
struct Contender<'f> {
    name: String,
    run: Box<dyn FnMut() -> Result<Duration> + 'f>,
    times: Vec<Duration>,
    /// Why the reader does not read this checkpoint.
    refusal: Option<String>,
    /// The reader with which the others of its group are compared.
    is_ours: bool,
}

impl Speed {
    pub(crate) fn run(&self) -> Result<()> {
        let folder = tempfile::tempdir()?;
        let made = folder.path().join("model.pth");
        let path = self.file.as_ref().unwrap_or(&made);
        if self.file.is_none() {
            whole::save(path, self.tensors)?;
        }
        let container = Container::open(path)?;
        let pickle = container.pickle();
        let alone = folder.path().join("data.pkl");
        std::fs::write(&alone, pickle)?;
        let (opcodes, tensors) = {
            let checkpoint = Checkpoint::read(&container)?;
            (pickle_vm::load(pickle)?.opcodes, checkpoint.items.len())
        };
        let bytes = pickle.len();
        let python = std::cell::RefCell::new(Python::start(&alone)?);
        let python = &python;
        let cpython = |collector: bool| {
            let about = if collector { "" } else { ", no collector" };
            let name = format!("CPython {} load(){about}", python.borrow().version);
            contender(name, move || python.borrow_mut().load(collector))
        };

        let mut groups = vec![
            (
                "the pickle",
                vec![
                    ours("torch2carton, reader", || {
                        timed(|| Ok(pickle_vm::Reader::new(pickle).try_for_each(|i| i.map(drop))?))
                    }),
                    ours("torch2carton, reader and machine", || timed(|| Ok(pickle_vm::load(pickle)?))),
                    contender("candle", || timed(|| candle(pickle))),
                    cpython(true),
                    cpython(false),
                ],
            ),
            (
                "the checkpoint: container, pickle, tensors by name",
                vec![
                    ours("torch2carton", || timed(|| read(path))),
                    contender("candle", || timed(|| Ok(PthTensors::new(path, None)?.tensor_infos().len()))),
                    contender("pytorch-reader", || timed(|| Ok(PytorchReader::new(path)?.len()))),
                ],
            ),
        ];
        if let Some(binary) = &self.binary {
            groups.push((
                "a whole process, compared with load() alone",
                vec![
                    ours("torch2carton inspect --json", || process(binary, path)),
                    cpython(true),
                    cpython(false),
                ],
            ));
        }
        for round in 0..=self.rounds {
            let group = groups.iter_mut().flat_map(|(_, group)| group);
            for contender in group.filter(|contender| contender.refusal.is_none()) {
                match (contender.run)() {
                    // The first round warms caches.
                    Ok(_) if round == 0 => {}
                    Ok(time) => contender.times.push(time),
                    Err(why) if contender.is_ours => return Err(why),
                    Err(why) => contender.refusal = Some(why.to_string()),
                }
            }
        }
        println!(
            "{tensors} tensors, {opcodes} opcodes, {bytes} bytes of pickle; {} rounds in turns",
            self.rounds
        );
        for (title, group) in &groups {
            print(title, group, bytes, opcodes);
        }
        Ok(())
    }
}

fn contender<'f>(name: impl Into<String>, run: impl FnMut() -> Result<Duration> + 'f) -> Contender<'f> {
    Contender { name: name.into(), run: Box::new(run), times: Vec::new(), refusal: None, is_ours: false }
}

fn ours<'f>(name: &str, run: impl FnMut() -> Result<Duration> + 'f) -> Contender<'f> {
    Contender { is_ours: true, ..contender(name, run) }
}

/// The time until the result is ready, without the time to drop it.
fn timed<T>(run: impl FnOnce() -> Result<T>) -> Result<Duration> {
    let start = Instant::now();
    let result = black_box(run()?);
    let time = start.elapsed();
    drop(result);
    Ok(time)
}

fn read(path: &Path) -> Result<(Container, usize)> {
    let container = Container::open(path)?;
    let tensors = Checkpoint::read(&container)?.items.len();
    Ok((container, tensors))
}

fn candle(pickle: &[u8]) -> Result<candle_core::pickle::Object> {
    let mut stack = Stack::empty();
    stack.read_loop(&mut Cursor::new(pickle))?;
    Ok(stack.finalize()?)
}

/// From the start of the process to its end.
fn process(binary: &Path, file: &Path) -> Result<Duration> {
    let start = Instant::now();
    let status = Command::new(binary).args(["inspect", "--json"]).arg(file).stdout(Stdio::null()).status();
    let time = start.elapsed();
    match status {
        Ok(status) if status.success() => Ok(time),
        Ok(status) => Err(status.to_string().into()),
        Err(why) => Err(format!("{}: {why}; build it with cargo build --release", binary.display()).into()),
    }
}

#[expect(clippy::cast_precision_loss, reason = "figures of three digits")]
fn print(title: &str, group: &[Contender<'_>], bytes: usize, opcodes: u64) {
    let smallest = |contender: &Contender<'_>| contender.times.iter().min().copied().unwrap_or_default();
    let reference = group.iter().rfind(|contender| contender.is_ours).map(smallest).unwrap_or_default();
    println!("\n{title:<52}  min ms  median ms    MB/s  M opcodes/s   times ours");
    for contender in group {
        if let Some(refusal) = &contender.refusal {
            println!("{:<52}refuses it: {refusal}", contender.name);
            continue;
        }
        let mut times = contender.times.clone();
        times.sort_unstable();
        let (min, median) = (smallest(contender).as_secs_f64(), times[times.len() / 2].as_secs_f64());
        println!(
            "{:<52}{:8.1}  {:9.1}  {:6.1}  {:11.1}  {:11.2}",
            contender.name,
            min * 1e3,
            median * 1e3,
            bytes as f64 / min / 1e6,
            opcodes as f64 / min / 1e6,
            min / reference.as_secs_f64(),
        );
    }
}
