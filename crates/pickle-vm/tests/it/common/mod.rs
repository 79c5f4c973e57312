//! Shared by the tests: the CPython process to compare with, and values in its notation.

#![allow(dead_code, reason = "each test file uses what it needs")]
#![expect(clippy::print_stderr, reason = "a skipped test reports that it was skipped")]

pub(crate) mod checkpoint;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{ErrorKind, Write as _};
use std::process::{Command, Stdio};

use pickle_vm::{Construction, Heap, Object, ObjectId, Pickle};

/// One pickle, and CPython's results for it.
pub(crate) struct Record {
    /// Whether bytes of it were changed at random.
    pub(crate) damaged: bool,
    pub(crate) pickle: Vec<u8>,
    /// What pickletools prints; the last line is `raises` where it raises.
    pub(crate) lines: String,
    /// The value in the notation of [`describe`], or `raises`.
    pub(crate) value: String,
}

/// The variable of the environment that lets the tests pass without CPython.
const WITHOUT_PYTHON: &str = "PICKLE_VM_WITHOUT_PYTHON";

const JUDGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/cpython.py");

/// Pickles that CPython generates; empty if [`WITHOUT_PYTHON`] is set and CPython is not installed.
pub(crate) fn generated(seed: &str, count: &str) -> Vec<Record> {
    run(&["generate", seed, count], &[])
}

/// CPython's results for these pickles; empty if [`WITHOUT_PYTHON`] is set and CPython is not installed.
pub(crate) fn judged(pickles: &[Vec<u8>]) -> Vec<Record> {
    let mut input = Vec::new();
    for pickle in pickles {
        let length = u32::try_from(pickle.len()).expect("test pickles are small");
        input.extend_from_slice(&length.to_le_bytes());
        input.extend_from_slice(pickle);
    }
    run(&["judge"], &input)
}

fn run(args: &[&str], input: &[u8]) -> Vec<Record> {
    let child = Command::new("python3")
        .arg(JUDGE)
        .args(args)
        .env("PYTHONHASHSEED", "0")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            assert!(
                std::env::var_os(WITHOUT_PYTHON).is_some(),
                "python3 is not installed; with {WITHOUT_PYTHON}=1 in the environment, nothing is compared with it"
            );
            eprintln!("skipped: python3 is not installed");
            return Vec::new();
        }
        Err(error) => panic!("python3 cannot be run: {error}"),
    };
    let mut stdin = child.stdin.take().expect("stdin is piped");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().expect("python3 ends");
    writer.join().expect("the writer does not panic").expect("python3 reads its input");
    assert!(output.status.success(), "cpython.py failed");
    let mut rest = output.stdout.as_slice();
    let mut next = || {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let (part, after) = after.split_at(u32::from_le_bytes(*length) as usize);
        rest = after;
        Some(part.to_vec())
    };
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the judge writes UTF-8");
    let mut records = Vec::new();
    while let (Some(origin), Some(pickle), Some(lines), Some(value)) = (next(), next(), next(), next()) {
        records.push(Record {
            damaged: origin == b"damaged",
            pickle,
            lines: text(lines),
            value: text(value),
        });
    }
    assert!(!records.is_empty(), "cpython.py has no results");
    records
}

/// One line for a value, as `describe` in cpython.py writes it.
pub(crate) fn describe(pickle: &Pickle<'_>) -> String {
    let mut describer = Describer { heap: &pickle.heap, seen: HashMap::new(), out: String::new() };
    describer.walk(pickle.root);
    describer.out
}

struct Describer<'a, 'p> {
    heap: &'a Heap<'p>,
    seen: HashMap<ObjectId, usize>,
    out: String,
}

impl Describer<'_, '_> {
    fn put(&mut self, text: &str) {
        self.out.push_str(text);
    }

    fn hex(&mut self, kind: char, bytes: &[u8]) {
        self.out.push(kind);
        for byte in bytes {
            write!(self.out, "{byte:02x}").expect("a String takes everything");
        }
    }

    fn walk(&mut self, id: ObjectId) {
        let heap = self.heap;
        match heap.get(id) {
            Object::None => return self.put("N"),
            Object::Bool(value) => return self.put(if *value { "T" } else { "F" }),
            Object::Int(value) => return self.put(&format!("i{value}")),
            Object::Long(value) => return self.put(&format!("i{value}")),
            Object::Float(value) => return self.hex('f', &value.to_be_bytes()),
            Object::Text(text) => return self.hex('s', text.bytes()),
            Object::String(bytes) => return self.hex('b', bytes),
            Object::Bytes(bytes) => return self.hex('b', bytes),
            Object::ByteArray(bytes) if heap.recorded_changes(id).is_none() => return self.hex('a', bytes),
            Object::Buffer { index, readonly } => {
                return self.put(&format!("B{index}{}", if *readonly { "r" } else { "w" }));
            }
            Object::Tuple(_) if heap.items(id) == Some(&[]) => return self.put("()"),
            Object::Global(_) if heap.recorded_changes(id).is_none() => return self.global(id),
            _ => {}
        }
        let number = self.seen.len();
        if let Some(number) = self.seen.get(&id) {
            return self.put(&format!("#{number}"));
        }
        self.seen.insert(id, number);
        self.put(&format!("#{number}="));
        match heap.get(id) {
            Object::Tuple(_) => self.put("t"),
            Object::List(_) => self.put("l"),
            Object::Set(_) => self.put("z"),
            Object::FrozenSet(_) => self.put("Z"),
            Object::Dict(_) => return self.pairs(heap.entries(id).expect("a dict has entries")),
            Object::Global(_) => self.global(id),
            Object::ByteArray(bytes) => self.hex('a', bytes),
            Object::Persistent(pid) => {
                self.put("P");
                self.many(&[*pid]);
            }
            Object::Extension(code) => self.put(&format!("E(i{code},)")),
            Object::Instance(instance) => {
                self.put(match instance.construction {
                    Construction::Reduce => "R",
                    Construction::NewObj => "N",
                    Construction::NewObjEx => "X",
                    Construction::Inst => "I",
                    Construction::Obj => "O",
                });
                self.many(&[instance.callable, instance.args]);
                if let Some(kwargs) = instance.kwargs() {
                    self.put("**");
                    self.walk(kwargs);
                }
            }
            other => panic!("{} has no notation", other.type_name()),
        }
        if let Some(items) = heap.items(id) {
            return self.many(items);
        }
        if let Some(recorded) = heap.recorded_changes(id) {
            if !recorded.items().is_empty() {
                self.pairs(recorded.items());
            }
            for (mark, items) in [("+", recorded.appends()), ("!", recorded.state())] {
                if !items.is_empty() {
                    self.put(mark);
                    self.many(items);
                }
            }
        }
    }

    fn global(&mut self, id: ObjectId) {
        let (module, name) = self.heap.global(id).expect("a global has names");
        self.put("g(");
        self.hex('s', module.as_bytes());
        self.put(",");
        self.hex('s', name.as_bytes());
        self.put(",)");
    }

    fn many(&mut self, items: &[ObjectId]) {
        self.put("(");
        for &item in items {
            self.walk(item);
            self.put(",");
        }
        self.put(")");
    }

    fn pairs(&mut self, entries: &[(ObjectId, ObjectId)]) {
        self.put("{");
        for &(key, value) in entries {
            self.walk(key);
            self.put(":");
            self.walk(value);
            self.put(",");
        }
        self.put("}");
    }
}
