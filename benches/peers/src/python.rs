//! CPython's unpickler, written in C, in a child process that times itself.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// Answers each line with the seconds that `load()` took, without dropping the result. Classes whose objects are filled
/// are dicts, other classes are functions that do nothing, and storages are None. These are the cheapest stand-ins with
/// which a checkpoint can be read.
const PROGRAM: &str = "
import gc, io, pickle, sys, time
class Unpickler(pickle.Unpickler):
    def find_class(self, module, name): return dict if name == 'OrderedDict' else lambda *args: None
    def persistent_load(self, pid): return None
with open(sys.argv[1], 'rb') as file: data = file.read()
print(sys.version.split()[0], flush=True)
for line in sys.stdin:
    gc.enable() if line == 'gc\\n' else gc.disable()
    unpickler = Unpickler(io.BytesIO(data))
    start = time.perf_counter()
    loaded = unpickler.load()
    seconds = time.perf_counter() - start
    del loaded, unpickler
    gc.collect()
    print(seconds, flush=True)
";

/// The child.
pub(crate) struct Python {
    child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
    pub(crate) version: String,
}

impl Python {
    /// Starts `python3` on the pickle at `path`.
    pub(crate) fn start(path: &Path) -> Result<Self, Box<dyn Error>> {
        let mut child = Command::new("python3")
            .args(["-c", PROGRAM])
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|why| format!("python3: {why}"))?;
        let (Some(questions), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("python3 has no pipes".into());
        };
        let mut python = Self { child, questions, answers: BufReader::new(answers), version: String::new() };
        python.version = python.line()?;
        Ok(python)
    }

    /// How long `load()` takes, with or without the garbage collector.
    pub(crate) fn load(&mut self, collector: bool) -> Result<Duration, Box<dyn Error>> {
        self.questions.write_all(if collector { b"gc\n" } else { b"no gc\n" })?;
        Ok(Duration::try_from_secs_f64(self.line()?.parse()?)?)
    }

    fn line(&mut self) -> Result<String, Box<dyn Error>> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            return Err("python3 cannot read this pickle; its words are above".into());
        }
        Ok(line.trim().to_owned())
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        // It may already have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
