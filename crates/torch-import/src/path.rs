//! Paths from the root of a pickle to any of its objects, and the names of the paths.

use pickle_vm::{Heap, Object, ObjectId};

use crate::key;
use crate::limits::{LimitBudget, ObjectSet};
use crate::rebuild::RebuildFunction;

const PATH_NAME_LEN_MAX: usize = 1024;

/// A reference from one object to another, by the position in the referring object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edge {
    Item(usize),
    Value(ObjectId),
    Key,
    Appended(usize),
    Args,
    State,
    Kwargs,
    Callable,
    PersistentId,
}

/// Returns reference number `n` of an object, and its target.
pub(crate) fn edge(heap: &Heap<'_>, id: ObjectId, n: usize) -> Option<(Edge, ObjectId)> {
    let entry = |entries: &[(ObjectId, ObjectId)], n: usize| {
        let (key, value) = *entries.get(n / 2)?;
        Some(if n.is_multiple_of(2) { (Edge::Value(key), value) } else { (Edge::Key, key) })
    };
    match heap.get(id) {
        Object::Dict(entries) => entry(entries.get(), n),
        Object::List(_) | Object::Tuple(_) | Object::Set(_) | Object::FrozenSet(_) => {
            Some((Edge::Item(n), *heap.items(id)?.get(n)?))
        }
        Object::Persistent(pid) => (n == 0).then_some((Edge::PersistentId, *pid)),
        Object::Instance(instance) => {
            let fixed = [
                Some((Edge::Args, instance.args)),
                Some((Edge::Callable, instance.callable)),
                instance.kwargs().map(|kwargs| (Edge::Kwargs, kwargs)),
            ];
            let mut n = n;
            for edge in fixed.into_iter().flatten() {
                match n.checked_sub(1) {
                    None => return Some(edge),
                    Some(less) => n = less,
                }
            }
            if let Some(state) = instance.state().get(n) {
                return Some((Edge::State, *state));
            }
            n = n.checked_sub(instance.state().len())?;
            if let Some(item) = instance.appends().get(n) {
                return Some((Edge::Appended(n), *item));
            }
            n = n.checked_sub(instance.appends().len())?;
            entry(instance.items(), n)
        }
        _ => None,
    }
}

/// A step of a path: an object and one of its references.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathStep {
    pub(crate) parent: ObjectId,
    pub(crate) edge: Edge,
    pub(crate) child: ObjectId,
}

/// The shortest path from the root to each object, as a breadth-first tree.
pub(crate) struct ShortestPaths<'h> {
    heap: &'h Heap<'h>,
    root: ObjectId,
    /// For each object, its predecessor and the number of the predecessor's reference; `None` for the root and for
    /// unreachable objects.
    predecessors: Vec<Option<(ObjectId, u32)>>,
}

impl<'h> ShortestPaths<'h> {
    pub(crate) fn new(heap: &'h Heap<'h>, root: ObjectId) -> Self {
        let mut before = vec![None; heap.len()];
        let mut seen = ObjectSet::new(heap.len());
        seen.insert(root);
        let mut queue = std::collections::VecDeque::from([root]);
        while let Some(parent) = queue.pop_front() {
            let edges = (0..).map_while(|n| Some((n, edge(heap, parent, usize::try_from(n).ok()?)?)));
            for (n, (_, child)) in edges {
                if seen.insert(child) {
                    if let Some(before) = before.get_mut(child.index()) {
                        *before = Some((parent, n));
                    }
                    queue.push_back(child);
                }
            }
        }
        Self { heap, root, predecessors: before }
    }

    /// Returns true if an object is the root or reachable from it.
    pub(crate) fn is_reachable(&self, id: ObjectId) -> bool {
        id == self.root || self.predecessors.get(id.index()).is_some_and(Option::is_some)
    }

    /// Returns the path to an object, truncated at its start when the budget is spent; `None` if the object is
    /// unreachable.
    pub(crate) fn path(&self, id: ObjectId, budget: &mut LimitBudget) -> Option<Vec<PathStep>> {
        let mut path = Vec::new();
        let mut child = id;
        while child != self.root {
            let (parent, n) = (*self.predecessors.get(child.index())?)?;
            if !budget.try_spend(1) {
                break;
            }
            let (edge, _) = edge(self.heap, parent, usize::try_from(n).ok()?)?;
            path.push(PathStep { parent, edge, child });
            child = parent;
        }
        path.reverse();
        Some(path)
    }
}

/// Returns true if a step leads to the arguments of a call that creates a tensor.
fn leads_to_tensor_args(heap: &Heap<'_>, step: &PathStep) -> bool {
    let instance = heap.instance(step.parent);
    step.edge == Edge::Args
        && instance.is_some_and(|instance| RebuildFunction::called_by(heap, instance).is_some())
}

/// Joins the parts of a path that Python code would name by dots.
pub(crate) fn path_name(heap: &Heap<'_>, path: &[PathStep], naming: &mut LimitBudget) -> String {
    let mut name = String::new();
    for (index, step) in path.iter().enumerate() {
        let before = index.checked_sub(1).and_then(|before| path.get(before));
        let part = match step.edge {
            Edge::Value(key) => {
                let part = if naming.try_spend(1) { key::name_part(heap, key) } else { "…".into() };
                if !naming.try_spend(part.len()) {
                    return name;
                }
                let is_state = before
                    .is_some_and(|before| matches!(before.edge, Edge::State | Edge::Args | Edge::Item(_)));
                if is_state && matches!(part.as_ref(), "_parameters" | "_buffers" | "_modules") {
                    continue;
                }
                part
            }
            Edge::Item(_) if before.is_some_and(|before| leads_to_tensor_args(heap, before)) => continue,
            Edge::Item(index) | Edge::Appended(index) => index.to_string().into(),
            _ => continue,
        };
        if !push_name_part(&mut name, &part) {
            return name;
        }
    }
    name
}

/// Appends a part to a name; returns false if the name would become too long.
pub(crate) fn push_name_part(name: &mut String, part: &str) -> bool {
    if name.len().saturating_add(part.len()) > PATH_NAME_LEN_MAX {
        name.push('…');
        return false;
    }
    if !name.is_empty() {
        name.push('.');
    }
    name.push_str(part);
    true
}
