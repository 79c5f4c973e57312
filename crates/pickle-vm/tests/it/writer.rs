//! This crate's machine and CPython both read back what the writer wrote.

use crate::common::{Record, describe, judged};
use pickle_vm::{Heap, MemoId, Object, ObjectId, Writer, load};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

/// A value that a writer can write.
#[derive(Clone, Debug)]
enum Value {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    Global(String, String),
    Tuple(Vec<Value>),
    List(Vec<Value>),
    Dict(Vec<(Value, Value)>),
    /// A callable, its arguments, and a state.
    Reduce(Box<Value>, Vec<Value>, Option<Box<Value>>),
    NewObj(Box<Value>, Vec<Value>),
    Persistent(Box<Value>),
    /// The value twice in a tuple, the second time from the memo.
    Twice(Box<Value>),
}

fn values() -> impl Strategy<Value = Value> {
    let name = "[a-z_.]{0,8}|[^\n]{0,4}";
    let scalars = prop_oneof![
        Just(Value::None),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int),
        (0..64_u32, any::<i64>()).prop_map(|(shift, value)| Value::Int(value >> shift)),
        any::<u64>().prop_map(|bits| Value::Float(f64::from_bits(bits))),
        any::<f64>().prop_map(Value::Float),
        ".*".prop_map(Value::Text),
        (name, name).prop_map(|(module, name)| Value::Global(module, name)),
    ];
    scalars.prop_recursive(4, 40, 5, |inner| {
        let many = prop::collection::vec(inner.clone(), 0..6);
        let state = prop::option::of(inner.clone().prop_map(Box::new));
        let callable =
            ("[a-z]{1,5}", "[a-z]{1,5}").prop_map(|(module, name)| Box::new(Value::Global(module, name)));
        prop_oneof![
            many.clone().prop_map(Value::Tuple),
            many.clone().prop_map(Value::List),
            prop::collection::vec((inner.clone(), inner.clone()), 0..5).prop_map(Value::Dict),
            (callable.clone(), many.clone(), state)
                .prop_map(|(f, args, state)| Value::Reduce(f, args, state)),
            (callable, many).prop_map(|(class, args)| Value::NewObj(class, args)),
            inner.clone().prop_map(|pid| Value::Persistent(Box::new(pid))),
            inner.prop_map(|value| Value::Twice(Box::new(value))),
        ]
    })
}

fn pickled(value: &Value) -> Vec<u8> {
    let mut out = Writer::new();
    write(&mut out, value);
    out.finish()
}

fn write(out: &mut Writer, value: &Value) {
    match value {
        Value::None => out.none(),
        Value::Bool(value) => out.bool(*value),
        Value::Int(value) => out.int(*value),
        Value::Float(value) => out.float(*value),
        Value::Text(text) => out.text(text).expect("test texts are short"),
        Value::Global(module, name) => out.global(module, name).expect("test names have no newline"),
        Value::Tuple(items) => tuple(out, items),
        Value::List(items) => {
            out.empty_list();
            memoize(out);
            if let [item] = &items[..] {
                write(out, item);
                out.append();
            } else {
                out.mark();
                for item in items {
                    write(out, item);
                }
                out.appends();
            }
        }
        Value::Dict(entries) => {
            out.empty_dict();
            memoize(out);
            if let [(key, value)] = &entries[..] {
                write(out, key);
                write(out, value);
                out.setitem();
            } else {
                out.mark();
                for (key, value) in entries {
                    write(out, key);
                    write(out, value);
                }
                out.setitems();
            }
        }
        Value::Reduce(callable, args, state) => {
            write(out, callable);
            tuple(out, args);
            out.reduce();
            if let Some(state) = state {
                write(out, state);
                out.build();
            }
        }
        Value::NewObj(class, args) => {
            write(out, class);
            tuple(out, args);
            out.newobj();
        }
        Value::Persistent(pid) => {
            write(out, pid);
            out.binpersid();
        }
        Value::Twice(value) => {
            write(out, value);
            let key = memoize(out);
            out.get(key);
            out.tuple2();
        }
    }
}

fn tuple(out: &mut Writer, items: &[Value]) {
    if items.len() > 3 {
        out.mark();
    }
    for item in items {
        write(out, item);
    }
    match items.len() {
        0 => out.empty_tuple(),
        1 => out.tuple1(),
        2 => out.tuple2(),
        3 => out.tuple3(),
        _ => out.tuple(),
    }
}

fn memoize(out: &mut Writer) -> MemoId {
    out.put().expect("test memos are small")
}

fn holds(heap: &Heap<'_>, id: ObjectId, value: &Value) -> bool {
    let all = |ids: Option<&[ObjectId]>, values: &[Value]| {
        ids.is_some_and(|ids| {
            ids.len() == values.len() && ids.iter().zip(values).all(|(&id, value)| holds(heap, id, value))
        })
    };
    match value {
        Value::None => heap.is_none(id),
        Value::Bool(value) => heap.bool(id) == Some(*value),
        Value::Int(value) => heap.int(id) == Some(*value),
        Value::Float(value) => heap.float(id).map(f64::to_bits) == Some(value.to_bits()),
        Value::Text(text) => matches!(heap.get(id), Object::Text(found) if found.as_str() == Some(text)),
        Value::Global(module, name) => heap.global(id) == Some((module, name)),
        Value::Tuple(items) => matches!(heap.get(id), Object::Tuple(_)) && all(heap.items(id), items),
        Value::List(items) => matches!(heap.get(id), Object::List(_)) && all(heap.items(id), items),
        Value::Dict(entries) => heap.entries(id).is_some_and(|found| {
            found.len() == entries.len()
                && found
                    .iter()
                    .zip(entries)
                    .all(|(found, entry)| holds(heap, found.0, &entry.0) && holds(heap, found.1, &entry.1))
        }),
        Value::Reduce(callable, args, state) => heap.instance(id).is_some_and(|instance| {
            holds(heap, instance.callable, callable)
                && all(heap.items(instance.args), args)
                && all(Some(instance.state()), state.as_deref().map_or(&[], std::slice::from_ref))
        }),
        Value::NewObj(class, args) => heap.instance(id).is_some_and(|instance| {
            holds(heap, instance.callable, class) && all(heap.items(instance.args), args)
        }),
        Value::Persistent(pid) => heap.persistent(id).is_some_and(|found| holds(heap, found, pid)),
        Value::Twice(value) => match heap.items(id) {
            Some([left, right]) => left == right && holds(heap, *left, value),
            _ => false,
        },
    }
}

proptest! {
    #[test]
    fn the_machine_reads_what_the_writer_wrote(value in values()) {
        let bytes = pickled(&value);
        let pickle = load(&bytes).expect("the writer writes pickles");
        prop_assert!(holds(&pickle.heap, pickle.root, &value), "{:?}", pickle.heap.display(pickle.root));
        prop_assert_eq!(pickle.len, bytes.len() as u64);
    }
}

#[test]
fn cpython_reads_what_the_writer_wrote() {
    let mut runner = TestRunner::deterministic();
    let value = |_| values().new_tree(&mut runner).expect("the strategy rejects nothing").current();
    let pickles: Vec<Vec<u8>> = (0..2000).map(value).map(|value| pickled(&value)).collect();
    for Record { pickle, value, .. } in judged(&pickles) {
        let ours = load(&pickle).expect("the writer writes pickles");
        assert_eq!(describe(&ours), value, "pickle {}", pickle.escape_ascii());
    }
}
