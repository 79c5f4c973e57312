//! What is known of a container of a document while it is read.

#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Default)]
pub(super) struct Level {
    pub(super) is_map: bool,
    /// True if the container is a key of a map, as only YAML has it.
    pub(super) is_key: bool,
    /// Key under which this container stands.
    pub(super) outer: String,
    /// Last key of a map; `None` if a key is expected.
    pub(super) key: Option<String>,
    /// True within `auto_map` and `custom_pipelines`.
    pub(super) names_code: bool,
    /// True within lists of layers, whose texts YOLO evaluates.
    pub(super) has_layers: bool,
    /// First text of a list.
    pub(super) first: Option<String>,
    /// Texts of `module`, `class_name` and `config`, and whether Keras makes an object of them.
    pub(super) module: Option<String>,
    pub(super) class: Option<String>,
    pub(super) config: Option<String>,
    pub(super) is_object: bool,
    /// Text of `name`, and whether the map has arguments for what `module` and `name` name.
    pub(super) name: Option<String>,
    pub(super) has_arguments: bool,
    /// Repository of a model, and whether the map trusts its code.
    pub(super) repository: Option<String>,
    pub(super) is_trusted: bool,
    /// Components of a pipeline of `diffusers`, as their libraries and classes, and whether the map is one.
    pub(super) components: Vec<(String, String)>,
    pub(super) is_pipeline: bool,
}
