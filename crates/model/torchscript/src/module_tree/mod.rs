//! Tree of module objects: writes the source text of its classes and the `data.pkl` of its instances.
//!
//! Modules are added leaves first, and equal modules share a class. A module refers to its submodules by id, so nothing here
//! recurses. Facts: `ScriptModuleSerializer` and `PythonPrint` in `torch/csrc/jit/serialization`.

mod object_writer;

use std::borrow::Cow;
use std::fmt::Write;
use std::rc::Rc;

use foldhash::HashMap;
use tensor::{Tensor, Tensors};

use self::object_writer::ObjectWriter;
use crate::record::DataRecords;
use crate::source_names::{is_identifier, string_literal};
use crate::{Problem, Result};

/// Qualified name of the source file that holds all classes, `code/__torch__/torch2carton.py`.
pub(crate) const NAMESPACE: &str = "__torch__.torch2carton";

/// Name of the class that holds the weight lists of a model with float16 weights.
pub(crate) const HALF_CLASS: &str = "Half";

/// Container types, as the source text and the pickle name them.
const TENSORS: &str = "Dict[str, Tensor]";
const LIST: &str = "List[Tensor]";
const LISTS: &str = "Dict[str, List[Tensor]]";
const INTS: &str = "List[int]";

/// Index of a module in a [`ModuleTree`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ModuleId(usize);

/// Index of a tensor in the list that the tree is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TensorId(pub(crate) usize);

#[derive(Clone, Debug)]
#[expect(clippy::box_collection, reason = "16 bytes fewer in each of millions of values")]
pub(crate) enum AttributeValue {
    Bool(bool),
    Int(i64),
    Float(f64),
    /// Tensor that is in the `state_dict`.
    Parameter(TensorId),
    Module(ModuleId),
    /// Dict of all tensors by name, not in the `state_dict`.
    Tensors,
    /// Dict of lists of tensors by name, not in the `state_dict`.
    Lists(Box<Vec<(String, Vec<ListItem>)>>),
    /// Dict of lists of tensors in an object of the class [`HALF_CLASS`], which its `__setstate__` initialises.
    Half(Box<Vec<(String, Vec<ListItem>)>>),
    Ints(Box<Vec<i64>>),
    Text(Box<String>),
}

/// Tensor that is an element of a list.
#[derive(Clone, Debug)]
pub(crate) enum ListItem {
    Whole(TensorId),
    /// View of part of a tensor, over the same storage.
    View(TensorId, Tensor),
}

/// Declared type of a class attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum AttributeType {
    Bool,
    Int,
    Float,
    Parameter,
    Module(ClassId),
    Tensors,
    Lists,
    Half,
    Ints,
    Text,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ClassId(usize);

/// Contents of a class; modules with equal contents share it.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ClassDefinition<'n> {
    /// Explicit name; a class without one is named by its number, such as `M0`.
    name: Option<&'static str>,
    attributes: Vec<(Cow<'n, str>, AttributeType)>,
    methods: String,
}

#[derive(Debug)]
struct ModuleObject {
    class: ClassId,
    /// Index of the module's first attribute value in `ModuleTree::values`.
    values: usize,
}

/// Module objects and their classes. A million tensors may be in a million modules, so all modules share one list of values,
/// and names are borrowed.
#[derive(Debug, Default)]
pub(crate) struct ModuleTree<'n> {
    classes: Vec<Rc<ClassDefinition<'n>>>,
    known: HashMap<Rc<ClassDefinition<'n>>, ClassId>,
    modules: Vec<ModuleObject>,
    /// Attribute values of all modules, one module after the other, in the order of the class attributes.
    values: Vec<AttributeValue>,
    functions: String,
}

impl<'n> ModuleTree<'n> {
    /// Adds a module of the class `name`, or of a numbered class if there is no name; equal modules share their class. In
    /// `methods`, `Self` stands for the class and `{ns}.` for the namespace.
    ///
    /// Each name must belong to one set of attributes and methods: two classes of one name would collide in torch.
    pub(crate) fn add(
        &mut self,
        name: Option<&'static str>,
        methods: &str,
        attributes: Vec<(Cow<'n, str>, AttributeValue)>,
    ) -> ModuleId {
        let mut types = Vec::with_capacity(attributes.len());
        let start = self.values.len();
        for (attribute, value) in attributes {
            types.push((attribute, self.attribute_type(&value)));
            self.values.push(value);
        }
        let class = ClassDefinition { name, attributes: types, methods: methods.to_owned() };
        let id = self.known.get(&class).copied().unwrap_or_else(|| {
            let (class, id) = (Rc::new(class), ClassId(self.classes.len()));
            self.classes.push(Rc::clone(&class));
            self.known.insert(class, id);
            id
        });
        self.modules.push(ModuleObject { class: id, values: start });
        ModuleId(self.modules.len().saturating_sub(1))
    }

    pub(crate) fn attribute_count_max(&self) -> usize {
        self.classes.iter().map(|class| class.attributes.len()).max().unwrap_or(0)
    }

    /// Appends free functions to the source text; `{ns}` stands for the namespace.
    pub(crate) fn add_functions(&mut self, text: &str) {
        self.functions.push_str(&text.replace("{ns}", NAMESPACE));
    }

    fn attribute_type(&self, value: &AttributeValue) -> AttributeType {
        match value {
            AttributeValue::Bool(_) => AttributeType::Bool,
            AttributeValue::Int(_) => AttributeType::Int,
            AttributeValue::Float(_) => AttributeType::Float,
            AttributeValue::Parameter(_) => AttributeType::Parameter,
            AttributeValue::Tensors => AttributeType::Tensors,
            AttributeValue::Lists(_) => AttributeType::Lists,
            AttributeValue::Half(_) => AttributeType::Half,
            AttributeValue::Ints(_) => AttributeType::Ints,
            AttributeValue::Text(_) => AttributeType::Text,
            AttributeValue::Module(id) => AttributeType::Module(self.module(*id).class),
        }
    }

    fn module(&self, id: ModuleId) -> &ModuleObject {
        self.modules.get(id.0).expect("ids are given out by `add`, and nothing is removed")
    }

    fn class(&self, id: ClassId) -> &ClassDefinition<'n> {
        self.classes.get(id.0).expect("ids are given out by `add`, and nothing is removed")
    }

    fn class_name(&self, id: ClassId) -> Cow<'static, str> {
        self.class(id).name.map_or_else(|| format!("M{}", id.0).into(), Cow::Borrowed)
    }

    /// Returns the source text of `code/__torch__/torch2carton.py`.
    pub(crate) fn into_code(mut self) -> String {
        // The text needs the classes only. A million modules take more memory than the text.
        self.modules = Vec::new();
        self.values = Vec::new();
        byte_source::report_memory_freed();
        let mut out = String::new();
        for number in 0..self.classes.len() {
            self.print(ClassId(number), &mut out).expect("memory takes any text");
        }
        out.push_str(&self.functions);
        out
    }

    fn print(&self, id: ClassId, out: &mut String) -> std::fmt::Result {
        let (name, class) = (self.class_name(id), self.class(id));
        writeln!(out, "class {name}(Module):")?;
        // Attributes in neither list are not part of the state_dict.
        write!(out, "  __parameters__ = [")?;
        for (attribute, _) in class.attributes.iter().filter(|(_, kind)| *kind == AttributeType::Parameter) {
            write!(out, "{}, ", string_literal(attribute))?;
        }
        writeln!(out, "]\n  __buffers__ = []")?;
        for (attribute, kind) in &class.attributes {
            if is_identifier(attribute) {
                write!(out, "  {attribute} : ")?;
            } else {
                write!(out, "  __annotations__[{}] = ", string_literal(attribute))?;
            }
            match kind {
                AttributeType::Bool => writeln!(out, "bool"),
                AttributeType::Int => writeln!(out, "int"),
                AttributeType::Float => writeln!(out, "float"),
                AttributeType::Parameter => writeln!(out, "Tensor"),
                AttributeType::Tensors => writeln!(out, "{TENSORS}"),
                AttributeType::Lists => writeln!(out, "{LISTS}"),
                AttributeType::Half => writeln!(out, "{NAMESPACE}.{HALF_CLASS}"),
                AttributeType::Ints => writeln!(out, "{INTS}"),
                AttributeType::Text => writeln!(out, "str"),
                AttributeType::Module(class) => writeln!(out, "{NAMESPACE}.{}", self.class_name(*class)),
            }?;
        }
        let own = format!("{NAMESPACE}.{name}");
        out.push_str(&class.methods.replace("Self", &own).replace("{ns}", NAMESPACE));
        Ok(())
    }

    /// Returns the bytes of `data.pkl`, whose root object is `root`.
    pub(crate) fn data_pkl(
        &self,
        root: ModuleId,
        tensors: &Tensors,
        records: &DataRecords,
    ) -> Result<Vec<u8>> {
        let mut out = ObjectWriter::new(tensors, records);
        // Stack of the modules that are being written, outermost first, each with the index of its next attribute.
        let mut open = vec![(root, 0_usize)];
        while let Some((id, next)) = open.pop() {
            let module = self.module(id);
            if next == 0 {
                out.begin(&self.class_name(module.class))?;
            }
            let values = self.values.get(module.values..).unwrap_or_default();
            let attributes = self.class(module.class).attributes.iter().zip(values).skip(next);
            let mut inner = None;
            for (number, ((name, _), value)) in (next..).zip(attributes) {
                out.pickler.text(name).map_err(Problem::from)?;
                if let AttributeValue::Module(submodule) = value {
                    inner = Some((number.saturating_add(1), *submodule));
                    break;
                }
                out.value(value)?;
            }
            match inner {
                Some((resume, submodule)) => open.extend([(id, resume), (submodule, 0)]),
                None => out.end(),
            }
        }
        Ok(out.pickler.finish())
    }
}

#[cfg(test)]
mod tests {
    use tensor::{Dtype, Storage};

    use super::*;

    /// Pickle that PyTorch 2.0.1 and 2.15 loaded, as hex digits: a root with one submodule that holds one parameter.
    const SAMPLE: &str = "8002635f5f746f7263685f5f2e746f72636832636172746f6e0a546f700a29817d285808000000747261696e\
        696e678958060000006f7574707574635f5f746f7263685f5f2e746f72636832636172746f6e0a4c696e6561720a29817d285806\
        000000776569676874\
        63746f7263682e5f7574696c730a5f72656275696c645f74656e736f725f76320a2828580700000073746f72616765\
        63746f7263680a42466c6f6174313653746f726167650a58010000003058030000006370754b06745171004b00284b024b037428\
        4b034b01748963636f6c6c656374696f6e730a4f726465726564446963740a2952745271015808000000747261696e696e678975\
        6275622e";

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
    }

    fn attribute(name: &str, value: AttributeValue) -> (Cow<'_, str>, AttributeValue) {
        (name.into(), value)
    }

    fn bf16(shape: [u64; 2]) -> Tensor {
        Tensor::new(Dtype::BFloat16, shape.to_vec(), vec![shape[1], 1], 0, Storage::owned(vec![0; 12]))
            .expect("6 elements are enough")
    }

    #[test]
    fn the_sample_is_reproduced_byte_for_byte() {
        let tensors = [("output.weight".to_owned(), bf16([2, 3]))];
        let mut tree = ModuleTree::default();
        let weight = attribute("weight", AttributeValue::Parameter(TensorId(0)));
        let training = || attribute("training", AttributeValue::Bool(false));
        let linear = tree.add(Some("Linear"), "", vec![weight, training()]);
        let top =
            tree.add(Some("Top"), "", vec![training(), attribute("output", AttributeValue::Module(linear))]);
        let records = DataRecords::new(&tensors.to_vec().into()).expect("one tensor");
        let bytes = tree.data_pkl(top, &tensors.to_vec().into(), &records).expect("short names");
        assert_eq!(hex(&bytes), SAMPLE);
        assert_eq!(
            tree.into_code(),
            "class Linear(Module):\n  __parameters__ = [\"weight\", ]\n  __buffers__ = []\n  weight : Tensor\n  \
             training : bool\nclass Top(Module):\n  __parameters__ = []\n  __buffers__ = []\n  training : bool\n  \
             output : __torch__.torch2carton.Linear\n"
        );
    }

    #[test]
    fn modules_of_one_shape_share_a_class_and_tensors_their_storage() {
        let tied = bf16([1, 6]);
        let tensors = [("a.w".to_owned(), tied.clone()), ("b.w".to_owned(), tied)];
        let mut tree = ModuleTree::default();
        let leaves = [0, 1]
            .map(|i| tree.add(None, "", vec![attribute("w", AttributeValue::Parameter(TensorId(i)))]))
            .map(AttributeValue::Module);
        let root = tree.add(None, "", ["a", "b"].into_iter().map(Cow::from).zip(leaves).collect());
        let records = DataRecords::new(&tensors.to_vec().into()).expect("equal dtypes");
        let bytes = tree.data_pkl(root, &tensors.to_vec().into(), &records).expect("short names");
        assert_eq!(bytes.windows(7).filter(|window| *window == b"storage").count(), 1);
        assert_eq!(tree.into_code().matches("class ").count(), 2);
    }

    #[test]
    fn a_part_of_a_tensor_has_its_storage_and_is_one_object_in_all_lists() {
        let whole = bf16([3, 2]);
        let part = Tensor::new(Dtype::BFloat16, vec![1, 2], vec![2, 1], 4, whole.storage().clone());
        let part = || ListItem::View(TensorId(0), part.clone().expect("inside"));
        let tensors = [("w".to_owned(), whole)];
        let pickle = |lists: Vec<(String, Vec<ListItem>)>| {
            let mut tree = ModuleTree::default();
            let root = tree.add(None, "", vec![attribute("lists", AttributeValue::Lists(Box::new(lists)))]);
            let records = DataRecords::new(&tensors.to_vec().into()).expect("one tensor");
            tree.data_pkl(root, &tensors.to_vec().into(), &records).expect("short names")
        };
        let count =
            |bytes: &[u8], text: &[u8]| bytes.windows(text.len()).filter(|found| *found == text).count();
        let both = pickle(vec![
            ("a".to_owned(), vec![ListItem::Whole(TensorId(0)), part()]),
            ("b".to_owned(), vec![part(), part()]),
        ]);
        assert_eq!((count(&both, b"storage"), count(&both, b"_rebuild_tensor_v2")), (1, 2));
        // Storage offset, shape and stride of the view.
        assert_eq!(count(&both, b"K\x04(K\x01K\x02t(K\x02K\x01t"), 1);
    }

    #[test]
    fn depth_costs_no_stack() {
        let mut tree = ModuleTree::default();
        let mut module = tree.add(None, "", Vec::new());
        for _ in 0..100_000 {
            module = tree.add(None, "", vec![attribute("a", AttributeValue::Module(module))]);
        }
        let bytes = tree.data_pkl(module, &[].to_vec().into(), &DataRecords::default()).expect("short names");
        assert!(bytes.len() > 100_000);
        assert!(tree.into_code().len() > 100_000);
    }
}
