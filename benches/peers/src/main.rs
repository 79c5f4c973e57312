//! torch2carton compared with other readers of PyTorch's files: candle's `pickle` module, burn's `pytorch-reader`, CPython.

mod python;
mod read;
mod speed;
mod whole;
mod write;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "\
usage: peers speed [--rounds N] [--tensors N] [--binary TORCH2CARTON] [FILE]
       peers read [--json] [--seconds N] FILE…
       peers write candle|safetensors FILE OUTPUT

speed  the times of all readers on one checkpoint, round by round. Without FILE it makes one of 100,000 tensors (or
       --tensors). --binary adds whole processes of that torch2carton.
read   what candle and pytorch-reader say of each file, each in a process of its own that may take 20 seconds (or
       --seconds). --json prints an object a line, with every tensor.
write  the tensors of FILE as a safetensors file, with candle or with the official crate over the mapped file.";

fn main() -> ExitCode {
    let done = match Command::parse(std::env::args().skip(1)) {
        Ok(Command::Speed(speed)) => speed.run(),
        Ok(Command::Read(read)) => read.run(),
        Ok(Command::One(peer, file)) => read::one(&peer, &file),
        Ok(Command::Write(peer, from, to)) => write::write(&peer, &from, &to),
        Err(words) => {
            eprintln!("{words}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The command that was given.
enum Command {
    Speed(speed::Speed),
    Read(read::Read),
    /// One peer on one file: what `read` starts for each.
    One(String, PathBuf),
    /// One peer, a checkpoint, and the safetensors file to write.
    Write(String, PathBuf, PathBuf),
}

impl Command {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let name = words.next().ok_or("which command?")?;
        let mut speed = speed::Speed { rounds: 15, tensors: 100_000, binary: None, file: None };
        let mut read = read::Read { json: false, seconds: 20, files: Vec::new() };
        let mut plain = Vec::new();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            match (name.as_str(), word.as_str()) {
                ("speed", "--rounds") => speed.rounds = value()?.parse()?,
                ("speed", "--tensors") => speed.tensors = value()?.parse()?,
                ("speed", "--binary") => speed.binary = Some(PathBuf::from(value()?)),
                ("read", "--json") => read.json = true,
                ("read", "--seconds") => read.seconds = value()?.parse()?,
                (_, flag) if flag.starts_with("--") => return Err(format!("{name} has no {flag}").into()),
                _ => plain.push(word),
            }
        }
        match (name.as_str(), plain.as_mut_slice()) {
            ("speed", []) if speed.rounds > 0 => Ok(Self::Speed(speed)),
            ("speed", [file]) if speed.rounds > 0 => {
                speed.file = Some(PathBuf::from(std::mem::take(file)));
                Ok(Self::Speed(speed))
            }
            ("read", [_, ..]) => {
                read.files = plain.into_iter().map(PathBuf::from).collect();
                Ok(Self::Read(read))
            }
            ("read-one", [peer, file]) => {
                Ok(Self::One(std::mem::take(peer), PathBuf::from(std::mem::take(file))))
            }
            ("write", [peer, from, to]) => Ok(Self::Write(
                std::mem::take(peer),
                PathBuf::from(std::mem::take(from)),
                PathBuf::from(std::mem::take(to)),
            )),
            _ => Err(format!("{name} does not go like this").into()),
        }
    }
}
