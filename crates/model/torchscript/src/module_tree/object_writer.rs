//! Writes the values of module attributes into `data.pkl`.

use foldhash::HashMap;
use pickle_vm::MemoId;
use tensor::{Tensor, Tensors, ViewId};

use super::{AttributeValue, HALF_CLASS, INTS, LIST, LISTS, ListItem, NAMESPACE, TENSORS, TensorId};
use crate::Problem;
use crate::pickler::Pickler;
use crate::record::{DataRecord, DataRecords, storage_class_name};

pub(super) struct ObjectWriter<'t> {
    pub(super) pickler: Pickler,
    tensors: &'t Tensors,
    records: &'t DataRecords,
    written: Vec<Option<MemoId>>,
    views: HashMap<(TensorId, ViewId), MemoId>,
    /// Memo id of each storage record that was written: a second persistent id would load as a second storage.
    storages: Vec<Option<MemoId>>,
}

impl<'t> ObjectWriter<'t> {
    pub(super) fn new(tensors: &'t Tensors, records: &'t DataRecords) -> Self {
        Self {
            pickler: Pickler::default(),
            tensors,
            records,
            written: vec![None; tensors.len()],
            views: HashMap::default(),
            storages: vec![None; records.records.len()],
        }
    }

    pub(super) fn begin(&mut self, class: &str) -> Result<(), Problem> {
        self.pickler.global(NAMESPACE, class)?;
        self.pickler.empty_tuple();
        self.pickler.newobj();
        self.pickler.empty_dict();
        self.pickler.mark();
        Ok(())
    }

    pub(super) fn end(&mut self) {
        self.pickler.setitems();
        self.pickler.build();
    }

    pub(super) fn value(&mut self, value: &AttributeValue) -> Result<(), Problem> {
        match value {
            AttributeValue::Bool(value) => self.pickler.bool(*value),
            AttributeValue::Int(value) => self.pickler.int(*value),
            AttributeValue::Float(value) => self.pickler.float(*value),
            AttributeValue::Parameter(id) => self.tensor(*id)?,
            AttributeValue::Module(_) => unreachable!("`data_pkl` opens modules itself"),
            AttributeValue::Tensors => self.write_tagged(TENSORS, |objects| {
                objects.pickler.empty_dict();
                objects.pickler.mark();
                for (i, (name, _)) in objects.tensors.iter().enumerate() {
                    objects.pickler.text(name)?;
                    objects.tensor(TensorId(i))?;
                }
                objects.pickler.setitems();
                Ok(())
            })?,
            AttributeValue::Lists(lists) => self.lists(lists)?,
            AttributeValue::Half(lists) => {
                self.pickler.global(NAMESPACE, HALF_CLASS)?;
                self.pickler.empty_tuple();
                self.pickler.newobj();
                self.lists(lists)?;
                self.pickler.build();
            }
            AttributeValue::Ints(numbers) => self.write_tagged(INTS, |objects| {
                objects.pickler.empty_list();
                objects.pickler.mark();
                for number in numbers.iter() {
                    objects.pickler.int(*number);
                }
                objects.pickler.appends();
                Ok(())
            })?,
            AttributeValue::Text(text) => self.pickler.text(text)?,
        }
        Ok(())
    }

    fn lists(&mut self, lists: &[(String, Vec<ListItem>)]) -> Result<(), Problem> {
        self.write_tagged(LISTS, |objects| {
            objects.pickler.empty_dict();
            objects.pickler.mark();
            for (name, items) in lists {
                objects.pickler.text(name)?;
                objects.list(items)?;
            }
            objects.pickler.setitems();
            Ok(())
        })
    }

    fn list(&mut self, items: &[ListItem]) -> Result<(), Problem> {
        self.write_tagged(LIST, |objects| {
            objects.pickler.empty_list();
            objects.pickler.mark();
            items.iter().try_for_each(|item| match item {
                ListItem::Whole(id) => objects.tensor(*id),
                ListItem::View(id, view) => objects.view(*id, view),
            })?;
            objects.pickler.appends();
            Ok(())
        })
    }

    /// Writes a container with a type tag, without which torch would type its elements as `Any`.
    fn write_tagged(
        &mut self,
        tag: &str,
        container: impl FnOnce(&mut Self) -> Result<(), Problem>,
    ) -> Result<(), Problem> {
        self.pickler.global("torch.jit._pickle", "restore_type_tag")?;
        container(self)?;
        self.pickler.text(tag)?;
        self.pickler.tuple2();
        self.pickler.reduce();
        Ok(())
    }

    fn tensor(&mut self, id: TensorId) -> Result<(), Problem> {
        if let Some(Some(memo)) = self.written.get(id.0) {
            self.pickler.get(*memo);
            return Ok(());
        }
        let (_, tensor) = self.tensors.get_index(id.0).expect("ids count the same list");
        let memo = self.write_tensor_object(id, tensor)?;
        store_memo_id(&mut self.written, id.0, memo);
        Ok(())
    }

    /// Writes a view, or a memo reference if it was written before, as for a whole tensor.
    fn view(&mut self, id: TensorId, view: &Tensor) -> Result<(), Problem> {
        let key = (id, view.view_id());
        if let Some(memo) = self.views.get(&key) {
            self.pickler.get(*memo);
            return Ok(());
        }
        let memo = self.write_tensor_object(id, view)?;
        self.views.insert(key, memo);
        Ok(())
    }

    /// Writes a tensor over the storage of the tensor `id`, and returns its memo id.
    fn write_tensor_object(&mut self, id: TensorId, tensor: &Tensor) -> Result<MemoId, Problem> {
        let (name, _) = self.tensors.get_index(id.0).expect("ids count the same list");
        let record = *self.records.by_tensor.get(id.0).expect("every tensor of the list has its record");
        self.pickler.global("torch._utils", "_rebuild_tensor_v2")?;
        self.pickler.mark();
        self.storage(record, name, tensor)?;
        self.number(name, tensor.storage_offset())?;
        for dims in [tensor.shape(), tensor.stride()] {
            self.pickler.mark();
            dims.iter().try_for_each(|dim| self.number(name, *dim))?;
            self.pickler.tuple();
        }
        // requires_grad is false: the runner calls `forward` with gradients enabled, which would record each call.
        self.pickler.bool(false);
        self.pickler.global("collections", "OrderedDict")?;
        self.pickler.empty_tuple();
        self.pickler.reduce();
        self.pickler.tuple();
        self.pickler.reduce();
        Ok(self.pickler.put()?)
    }

    fn storage(&mut self, record: u32, name: &str, tensor: &Tensor) -> Result<(), Problem> {
        if let Some(Some(memo)) = self.storages.get(record as usize) {
            self.pickler.get(*memo);
            return Ok(());
        }
        let numel = self.records.get(record).map_or(0, DataRecord::numel);
        self.pickler.mark();
        self.pickler.text("storage")?;
        self.pickler.global("torch", storage_class_name(name, tensor.dtype())?)?;
        self.pickler.text(&record.to_string())?;
        self.pickler.text("cpu")?;
        self.number(name, numel)?;
        self.pickler.tuple();
        self.pickler.binpersid();
        store_memo_id(&mut self.storages, record as usize, self.pickler.put()?);
        Ok(())
    }

    fn number(&mut self, tensor: &str, number: u64) -> Result<(), Problem> {
        let signed =
            i64::try_from(number).map_err(|_| Problem::TooLarge { tensor: tensor.to_owned(), number })?;
        self.pickler.int(signed);
        Ok(())
    }
}

fn store_memo_id(memos: &mut [Option<MemoId>], number: usize, memo: MemoId) {
    *memos.get_mut(number).expect("there is a place for each tensor and each record") = Some(memo);
}
