//! Writer of `data.pkl`: an ordered dict of tensors, in protocol 2.
//!
//! Facts: the pickle that `torch.save` of PyTorch 2.15 writes for an `OrderedDict`, except that objects without a later
//! reference are not put into the memo. The unpickler of `weights_only=True` in 2.0.1 knows all of these opcodes.

use pickle_vm::{MemoId, Writer};
use tensor::{Tensor, Tensors};

use crate::torch_save::Problem;
use crate::torch_save::Result;
use crate::torch_save::storages::SavedStorages;

/// Number of items per `SETITEMS`, the same as in CPython.
const SETITEMS_BATCH: usize = 1000;

/// Returns the pickle of `tensors` over `storages`.
pub(crate) fn data_pkl(tensors: &Tensors, storages: &SavedStorages) -> Result<Vec<u8>, Problem> {
    let mut out = DataPklWriter { writer: Writer::new(), globals: Vec::new() };
    out.write_ordered_dict()?;
    for (batch, part) in tensors.as_slice().chunks(SETITEMS_BATCH).enumerate() {
        out.writer.mark();
        for (i, (name, tensor)) in part.iter().enumerate() {
            out.writer.text(name)?;
            let position = batch.saturating_mul(SETITEMS_BATCH).saturating_add(i);
            out.write_tensor(name, tensor, storages, position)?;
        }
        out.writer.setitems();
    }
    Ok(out.writer.finish())
}

/// Writer of the objects of `data.pkl`.
struct DataPklWriter {
    writer: Writer,
    /// Globals written so far, a dozen at most, with their memo ids.
    globals: Vec<((&'static str, &'static str), MemoId)>,
}

impl DataPklWriter {
    fn write_global_once(&mut self, module: &'static str, name: &'static str) -> Result<(), Problem> {
        if let Some((_, memo)) = self.globals.iter().find(|(known, _)| *known == (module, name)) {
            self.writer.get(*memo);
            return Ok(());
        }
        self.writer.global(module, name)?;
        self.globals.push(((module, name), self.writer.put()?));
        Ok(())
    }

    fn write_ordered_dict(&mut self) -> Result<(), Problem> {
        self.write_global_once("collections", "OrderedDict")?;
        self.writer.empty_tuple();
        self.writer.reduce();
        Ok(())
    }

    fn write_tensor(
        &mut self,
        name: &str,
        tensor: &Tensor,
        storages: &SavedStorages,
        position: usize,
    ) -> Result<(), Problem> {
        let (key, storage) = storages.storage_of_tensor(position).expect("every tensor has its storage");
        let class = storage.dtype.and_then(tensor::Dtype::storage_class);
        let function = if class.is_some() { "_rebuild_tensor_v2" } else { "_rebuild_tensor_v3" };
        self.write_global_once("torch._utils", function)?;
        self.writer.mark();
        self.writer.mark();
        self.writer.text("storage")?;
        match class {
            Some(class) => self.write_global_once("torch", class)?,
            None => self.write_global_once("torch.storage", "UntypedStorage")?,
        }
        self.writer.text(&key.to_string())?;
        self.writer.text("cpu")?;
        self.write_int(name, storage.elements().count())?;
        self.writer.tuple();
        self.writer.binpersid();
        self.write_int(name, tensor.storage_offset())?;
        self.write_tuple(name, tensor.shape())?;
        self.write_tuple(name, tensor.stride())?;
        // `requires_grad`, and the hooks of the backward pass.
        self.writer.bool(false);
        self.write_ordered_dict()?;
        if class.is_none() {
            self.write_global_once("torch", tensor.dtype().name())?;
        }
        self.writer.tuple();
        self.writer.reduce();
        Ok(())
    }

    fn write_tuple(&mut self, tensor: &str, numbers: &[u64]) -> Result<(), Problem> {
        let is_long = numbers.len() > 3;
        if is_long {
            self.writer.mark();
        }
        numbers.iter().try_for_each(|number| self.write_int(tensor, *number))?;
        match numbers.len() {
            0 => self.writer.empty_tuple(),
            1 => self.writer.tuple1(),
            2 => self.writer.tuple2(),
            3 => self.writer.tuple3(),
            _ => self.writer.tuple(),
        }
        Ok(())
    }

    fn write_int(&mut self, tensor: &str, number: u64) -> Result<(), Problem> {
        let signed =
            i64::try_from(number).map_err(|_| Problem::TooLarge { tensor: tensor.to_owned(), number })?;
        self.writer.int(signed);
        Ok(())
    }
}
