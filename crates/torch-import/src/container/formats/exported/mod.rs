//! Opens programs that `torch.export.save` wrote (`.pt2`): tensors are raw storages that documents describe, or pickled.
//!
//! Facts: `torch/export/pt2_archive/_package.py` in PyTorch 2.15 and `torch/export/__init__.py` in 2.6. Up to PyTorch 2.7, the
//! state dict and the constants are pickles, and in 2.8 they are in the folders of today. `weight_N` is a whole storage. The root
//! folder, the file's stem when it was written, says nothing.

mod meta;
pub(crate) mod signature;

use std::collections::BTreeMap;
use std::sync::Arc;

use byte_source::{Observer, Source};
use foldhash::HashSet;
use tensor::{ByteOrder, CompoundKind, Storage, StorageRecords, Tensor};
use zip_format::{Entry, ZipIndex};

use self::meta::{Ordered, Payload, PayloadConfig, STRIDED, TensorMeta};
use self::signature::ExportedModel;
use super::zip_archive::ZipArchive;
use crate::container::contents::{ContainerContents, HeaderTensors, UnreadTensor};
use crate::container::pickled_part::{PartContent, PartView, PickledPart};
use crate::omission::{Omission, OmissionKind, OmissionReason};
use crate::script_modules::has_extension;
use crate::{Problem, Result};

/// The archive of an exported program: its root folder, with its slash, and whether it has the records of PyTorch 2.7 and before.
pub(super) struct ExportedLayout {
    root: String,
    is_old: bool,
}

impl ExportedLayout {
    /// Recognises the archive by its records. One with a `data.pkl` is what `torch.save` wrote.
    pub(super) fn find(index: &ZipIndex) -> Option<Self> {
        let first = index.entries.first()?;
        let marks = [("archive_format", false), ("serialized_exported_program.json", true)];
        marks.iter().find_map(|(mark, is_old)| {
            let roots = index.entries.iter().filter_map(|entry| entry.name.strip_suffix(mark));
            let mut roots = roots.filter(|root| root.is_empty() || root.ends_with('/'));
            let root = roots.find(|root| first.name.starts_with(root))?;
            let is_saved = index.find(&format!("{root}data.pkl")).is_some();
            (!is_saved).then(|| Self { root: root.to_owned(), is_old: *is_old })
        })
    }

    pub(super) fn root(&self) -> &str {
        &self.root
    }
}

/// Folders of compiled code, of which each model has one.
const COMPILED: &str = "data/aotinductor/";
/// Records by which a model is known: folder, end of the name.
const MODEL_RECORDS: &[(&str, &str)] = &[
    ("models/", ".json"),
    ("data/weights/", "_weights_config.json"),
    ("data/constants/", "_constants_config.json"),
    ("data/weights/", ".pt"),
    ("data/constants/", ".pt"),
];
/// Records, by how their names start, that hold no part of a model.
const BOOKKEEPING: &[&str] = &[
    "models/",
    "data/sample_inputs/",
    ".data/",
    "archive_format",
    "archive_version",
    "byteorder",
    "version",
    "serialized_",
    ".format_version",
    ".storage_alignment",
];
/// Starts of the records of constants that are no tensors.
const OBJECTS: &[&str] = &["custom_obj_", "opaque_obj_"];

/// Opens an archive. Pickled parts are read with the checkpoint.
///
/// # Errors
/// When a document is missing or damaged, or the archive has compiled code alone.
pub(super) fn open(
    archive: &ZipArchive,
    layout: &ExportedLayout,
    observer: &dyn Observer,
) -> Result<ContainerContents> {
    let root = layout.root.as_str();
    let is_storage = |name: &str| {
        let name = name.strip_prefix("weights/").or_else(|| name.strip_prefix("constants/"));
        name.is_some_and(|name| !has_extension(name, "json") && !has_extension(name, "pt"))
    };
    let (mut storages, inflated) = archive.storages(&format!("{root}data/"), is_storage, observer)?;
    storages.set_sources(&archive.file, inflated.as_ref());
    let byte_order = match archive.read(&format!("{root}byteorder"))? {
        Some(text) => super::byte_order::parse_byte_order(&text)?,
        None => ByteOrder::Little,
    };
    let storages = Arc::new(storages);
    let mut reader = Reader {
        archive,
        root,
        storages,
        byte_order,
        named: HeaderTensors::default(),
        used: HashSet::default(),
        left_out: Vec::new(),
        compiled: BTreeMap::new(),
    };
    if layout.is_old {
        reader.read_old()?;
    } else {
        reader.read_models(observer)?;
    }
    reader.finish()
}

struct Reader<'a> {
    archive: &'a ZipArchive,
    root: &'a str,
    storages: Arc<StorageRecords>,
    byte_order: ByteOrder,
    named: HeaderTensors,
    /// Records that a document names.
    used: HashSet<&'a str>,
    left_out: Vec<Omission>,
    /// Records of compiled models, and the views of the tensors in them.
    compiled: BTreeMap<&'a str, (&'a Entry, Vec<PartView>)>,
}

impl<'a> Reader<'a> {
    fn find(&self, name: &str) -> Option<&'a Entry> {
        self.archive.index.find(&format!("{}{name}", self.root))
    }

    fn missing(&self, name: &str) -> Problem {
        Problem::MissingRecord { record: format!("{}{name}", self.root) }
    }

    /// Reads the records of PyTorch 2.7 and before. Before 2.1, they are called `.json`.
    fn read_old(&mut self) -> Result<()> {
        let program = self.find("serialized_exported_program.json");
        self.add_model("model", program)?;
        for (stem, content) in [
            ("serialized_state_dict", PartContent::StateDict),
            ("serialized_constants", PartContent::Constants),
        ] {
            let entry = self.find(&format!("{stem}.pt")).or_else(|| self.find(&format!("{stem}.json")));
            match entry {
                Some(entry) if entry.len > 0 => self.add_part(String::new(), entry, content)?,
                None if content == PartContent::StateDict => {
                    return Err(self.missing(&format!("{stem}.pt")).into());
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn add_model(&mut self, name: &str, program: Option<&Entry>) -> Result<()> {
        let program = program.map(|entry| self.archive.member(entry)).transpose()?;
        self.named.models.push(ExportedModel { name: name.to_owned(), program });
        Ok(())
    }

    fn add_part(&mut self, name: String, entry: &'a Entry, content: PartContent) -> Result<()> {
        self.used.insert(&entry.name);
        let file: Arc<dyn Source> = self.archive.member(entry)?;
        self.named.parts.push(PickledPart { name, record: entry.name.clone(), file, content });
        Ok(())
    }

    /// Returns the names of the models, in the order of the archive.
    fn model_names(&self) -> Vec<&'a str> {
        let (mut names, mut known) = (Vec::new(), HashSet::default());
        for entry in &self.archive.index.entries {
            let Some(inner) = entry.name.strip_prefix(self.root) else { continue };
            let of_record = |(folder, end): &(&str, &str)| {
                inner.strip_prefix(folder)?.strip_suffix(end).filter(|name| !name.is_empty())
            };
            let of_code = || Some(inner.strip_prefix(COMPILED)?.split_once('/')?.0);
            if let Some(name) = MODEL_RECORDS.iter().find_map(of_record).or_else(of_code)
                && known.insert(name)
            {
                names.push(name);
            }
        }
        names
    }

    fn read_models(&mut self, observer: &dyn Observer) -> Result<()> {
        let names = self.model_names();
        let is_one = names.len() < 2;
        for model in &names {
            observer.check()?;
            let prefix = if is_one { String::new() } else { format!("{model}.") };
            let program = self.find(&format!("models/{model}.json"));
            for (kind, content) in
                [("weights", PartContent::StateDict), ("constants", PartContent::Constants)]
            {
                let config = format!("data/{kind}/{model}_{kind}_config.json");
                if let Some(entry) = self.find(&format!("data/{kind}/{model}.pt")) {
                    self.add_part(prefix.clone(), entry, content)?;
                } else if let Some(entry) = self.find(&config) {
                    self.read_config(&prefix, kind, entry)?;
                } else if program.is_some() {
                    return Err(self.missing(&config).into());
                }
            }
            self.add_model(model, program)?;
            let compiled = format!("{COMPILED}{model}/weights_config.json");
            if let Some(entry) = self.find(&compiled) {
                self.read_compiled_config(&prefix, entry)?;
            }
        }
        for (entry, views) in std::mem::take(&mut self.compiled).into_values() {
            self.add_part(String::new(), entry, PartContent::Views(views))?;
        }
        if names.is_empty() {
            return Err(self.missing("models/model.json").into());
        }
        Ok(())
    }

    /// Reads the document with the tensors of a folder.
    fn read_config(&mut self, prefix: &str, kind: &str, config: &'a Entry) -> Result<()> {
        let Ordered(payloads) = self.document::<PayloadConfig>(config)?.config;
        for (name, payload) in payloads {
            let name = format!("{prefix}{name}");
            if let Err((reason, is_damaged)) = self.add_payload(&name, kind, payload)? {
                let unread = if is_damaged { UnreadTensor::Damaged } else { UnreadTensor::Unsupported };
                self.named.unread.push((name, unread(reason)));
            }
        }
        Ok(())
    }

    /// Returns the record of a folder of the data.
    ///
    /// # Errors
    /// When there is none, or its name leads out of the folder: a text that says so.
    fn record(&self, key: &str, file: &str) -> Result<&'a Entry, String> {
        let found = self.find(&format!("data/{key}")).filter(|_| !file.contains(['/', '\\']));
        found.ok_or_else(|| {
            let record = format!("{}data/{key}", self.root);
            format!("its record `{}` is missing", record.escape_debug())
        })
    }

    fn document<T: serde::de::DeserializeOwned>(&self, entry: &Entry) -> Result<T> {
        let text = self.archive.read(&entry.name)?;
        meta::parse(&entry.name, text.as_deref().unwrap_or_default())
    }

    /// Adds what a record holds. Returns the reason for which it cannot be read, and true if the archive is damaged.
    fn add_payload(
        &mut self,
        name: &str,
        kind: &str,
        payload: Payload,
    ) -> Result<Result<(), (String, bool)>> {
        let Payload { path_name, use_pickle, tensor_meta } = payload;
        let key = format!("{kind}/{path_name}");
        let entry = match self.record(&key, &path_name) {
            Ok(entry) => entry,
            Err(reason) => return Ok(Err((reason, true))),
        };
        let shown = entry.name.escape_debug().to_string();
        if kind == "constants" && OBJECTS.iter().any(|start| path_name.starts_with(start)) {
            self.used.insert(&entry.name);
            let nbytes = Some(entry.len);
            let reason = OmissionReason::Pickled;
            self.left_out.push(Omission {
                file: None,
                kind: OmissionKind::Object,
                name: name.to_owned(),
                nbytes,
                reason,
                object: None,
            });
            return Ok(Ok(()));
        }
        if use_pickle {
            if self.used.contains(entry.name.as_str()) {
                return Ok(Err((format!("its record `{shown}` is that of another tensor"), true)));
            }
            self.add_part(name.to_owned(), entry, PartContent::Tensor)?;
            return Ok(Ok(()));
        }
        self.used.insert(&entry.name);
        let Some(meta) = tensor_meta else {
            return Ok(Err((format!("nothing describes its record `{shown}`"), true)));
        };
        let number = self.storages.find(&key);
        let storage = number.and_then(|number| Storage::record(&self.storages, number));
        let Some(storage) = storage else {
            return Ok(Err((format!("its record `{shown}` is no storage"), true)));
        };
        Ok(self.add_raw(name, &shown, &meta, storage))
    }

    /// Adds a view of a storage; see [`add_payload`](Self::add_payload).
    fn add_raw(
        &mut self,
        name: &str,
        shown: &str,
        meta: &TensorMeta,
        storage: Storage,
    ) -> Result<(), (String, bool)> {
        let dtype = meta::dtype_of(meta.dtype)
            .ok_or_else(|| (format!("its dtype has the number {}", meta.dtype), false))?;
        if meta.layout != STRIDED {
            return Err((
                format!("its layout has the number {}, expected {STRIDED}, strided", meta.layout),
                false,
            ));
        }
        let shape = meta::numbers("shape", &meta.sizes)?;
        let strides = meta::numbers("stride", &meta.strides)?;
        let offset = meta::numbers("storage offset", std::slice::from_ref(&meta.storage_offset))?;
        if storage.is_empty() && !shape.contains(&0) {
            let what =
                "a tensor without data, as in a program that was exported from fake tensors".to_owned();
            self.named.tensors.push_compound(
                name.to_owned(),
                (CompoundKind::Meta { what }, dtype, shape),
                [],
            );
            return Ok(());
        }
        let storage = storage.with_byte_order(self.byte_order, dtype.component_size());
        let offset = offset.first().copied().unwrap_or_default();
        let tensor = Tensor::new(dtype, shape, strides, offset, storage);
        let tensor = tensor.map_err(|reason| (format!("record `{shown}`: {reason}"), true))?;
        self.named.tensors.push(name.to_owned(), tensor);
        Ok(())
    }

    /// Reads the document of a compiled model, which has the views of pickled tensors. Those that the program has, too, are its own.
    fn read_compiled_config(&mut self, prefix: &str, config: &'a Entry) -> Result<()> {
        type View = (String, Vec<u64>, Vec<u64>, u64);
        self.used.insert(&config.name);
        let Ordered(views) = self.document::<Ordered<View>>(config)?;
        for (name, (file, shape, stride, offset)) in views {
            let name = format!("{prefix}{name}");
            if self.named.tensors.contains(&name) {
                continue;
            }
            let key = format!("weights/{file}");
            match self.record(&key, &file) {
                Ok(entry) => {
                    let views = self.compiled.entry(&entry.name).or_insert_with(|| (entry, Vec::new()));
                    views.1.push(PartView { name, shape, stride, offset });
                }
                Err(reason) => self.named.unread.push((name, UnreadTensor::Damaged(reason))),
            }
        }
        Ok(())
    }

    /// Returns the contents, with what is not read.
    fn finish(mut self) -> Result<ContainerContents> {
        let mut has_code = false;
        for entry in &self.archive.index.entries {
            let inner = entry.name.strip_prefix(self.root);
            let starts = |start: &str| inner.is_some_and(|inner| inner.starts_with(start));
            let is_document =
                (starts("data/weights/") || starts("data/constants/")) && has_extension(&entry.name, "json");
            if entry.len == 0
                || is_document
                || self.used.contains(entry.name.as_str())
                || BOOKKEEPING.iter().any(|start| starts(start))
            {
                continue;
            }
            let reason = if starts(COMPILED) {
                has_code = true;
                OmissionReason::CompiledCode
            } else if starts("extra") {
                OmissionReason::ExtraFile
            } else if starts("data/weights/") || starts("data/constants/") {
                OmissionReason::Unreferenced
            } else {
                OmissionReason::UnknownRecord
            };
            let (name, nbytes) = (entry.name.clone(), Some(entry.len));
            self.left_out.push(Omission {
                file: None,
                kind: OmissionKind::Record,
                name,
                nbytes,
                reason,
                object: None,
            });
        }
        let named = self.named;
        if has_code
            && named.tensors.is_empty()
            && named.tensors.compounds().is_empty()
            && named.parts.is_empty()
            && named.unread.is_empty()
        {
            return Err(Problem::Format {
                what: "a model that AOTInductor compiled (.pt2), with its weights inside the code",
                hint: "take the exported program that it was compiled from, or package it with \
                       `aot_inductor.package_constants_on_disk_format`",
                first_line: String::new(),
            }
            .into());
        }
        if let Some(name) = named.tensors.duplicate_name() {
            let reason = format!("two tensors have the name `{}`", name.escape_debug());
            return Err(Problem::Layout { record: "the exported program".to_owned(), reason }.into());
        }
        Ok(ContainerContents {
            format: "pt2",
            storages: self.storages,
            unread_records: self.left_out,
            notes: self.archive.notes(),
            ..ContainerContents::named(Arc::clone(&self.archive.file), named)
        })
    }
}
