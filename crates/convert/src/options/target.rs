//! Target of a conversion: an output format with its options.

use std::any::Any;
use std::path::Path;
use std::sync::Arc;

use open::{TargetLayout, to_object};
use output::is_given_as_folder;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value as Json};

use crate::InvalidOption;
use crate::back::Output;
use crate::back::carton::CartonOptions;
use crate::back::safetensors::SAFETENSORS;
use crate::back::torch::TORCH;
use crate::options::output_format::{OutputFormat, foreign_kind, outputs, similar_extension};

/// Output format of a conversion with its options, such as [`CartonOptions`]. Clones share the options.
#[derive(Clone, Debug)]
pub struct Target {
    output: Arc<dyn Output>,
    /// True for a carton that nothing asked for.
    is_assumed: bool,
}

impl<O: Output> From<O> for Target {
    fn from(options: O) -> Self {
        Self { output: Arc::new(options), is_assumed: false }
    }
}

impl Default for Target {
    fn default() -> Self {
        CartonOptions::default().into()
    }
}

impl PartialEq for Target {
    fn eq(&self, other: &Self) -> bool {
        self.is_assumed == other.is_assumed && to_object(self) == to_object(other)
    }
}

/// The options of the format, with its name as `to`.
impl Serialize for Target {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Tagged<'t> {
            to: &'static str,
            #[serde(flatten)]
            options: &'t dyn Output,
        }
        Tagged { to: self.format().name(), options: self.output() }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Target {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut options = Map::deserialize(deserializer)?;
        let name = options.remove("to").ok_or_else(|| D::Error::missing_field("to"))?;
        let format: &OutputFormat = Deserialize::deserialize(name).map_err(D::Error::custom)?;
        (format.read)(Json::Object(options)).map_err(D::Error::custom)
    }
}

impl Target {
    /// Infers the output format from `path`, with the default options: that of its extension, or safetensors if it is a
    /// [folder](output::is_given_as_folder). For another path, the output is a carton that is [assumed](Self::is_assumed).
    ///
    /// # Errors
    /// When the extension belongs to a format that this crate does not write, or is almost one that it writes.
    pub fn from_path(path: &Path) -> Result<Self, InvalidOption> {
        if let Some(kind) = foreign_kind(path) {
            return Err(InvalidOption::ForeignOutput { path: path.to_owned(), kind });
        }
        if let Some(extension) = similar_extension(path) {
            return Err(InvalidOption::SimilarExtension { path: path.to_owned(), extension });
        }
        Self::choose(None, Some(path), &[], None, false)
    }

    /// Returns the output format that is named or has the extension of `path`, else the first one that has all the options
    /// `given`, else a carton; with its default options. Meta's code loads `.pth` files, so they come first for its layout, and
    /// safetensors for another folder, also if the options make one.
    ///
    /// # Errors
    /// When an option is that of another format.
    pub(crate) fn choose(
        to: Option<&'static OutputFormat>,
        path: Option<&Path>,
        given: &[&str],
        layout: Option<TargetLayout>,
        makes_folder: bool,
    ) -> Result<Self, InvalidOption> {
        let is_folder = path.is_some_and(is_given_as_folder);
        let of_path = path.and_then(OutputFormat::from_path);
        let named =
            to.or_else(|| of_path.filter(|format| !is_folder || format.target().output().is_repository()));
        let options: Vec<_> = outputs().map(|format| (format, to_object(&format.target()))).collect();
        let owners = |name: &str| -> Vec<&OutputFormat> {
            let owners = options.iter().filter(|(_, options)| options.contains_key(name));
            owners.map(|(format, _)| *format).collect()
        };
        // An option that no output has is one for all of them.
        let owned = given.iter().map(|name| (*name, owners(name))).filter(|(_, owners)| !owners.is_empty());
        let owned: Vec<_> = owned.collect();
        let fits = |format: &&OutputFormat| owned.iter().all(|(_, owners)| owners.contains(format));
        let first = match layout {
            Some(TargetLayout::Meta) => Some(&TORCH),
            _ => (is_folder || makes_folder).then_some(&SAFETENSORS),
        };
        let format = named.or_else(|| first.into_iter().chain(outputs()).find(fits)).unwrap_or_default();
        if let Some((name, owners)) = owned.iter().find(|(_, owners)| !owners.contains(&format)) {
            let outputs = owners.iter().map(|owner| owner.name()).collect();
            return Err(InvalidOption::OtherOutput { name: (*name).to_owned(), to: format.name(), outputs });
        }
        let is_assumed = named.is_none() && format == <&OutputFormat>::default();
        Ok(Self { is_assumed, ..format.target() })
    }

    /// Returns the output format without its options.
    pub fn format(&self) -> &'static OutputFormat {
        self.output.format()
    }

    /// Returns true for a carton that is only the default: neither a name nor the extension of the output asked for one. A note
    /// reports this if the output has the extension of another format.
    pub fn is_assumed(&self) -> bool {
        self.is_assumed
    }

    /// Returns the options, if they are of this type.
    pub fn options<O: Output>(&self) -> Option<&O> {
        (self.output() as &dyn Any).downcast_ref()
    }

    /// Returns this target, which is assumed if the other one is.
    pub(crate) fn assumed_as(self, other: &Self) -> Self {
        Self { is_assumed: other.is_assumed, ..self }
    }

    /// Returns the options.
    pub fn output(&self) -> &dyn Output {
        &*self.output
    }
}
