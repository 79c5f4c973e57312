//! Text of an [`Effect`], for the listings and for the member `effect` of the JSON lines.
//!
//! Source of the wording: the `doc` texts in CPython's `Lib/pickletools.py`.

use std::fmt::{self, Write};

use super::event::Effect;
use crate::object::ObjectId;

/// Callback that writes one object in the style of the current listing.
pub(crate) type WriteObject<'s> = dyn FnMut(&mut dyn Write, ObjectId) -> fmt::Result + 's;

pub(crate) fn effect(out: &mut dyn Write, effect: Effect, show: &mut WriteObject<'_>) -> fmt::Result {
    let mut say = |parts: &[(&str, ObjectId)]| {
        parts.iter().try_for_each(|&(words, object)| {
            out.write_str(words)?;
            show(out, object)
        })
    };
    match effect {
        Effect::Protocol(protocol) => write!(out, "protocol {protocol}"),
        Effect::Frame(bytes) => write!(out, "a frame of {bytes} bytes begins"),
        Effect::Stop(root) => say(&[("pop the result ", root)]),
        Effect::Push(object) => say(&[("push ", object)]),
        Effect::MakeReadOnly(buffer) => say(&[("make read-only ", buffer)]),
        Effect::Collect { popped, object } => say(&[(&format!("pop {popped} to the mark, push "), object)]),
        Effect::Tuple { popped, object } => say(&[(&format!("pop {popped}, push "), object)]),
        Effect::Append { item, target } => say(&[("pop ", item), (", append it to ", target)]),
        Effect::Appends { popped, target } => {
            say(&[(&format!("pop {popped} to the mark, append them to "), target)])
        }
        Effect::AddItems { popped, target } => {
            say(&[(&format!("pop {popped} to the mark, add them to "), target)])
        }
        Effect::SetItem { key, value, target } => {
            say(&[("pop value ", value), (" and key ", key), (", set them on ", target)])
        }
        Effect::SetItems { popped, target } => {
            let items = if popped == 2 { "set 1 item on" } else { "set the items on" };
            say(&[(&format!("pop {popped} to the mark, {items} "), target)])
        }
        Effect::Pop(object) => say(&[("pop ", object)]),
        Effect::PopMark => out.write_str("pop the mark"),
        Effect::PopToMark { popped } => write!(out, "pop {popped} to the mark"),
        Effect::Duplicate(object) => say(&[("push again ", object)]),
        Effect::Mark { frame } => write!(out, "push a mark: the frame of {frame} goes to the metastack"),
        Effect::Get { key, object } => say(&[(&format!("push memo[{key}]: "), object)]),
        Effect::Put { key, object } => say(&[(&format!("store into memo[{key}]: "), object)]),
        Effect::Global(object) => say(&[("pop name and module, push ", object)]),
        Effect::Call { kwargs, args, callable, object } => {
            let words = match kwargs {
                Some(kwargs) => {
                    say(&[("pop keyword arguments ", kwargs)])?;
                    ", pop arguments "
                }
                None => "pop arguments ",
            };
            say(&[(words, args), (" and callable ", callable), (", push ", object)])
        }
        Effect::SetState { state, target } => say(&[("pop state ", state), (", give it to ", target)]),
        Effect::Persistent { pid, object } => say(&[("pop persistent id ", pid), (", push ", object)]),
    }
}
