//! The index of a folder of shards.

use std::borrow::Cow;
use std::fmt;

use byte_source::{Error, Location, Result};
use foldhash::{HashMap, HashMapExt};
use open::files::{DOCUMENT_MAX, read_document};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

/// The file of each tensor, as the index says.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// Names of the files.
    pub(super) files: Vec<String>,
    /// Names of all tensors, one after the other.
    names: String,
    /// End of each name in `names`, and the number of its file.
    entries: Vec<(usize, usize)>,
}

impl Index {
    /// Reads the file of each tensor in an index. Its other contents do not matter.
    ///
    /// # Errors
    /// When the file cannot be read, is not an index, or names a file in another folder.
    pub(super) fn read(index: &Location) -> Result<Self> {
        #[derive(Deserialize)]
        struct Document {
            weight_map: Index,
        }
        let source = index.open().map_err(|error| error.in_file(index.path()))?;
        let bytes = source.share(0..source.len().min(DOCUMENT_MAX))?;
        // No copy is made of what is UTF-8 and has no mark.
        let text = match str::from_utf8(&bytes) {
            Ok(text) if source.len() <= DOCUMENT_MAX && text.starts_with('{') => Cow::Borrowed(text),
            _ => Cow::Owned(read_document(index, DOCUMENT_MAX)?),
        };
        let document: Document = serde_json::from_str(&text)
            .map_err(|reason| Error::from(std::io::Error::from(reason)).in_file(index.path()))?;
        let is_name = |name: &String| !name.contains(['/', '\\']) && !name.is_empty();
        if !document.weight_map.files.iter().all(is_name) {
            let reason =
                std::io::Error::new(std::io::ErrorKind::InvalidData, "it names a file in another folder");
            return Err(Error::from(reason).in_file(index.path()));
        }
        Ok(document.weight_map)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the names of the tensors with the numbers of their files. Of several with the same name, loaders take the last one.
    pub(super) fn tensors(&self) -> impl DoubleEndedIterator<Item = (&str, usize)> {
        let start = |place: usize| {
            let before = place.checked_sub(1).and_then(|before| self.entries.get(before));
            before.map_or(0, |(end, _)| *end)
        };
        let entries = self.entries.iter().enumerate();
        entries
            .map(move |(place, (end, file))| (self.names.get(start(place)..*end).unwrap_or_default(), *file))
    }
}

impl<'de> Deserialize<'de> for Index {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(IndexVisitor)
    }
}

/// Reads the map of an index, which names few files many times.
struct IndexVisitor;

impl<'de> Visitor<'de> for IndexVisitor {
    type Value = Index;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the file of each tensor")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Index, A::Error> {
        #[derive(Deserialize)]
        struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

        let mut index = Index::default();
        let mut numbers: HashMap<String, usize> = HashMap::new();
        while let Some((Text(name), Text(file))) = map.next_entry::<Text<'_>, Text<'_>>()? {
            // Names that follow one another are mostly in one file.
            let before = index.entries.last().map(|(_, number)| *number);
            let same = before.filter(|number| index.files.get(*number).is_some_and(|name| *name == file));
            let known = same.or_else(|| numbers.get(&*file).copied());
            let number = known.unwrap_or_else(|| {
                let number = index.files.len();
                index.files.push(file.clone().into_owned());
                numbers.insert(file.into_owned(), number);
                number
            });
            index.names.push_str(&name);
            index.entries.push((index.names.len(), number));
        }
        Ok(index)
    }
}
