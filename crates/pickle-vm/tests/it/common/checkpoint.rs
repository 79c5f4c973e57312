//! The pickle of a checkpoint as `torch.save` writes it: 32 opcodes and about 108 bytes a tensor.
//!
//! Source: `data.pkl` of a state dict of plain tensors, PyTorch 2.15, protocol 2.

use pickle_vm::Writer;

/// A state dict of `count` square matrices of `side` by `side` elements.
pub(crate) fn checkpoint(count: u32, side: u8) -> pickle_vm::Result<Vec<u8>> {
    let (side, mut out) = (i64::from(side), Writer::new());
    out.empty_dict();
    out.put()?;
    out.mark();
    let mut shared = Vec::new();
    for index in 0..count {
        out.text(&format!("layers.{index}.weight"))?;
        out.put()?;
        let remember = |out: &mut Writer, shared: &mut Vec<_>| -> pickle_vm::Result<()> {
            shared.push(out.put()?);
            Ok(())
        };
        if let [rebuild, storage, kind, _, _] = shared[..] {
            out.get(rebuild);
            out.mark();
            out.mark();
            out.get(storage);
            out.get(kind);
        } else {
            out.global("torch._utils", "_rebuild_tensor_v2")?;
            remember(&mut out, &mut shared)?;
            out.mark();
            out.mark();
            out.text("storage")?;
            remember(&mut out, &mut shared)?;
            out.global("torch", "BFloat16Storage")?;
            remember(&mut out, &mut shared)?;
        }
        out.text(&index.to_string())?;
        out.put()?;
        if let [_, _, _, device, _] = shared[..] {
            out.get(device);
        } else {
            out.text("cpu")?;
            remember(&mut out, &mut shared)?;
        }
        out.int(side.saturating_mul(side));
        out.tuple();
        out.put()?;
        out.binpersid();
        out.int(0);
        for [left, right] in [[side, side], [side, 1]] {
            out.int(left);
            out.int(right);
            out.tuple2();
            out.put()?;
        }
        out.bool(false);
        if let [_, _, _, _, hooks] = shared[..] {
            out.get(hooks);
        } else {
            out.global("collections", "OrderedDict")?;
            remember(&mut out, &mut shared)?;
        }
        out.empty_tuple();
        out.reduce();
        out.put()?;
        out.tuple();
        out.put()?;
        out.reduce();
        out.put()?;
    }
    out.setitems();
    Ok(out.finish())
}
