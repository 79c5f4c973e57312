//! Modules of a checkpoint as a tree: sums by module, with equal numbered modules folded into one row.

use std::collections::BTreeMap;

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use serde::Serialize;
use tensor::ViewId;

use crate::TensorRow;

/// Largest number of levels; the rest of a longer name is one part.
const LEVELS_MAX: usize = 64;

/// Row of the tree: a module or a tensor, in the order of the file, each module before its members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TreeRow {
    /// Parts of the name below the row above, joined by dots: a module with one member is joined with it. Equal modules
    /// whose names count up have one row, such as `layers.[0..31]`.
    pub name: String,
    /// Number of modules that the row is inside of.
    pub depth: usize,
    /// Number of equal modules that the row and the rows around it stand for.
    pub count: u64,
    /// Number of tensors of all of these modules.
    pub tensors: u64,
    /// Number of their elements; elements with several names count where they first occur.
    pub parameters: u64,
    pub nbytes: u64,
    /// Dtype, if all tensors have the same one.
    pub dtype: Option<&'static str>,
    /// Shape of a tensor; `None` for a module.
    pub shape: Option<Vec<u64>>,
    /// Index in the report of the first tensor that the row stands for.
    pub first_tensor: usize,
}

/// Module or tensor.
struct TreeNode<'r> {
    part: &'r str,
    children: Vec<usize>,
    /// Index of the tensor's row.
    row: Option<usize>,
    sums: TreeSums,
    contents: usize,
}

/// Dtypes of the tensors of a module.
#[derive(Clone, Copy, Default, PartialEq)]
enum SumDtype {
    #[default]
    None,
    One(&'static str),
    Several,
}

#[derive(Clone, Copy, Default)]
struct TreeSums {
    tensors: u64,
    parameters: u64,
    nbytes: u64,
    dtype: SumDtype,
    first_tensor: usize,
}

impl TreeSums {
    fn add(&mut self, other: &Self) {
        if self.tensors == 0 {
            self.first_tensor = other.first_tensor;
        }
        self.tensors = self.tensors.saturating_add(other.tensors);
        self.parameters = self.parameters.saturating_add(other.parameters);
        self.nbytes = self.nbytes.saturating_add(other.nbytes);
        self.dtype = match (self.dtype, other.dtype) {
            (SumDtype::None, dtype) | (dtype, SumDtype::None) => dtype,
            (first, second) if first == second => first,
            _ => SumDtype::Several,
        };
    }
}

/// Arranges tensors in a tree by the parts of their names. Rows deeper than `depth` are left out; their sums are part of
/// the rows above.
pub fn module_tree(rows: &[TensorRow], depth: Option<usize>) -> Vec<TreeRow> {
    let nodes = build_nodes(rows);
    let mut out = Vec::new();
    // Nodes to print, the next one last: runs of equal nodes, their level, and how often the run around them occurs.
    let mut open = runs(&nodes, 0, 0, 1);
    while let Some(TreeRun { first, len, sums, depth: level, outer }) = open.pop() {
        let Some(mut node) = nodes.get(first) else { continue };
        let mut name = run_name(node.part, len);
        let (mut at, mut count) = (first, outer.saturating_mul(len as u64));
        while node.row.is_none() {
            let below = runs(&nodes, at, 0, 1);
            let [only] = below.as_slice() else { break };
            let Some(child) = nodes.get(only.first) else { break };
            name.push('.');
            name.push_str(&run_name(child.part, only.len));
            count = count.saturating_mul(only.len as u64);
            (node, at) = (child, only.first);
        }
        out.push(TreeRow {
            name,
            depth: level,
            count,
            tensors: sums.tensors.saturating_mul(outer),
            parameters: sums.parameters.saturating_mul(outer),
            nbytes: sums.nbytes.saturating_mul(outer),
            dtype: match sums.dtype {
                SumDtype::One(dtype) => Some(dtype),
                SumDtype::None | SumDtype::Several => None,
            },
            shape: node.row.and_then(|row| Some(rows.get(row)?.shape().to_vec())),
            first_tensor: sums.first_tensor,
        });
        let below = level.saturating_add(1);
        if depth.is_none_or(|depth| below < depth) {
            open.append(&mut runs(&nodes, at, below, count));
        }
    }
    out
}

/// Returns the name of a run of modules: `[0..31]`, or the name of the only one.
fn run_name(first: &str, len: usize) -> String {
    if len == 1 {
        return first.to_owned();
    }
    let number: u64 = first.parse().unwrap_or(0);
    format!("[{first}..{}]", number.saturating_add(len as u64).saturating_sub(1))
}

/// Consecutive children with equal contents and names that count up.
struct TreeRun {
    /// Number of the first node.
    first: usize,
    len: usize,
    sums: TreeSums,
    depth: usize,
    /// How often the modules around the run occur.
    outer: u64,
}

/// Returns the runs of the children of a node, the first one last.
fn runs(nodes: &[TreeNode<'_>], parent: usize, depth: usize, outer: u64) -> Vec<TreeRun> {
    let mut runs: Vec<TreeRun> = Vec::new();
    let children = nodes.get(parent).map(|node| node.children.as_slice()).unwrap_or_default();
    for child in children {
        let Some(node) = nodes.get(*child) else { continue };
        if let Some(run) = runs.last_mut()
            && let Some(first) = nodes.get(run.first)
            && first.contents == node.contents
            && is_next_number(first.part, run.len, node.part)
        {
            run.len = run.len.saturating_add(1);
            run.sums.add(&node.sums);
        } else {
            runs.push(TreeRun { first: *child, len: 1, sums: node.sums, depth, outer });
        }
    }
    runs.reverse();
    runs
}

/// Returns true if `part` is the number that follows `len` numbers from `first` on.
fn is_next_number(first: &str, len: usize, part: &str) -> bool {
    let number = |part: &str| {
        let is_plain = part == "0" || !part.starts_with('0');
        (is_plain && part.bytes().all(|byte| byte.is_ascii_digit()))
            .then(|| part.parse::<u64>().ok())
            .flatten()
    };
    number(first).and_then(|first| first.checked_add(len as u64)) == number(part) && number(part).is_some()
}

/// Builds the nodes; the root is the first, and each node follows its parent.
fn build_nodes(rows: &[TensorRow]) -> Vec<TreeNode<'_>> {
    let new =
        |part| TreeNode { part, children: Vec::new(), row: None, sums: TreeSums::default(), contents: 0 };
    let mut nodes = vec![new("")];
    let mut known: HashMap<(usize, &str), usize> = HashMap::with_capacity(rows.len());
    let mut views: HashSet<ViewId> = HashSet::new();
    for (index, row) in rows.iter().enumerate() {
        let mut at = 0;
        for part in row.name.splitn(LEVELS_MAX, '.') {
            let next = nodes.len();
            at = *known.entry((at, part)).or_insert_with(|| {
                nodes.push(new(part));
                if let Some(parent) = nodes.get_mut(at) {
                    parent.children.push(next);
                }
                next
            });
        }
        // The parts of a sparse or quantized tensor follow its row, which has their bytes as well.
        let (parameters, nbytes) = match row.stored() {
            Some(tensor) if views.insert(tensor.view_id()) => {
                (row.shape().iter().copied().fold(1, u64::saturating_mul), row.nbytes)
            }
            _ => (0, 0),
        };
        if let Some(node) = nodes.get_mut(at) {
            node.row = Some(index);
            let dtype = SumDtype::One(row.dtype);
            node.sums = TreeSums { tensors: 1, parameters, nbytes, dtype, first_tensor: index };
        }
    }
    number_contents(&mut nodes, rows);
    nodes
}

/// Adds up the sums of each node's members, and numbers the contents so that equal ones have the same number.
fn number_contents<'r>(nodes: &mut [TreeNode<'r>], rows: &'r [TensorRow]) {
    /// Contents of a node: its tensor, and the names and contents of its members.
    type NodeContents<'r> = (Option<(&'static str, &'r [u64])>, Vec<(&'r str, usize)>);
    let mut numbers: BTreeMap<NodeContents<'r>, usize> = BTreeMap::new();
    for index in (0..nodes.len()).rev() {
        let Some(node) = nodes.get(index) else { continue };
        let mut sums = node.sums;
        let mut members = Vec::with_capacity(node.children.len());
        for child in node.children.iter().filter_map(|child| nodes.get(*child)) {
            sums.add(&child.sums);
            members.push((child.part, child.contents));
        }
        let tensor = node.row.and_then(|row| rows.get(row)).map(|row| (row.dtype, row.shape()));
        let next = numbers.len();
        let contents = *numbers.entry((tensor, members)).or_insert(next);
        if let Some(node) = nodes.get_mut(index) {
            (node.sums, node.contents) = (sums, contents);
        }
    }
}
