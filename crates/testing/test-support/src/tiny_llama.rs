//! Writes a small LLaMA checkpoint in Meta's layout, without torch: `consolidated.00.pth` as `torch.save` writes it, and its
//! `params.json`. The weights are random and always the same.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use byte_source::{OwnedBlob, Sink, Window};
use pickle_vm::{MemoId, Writer};
use zip_format::{EntryContent, NewZipEntry, ZipWriter};

const DIM: u64 = 64;
const FFN: u64 = 192;
const LAYERS: u64 = 2;
const HEADS: u64 = 4;
const VOCAB: u64 = 256;

/// Writes the two files to a folder, which is created if it is missing, and returns the path of the checkpoint.
///
/// # Errors
/// Returns an error if the folder or a file cannot be written.
pub fn write(folder: &Path) -> Result<PathBuf, Box<dyn Error>> {
    std::fs::create_dir_all(folder)?;
    let params = format!(
        "{{\"dim\": {DIM}, \"n_layers\": {LAYERS}, \"n_heads\": {HEADS}, \"vocab_size\": {VOCAB}, \
         \"multiple_of\": 32, \"norm_eps\": 1e-05}}\n"
    );
    std::fs::write(folder.join("params.json"), params)?;
    let path = folder.join("consolidated.00.pth");
    save(&tensors(), &path)?;
    Ok(path)
}

/// Returns the names and shapes of the tensors, in Meta's order.
fn tensors() -> Vec<(String, Vec<u64>)> {
    let mut all = vec![
        ("tok_embeddings.weight".to_owned(), vec![VOCAB, DIM]),
        ("norm.weight".to_owned(), vec![DIM]),
        ("output.weight".to_owned(), vec![VOCAB, DIM]),
    ];
    for layer in 0..LAYERS {
        for (name, shape) in [
            ("attention.wq.weight", vec![DIM, DIM]),
            ("attention.wk.weight", vec![DIM, DIM]),
            ("attention.wv.weight", vec![DIM, DIM]),
            ("attention.wo.weight", vec![DIM, DIM]),
            ("feed_forward.w1.weight", vec![FFN, DIM]),
            ("feed_forward.w2.weight", vec![DIM, FFN]),
            ("feed_forward.w3.weight", vec![FFN, DIM]),
            ("attention_norm.weight", vec![DIM]),
            ("ffn_norm.weight", vec![DIM]),
        ] {
            all.push((format!("layers.{layer}.{name}"), shape));
        }
    }
    all
}

fn save(tensors: &[(String, Vec<u64>)], path: &Path) -> Result<(), Box<dyn Error>> {
    struct FileSink(BufWriter<File>);
    impl Sink for FileSink {
        fn write(&mut self, window: Window) -> Result<(), byte_source::Error> {
            Ok(self.0.write_all(&window)?)
        }
    }
    let mut out = FileSink(BufWriter::new(File::create(path)?));
    let mut zip = ZipWriter::new(&mut out);
    let pickle = pickle(tensors)?;
    let small: [(&str, &[u8]); 3] = [
        ("consolidated/data.pkl", &pickle),
        ("consolidated/byteorder", b"little"),
        ("consolidated/version", b"3\n"),
    ];
    for (name, bytes) in small {
        zip.add(&NewZipEntry { name, alignment: 64, content: EntryContent::Bytes(bytes) })?;
    }
    let mut random = Random(1);
    for (key, (name, shape)) in tensors.iter().enumerate() {
        let scale = if name.ends_with("norm.weight") { 0.0 } else { 0.1 };
        let values = (0..numel(shape)).flat_map(|_| random.weight(scale).to_le_bytes());
        let blob = OwnedBlob(values.collect());
        let name = format!("consolidated/data/{key}");
        zip.add(&NewZipEntry { name: &name, alignment: 64, content: EntryContent::Blob(&blob) })?;
    }
    zip.finish()?;
    out.0.flush()?;
    Ok(())
}

fn numel(shape: &[u64]) -> u64 {
    shape.iter().product()
}

/// Writes `data.pkl`: a dict of calls to `_rebuild_tensor_v2`, memoised as CPython's pickler does.
fn pickle(tensors: &[(String, Vec<u64>)]) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut names = MemoWriter { writer: Writer::new(), memo: BTreeMap::new() };
    names.writer.empty_dict();
    names.writer.put()?;
    names.writer.mark();
    for (key, (name, shape)) in tensors.iter().enumerate() {
        names.text(name)?;
        names.global("torch._utils", "_rebuild_tensor_v2")?;
        names.writer.mark();
        names.writer.mark();
        names.text("storage")?;
        names.global("torch", "BFloat16Storage")?;
        names.text(&key.to_string())?;
        names.text("cpu")?;
        names.writer.int(i64::try_from(numel(shape))?);
        names.writer.tuple();
        names.writer.put()?;
        names.writer.binpersid();
        names.writer.int(0);
        let strides: Vec<u64> = (1..=shape.len()).map(|from| shape.iter().skip(from).product()).collect();
        names.numbers(shape)?;
        names.numbers(&strides)?;
        names.writer.bool(false);
        names.global("collections", "OrderedDict")?;
        names.writer.empty_tuple();
        names.writer.reduce();
        names.writer.put()?;
        names.writer.tuple();
        names.writer.put()?;
        names.writer.reduce();
        names.writer.put()?;
    }
    names.writer.setitems();
    Ok(names.writer.finish())
}

/// Pickle writer that writes each text and each global once, and fetches it from the memo afterwards.
struct MemoWriter {
    writer: Writer,
    memo: BTreeMap<(String, String), MemoId>,
}

impl MemoWriter {
    fn text(&mut self, text: &str) -> Result<(), Box<dyn Error>> {
        self.write_once(("", text), |writer| writer.text(text))
    }

    fn global(&mut self, module: &str, name: &str) -> Result<(), Box<dyn Error>> {
        self.write_once((module, name), |writer| writer.global(module, name))
    }

    fn write_once(
        &mut self,
        key: (&str, &str),
        write: impl FnOnce(&mut Writer) -> pickle_vm::Result<()>,
    ) -> Result<(), Box<dyn Error>> {
        let key = (key.0.to_owned(), key.1.to_owned());
        if let Some(id) = self.memo.get(&key) {
            self.writer.get(*id);
            return Ok(());
        }
        write(&mut self.writer)?;
        self.memo.insert(key, self.writer.put()?);
        Ok(())
    }

    fn numbers(&mut self, numbers: &[u64]) -> Result<(), Box<dyn Error>> {
        for number in numbers {
            self.writer.int(i64::try_from(*number)?);
        }
        match numbers {
            [_] => self.writer.tuple1(),
            _ => self.writer.tuple2(),
        }
        self.writer.put()?;
        Ok(())
    }
}

/// xorshift64, a small generator with the same numbers on every platform.
struct Random(u64);

impl Random {
    /// Returns a random weight as bfloat16 bits: around 1 for a norm (`scale` 0), else in `-scale..scale`.
    fn weight(&mut self, scale: f32) -> u16 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let unit = f32::from(u8::try_from(self.0 >> 56).unwrap_or_default()) / 128.0 - 1.0;
        bfloat16(if scale > 0.0 { unit * scale } else { 1.0 + unit * 0.05 })
    }
}

/// Returns the bits of the nearest bfloat16 of a finite number, ties to even.
fn bfloat16(value: f32) -> u16 {
    let bits = value.to_bits();
    let half = 0x7fff_u32.wrapping_add((bits >> 16) & 1);
    u16::try_from(bits.wrapping_add(half) >> 16).unwrap_or_default()
}
