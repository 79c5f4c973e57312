//! Programs of rebuild calls over storages, which later opcodes may change: a tensor that is read has the values that
//! PyTorch gives it.
//!
//! The model follows `torch/_utils.py` and `Tensor.__setstate__` of PyTorch 2.15: BUILD with four items is `set_`,
//! a parameter is another tensor over the same storage, and SETITEM writes into the storage, which a reader must refuse.

#![no_main]

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::{Corpus, fuzz_target};
use pickle_vm::{MemoId, Writer};
use tensor::{Dtype, Storage, Tensor};
use torch_import::{Checkpoint, Container};
use torch2carton_fuzz::input::source;
use torch2carton_fuzz::tensors::{bytes, layout, naive, needed};

/// The storages' keys, dtypes and classes.
const STORAGES: [(&str, Dtype, &str); 3] = [
    ("0", Dtype::Int16, "ShortStorage"),
    ("1", Dtype::UInt8, "ByteStorage"),
    ("2", Dtype::Float32, "FloatStorage"),
];
const BYTES: u64 = 240;

/// What a program has made: an object of the memo, and the tensor that it is in PyTorch.
struct Made {
    memo: MemoId,
    /// `None` if PyTorch refuses it, or its values are not modelled.
    view: Option<View>,
}

#[derive(Clone, Debug)]
struct View {
    storage: usize,
    shape: Vec<u64>,
    stride: Vec<u64>,
    offset: u64,
}

fuzz_target!(|input: &[u8]| -> Corpus {
    match program(&mut Unstructured::new(input)) {
        Ok((pickle, made)) => check(&pickle, &made),
        Err(_) => return Corpus::Reject,
    }
    Corpus::Keep
});

fn check(pickle: &[u8], made: &[Made]) {
    let storages: Vec<Vec<u8>> = (0..3).map(content).collect();
    let input = source(&torch2carton_fuzz::archive::zip(&[
        ("a/data.pkl", pickle),
        ("a/byteorder", b"little"),
        ("a/version", b"3\n"),
        ("a/data/0", &storages[0]),
        ("a/data/1", &storages[1]),
        ("a/data/2", &storages[2]),
    ]));
    let container = Container::from_source(input).expect("the archive is right");
    let Ok(checkpoint) = Checkpoint::read(&container) else {
        return;
    };
    for (name, tensor) in checkpoint.tensors() {
        let Ok(number) = name.parse::<usize>() else { continue };
        let Some(view) = &made[number].view else {
            panic!("tensor {name} is read as {tensor:?}, but PyTorch refuses it or has other values");
        };
        let (_, dtype, _) = STORAGES[view.storage];
        let expected = Tensor::new(
            dtype,
            view.shape.clone(),
            view.stride.clone(),
            view.offset,
            Storage::owned(storages[view.storage].clone()),
        );
        let expected = expected.expect("PyTorch has the tensor, so it is inside its storage");
        assert_eq!((tensor.dtype(), tensor.shape()), (dtype, expected.shape()), "tensor {name}");
        let found = bytes(&tensor.gathered()).expect("nothing is damaged");
        assert_eq!(found, naive(&expected, &storages[view.storage]), "tensor {name}");
    }
}

fn content(number: u64) -> Vec<u8> {
    (0..BYTES).map(|index| ((index + number * 77) * 37 % 251) as u8).collect()
}

/// A pickle of a dict of tensors, whose keys count them, and what they are in PyTorch.
fn program(u: &mut Unstructured<'_>) -> Result<(Vec<u8>, Vec<Made>)> {
    let mut writer = Writer::new();
    let mut made: Vec<Made> = Vec::new();
    writer.empty_dict();
    let count: i64 = u.int_in_range(1..=5)?;
    for key in 0..count {
        writer.text(&key.to_string()).expect("it is short");
        let view = match u.int_in_range(0..=3)? {
            0 if !made.is_empty() => {
                let from = u.choose_index(made.len())?;
                parameter(&mut writer, made[from].memo);
                made[from].view.clone()
            }
            1 => from_type(&mut writer, u)?,
            _ => tensor(&mut writer, u)?,
        };
        let memo = writer.put().expect("the memo has room");
        writer.setitem();
        made.push(Made { memo, view });
        if u.ratio(1, 2)? {
            let target = u.choose_index(made.len())?;
            writer.text("changed").expect("it is short");
            writer.get(made[target].memo);
            change(&mut writer, u, &mut made[target])?;
            writer.setitem();
        }
    }
    Ok((writer.finish(), made))
}

/// Changes the object on top of the stack, and leaves it there.
fn change(writer: &mut Writer, u: &mut Unstructured<'_>, made: &mut Made) -> Result<()> {
    let before = made.view.clone();
    made.view = match u.int_in_range(0..=3)? {
        0 => {
            let view = view(u)?;
            writer.mark();
            arguments(writer, &view);
            writer.tuple();
            writer.build();
            // Another dtype than before is an error in PyTorch.
            before.filter(|before| before.storage == view.storage).and(fits(view))
        }
        1 => {
            writer.empty_dict();
            writer.build();
            None
        }
        2 => {
            writer.int(0);
            writer.int(1);
            writer.setitem();
            None
        }
        _ => {
            writer.int(7);
            writer.append();
            None
        }
    };
    Ok(())
}

/// `torch._utils._rebuild_tensor_v2` of any view.
fn tensor(writer: &mut Writer, u: &mut Unstructured<'_>) -> Result<Option<View>> {
    let view = view(u)?;
    writer.global("torch._utils", "_rebuild_tensor_v2").expect("the names have no line breaks");
    writer.mark();
    arguments(writer, &view);
    writer.bool(false);
    hooks(writer);
    writer.tuple();
    writer.reduce();
    Ok(fits(view))
}

/// `torch._tensor._rebuild_from_type_v2` of the same call.
fn from_type(writer: &mut Writer, u: &mut Unstructured<'_>) -> Result<Option<View>> {
    let view = view(u)?;
    writer.global("torch._tensor", "_rebuild_from_type_v2").expect("the names have no line breaks");
    writer.mark();
    writer.global("torch._utils", "_rebuild_tensor_v2").expect("the names have no line breaks");
    writer.global("torch", "Tensor").expect("the names have no line breaks");
    writer.mark();
    arguments(writer, &view);
    writer.bool(false);
    hooks(writer);
    writer.tuple();
    writer.empty_dict();
    writer.tuple();
    writer.reduce();
    Ok(fits(view))
}

/// `torch._utils._rebuild_parameter` of an object of the memo.
fn parameter(writer: &mut Writer, data: MemoId) {
    writer.global("torch._utils", "_rebuild_parameter").expect("the names have no line breaks");
    writer.mark();
    writer.get(data);
    writer.bool(false);
    hooks(writer);
    writer.tuple();
    writer.reduce();
}

fn hooks(writer: &mut Writer) {
    writer.global("collections", "OrderedDict").expect("the names have no line breaks");
    writer.empty_tuple();
    writer.reduce();
}

/// A view that may be too large.
fn view(u: &mut Unstructured<'_>) -> Result<View> {
    let (shape, stride, offset) = layout(u)?;
    Ok(View { storage: u.int_in_range(0..=2)?, shape, stride, offset })
}

/// The view, if PyTorch makes it.
fn fits(view: View) -> Option<View> {
    let (_, dtype, _) = STORAGES[view.storage];
    (needed(dtype, &view.shape, &view.stride, view.offset) <= BYTES).then_some(view)
}

/// The storage, the offset, the size and the stride.
fn arguments(writer: &mut Writer, view: &View) {
    let (key, dtype, class) = STORAGES[view.storage];
    writer.mark();
    writer.text("storage").expect("it is short");
    writer.global("torch", class).expect("the names have no line breaks");
    writer.text(key).expect("it is short");
    writer.text("cpu").expect("it is short");
    writer.int((BYTES / dtype.size()) as i64);
    writer.tuple();
    writer.binpersid();
    writer.int(view.offset as i64);
    for numbers in [&view.shape, &view.stride] {
        writer.mark();
        numbers.iter().for_each(|number| writer.int(*number as i64));
        writer.tuple();
    }
}
