//! Reads a pickle and walks its objects: `cargo run -p pickle-vm --example walk -- FILE`.
//!
//! Without a file it walks a small state dict. Nothing in the file is executed; an object that is reached twice is
//! printed once, and the walk keeps its own stack, so neither cycles nor depth are a problem.

use std::collections::HashSet;
use std::io::{self, Write};

use pickle_vm::{Heap, Object, ObjectId, load};

/// `{'epoch': 7, 'weights': collections.OrderedDict([('bias', <persistent 'data/0'>)])}` at protocol 2.
const SMALL: &[u8] = b"\x80\x02}q\x00(X\x05\x00\x00\x00epochq\x01K\x07X\x07\x00\x00\x00weightsq\x02\
    ccollections\nOrderedDict\nq\x03)Rq\x04X\x04\x00\x00\x00biasq\x05X\x06\x00\x00\x00data/0q\x06Qsu.";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let bytes = match std::env::args().nth(1) {
        Some(path) => std::fs::read(path)?,
        None => SMALL.to_vec(),
    };
    let pickle = load(&bytes)?;
    walk(&pickle.heap, pickle.root, &mut io::stdout().lock())?;
    Ok(())
}

/// Prints each object on its own line, with its contents indented below it.
fn walk(heap: &Heap<'_>, root: ObjectId, out: &mut dyn Write) -> io::Result<()> {
    let mut seen = HashSet::new();
    let mut left = vec![(0, String::new(), root)];
    while let Some((depth, label, id)) = left.pop() {
        let children = children(heap, id);
        let again = !children.is_empty() && !seen.insert(id);
        let what = if again { "(seen above)".to_owned() } else { describe(heap, id) };
        writeln!(out, "{:depth$}{label}{what}", "")?;
        if !again {
            let below = children.into_iter().rev();
            left.extend(below.map(|(label, child)| (depth.saturating_add(2).min(80), label, child)));
        }
    }
    Ok(())
}

/// What an object contains, each part with a label.
fn children(heap: &Heap<'_>, id: ObjectId) -> Vec<(String, ObjectId)> {
    let pairs = |entries: &[(ObjectId, ObjectId)]| -> Vec<(String, ObjectId)> {
        entries.iter().map(|&(key, value)| (format!("{}: ", heap.display(key)), value)).collect()
    };
    let mut children = match heap.get(id) {
        Object::Dict(entries) => pairs(entries.get()),
        Object::Instance(instance) => {
            let items = heap.items(instance.args).unwrap_or_default();
            items.iter().map(|&item| (String::new(), item)).collect()
        }
        _ => heap.items(id).unwrap_or_default().iter().map(|&item| (String::new(), item)).collect(),
    };
    // The changes that SETITEMS, APPENDS and BUILD made to an instance.
    if let Some(recorded) = heap.recorded_changes(id) {
        children.extend(pairs(recorded.items()));
        children.extend(recorded.appends().iter().map(|&item| ("+ ".to_owned(), item)));
        children.extend(recorded.state().iter().map(|&state| ("state ".to_owned(), state)));
    }
    children
}

/// A short description of an object; its contents follow on their own lines.
fn describe(heap: &Heap<'_>, id: ObjectId) -> String {
    match heap.get(id) {
        Object::Tuple(_) | Object::List(_) | Object::Dict(_) | Object::Set(_) | Object::FrozenSet(_) => {
            heap.get(id).type_name().to_owned()
        }
        Object::Instance(instance) => format!("instance of {}", heap.display(instance.callable)),
        _ => heap.display(id).to_string(),
    }
}
