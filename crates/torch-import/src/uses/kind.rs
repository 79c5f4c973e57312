//! The ways in which a pickle uses a global, and sets of them.
//!
//! Facts: `load_reduce`, `load_build`, `do_append` and `do_setitems` in `Modules/_pickle.c` of CPython 3.6 to 3.13.

use crate::Risk;

/// A way in which a pickle uses a global, or an object that it made with the global.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum GlobalUseKind {
    /// The pickle names the global, and passes it on as a value.
    Named,
    /// The pickle calls the global.
    Called,
    /// The pickle makes an instance without `__init__`: only `__new__` runs.
    Created,
    /// The pickle fills an instance's `__dict__`.
    StateDict,
    /// The pickle sets attributes of an instance, so that setters run.
    StateSlots,
    /// The pickle gives a state to `__setstate__`.
    StateHook,
    /// The pickle appends items to an instance.
    Appended,
    /// The pickle sets items of an instance.
    ItemsSet,
    /// The pickle uses an instance as a key of a dict or as a member of a set.
    Hashed,
    /// The pickle gives an instance to a function that reads its arguments.
    Read,
    /// The pickle calls what a call returned.
    ResultCalled,
    /// The pickle changes what a call returned, and its class is not known.
    ResultChanged,
}

impl GlobalUseKind {
    /// All kinds, in the order of their definition.
    pub const ALL: [Self; 12] = [
        Self::Named,
        Self::Called,
        Self::Created,
        Self::StateDict,
        Self::StateSlots,
        Self::StateHook,
        Self::Appended,
        Self::ItemsSet,
        Self::Hashed,
        Self::Read,
        Self::ResultCalled,
        Self::ResultChanged,
    ];

    /// Returns the kind's name for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Named => "named",
            Self::Called => "called",
            Self::Created => "created",
            Self::StateDict => "state_dict",
            Self::StateSlots => "state_slots",
            Self::StateHook => "state_hook",
            Self::Appended => "appended",
            Self::ItemsSet => "items_set",
            Self::Hashed => "hashed",
            Self::Read => "read",
            Self::ResultCalled => "result_called",
            Self::ResultChanged => "result_changed",
        }
    }

    /// Returns the kind as the end of a sentence about the global.
    pub fn text(self) -> &'static str {
        match self {
            Self::Named => "is named",
            Self::Called => "is called",
            Self::Created => "makes an instance",
            Self::StateDict => "has an instance whose attributes are set",
            Self::StateSlots => "has an instance whose setters run",
            Self::StateHook => "has an instance whose __setstate__ runs",
            Self::Appended => "has an instance to which items are appended",
            Self::ItemsSet => "has an instance whose items are set",
            Self::Hashed => "has an instance that is a key",
            Self::Read => "has an instance that a function reads",
            Self::ResultCalled => "returns something that is called",
            Self::ResultChanged => "returns something that is changed",
        }
    }
}

/// A set of [`GlobalUseKind`]s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GlobalUseKinds(u16);

impl GlobalUseKinds {
    pub(crate) fn insert(&mut self, kind: GlobalUseKind) {
        self.0 |= 1_u16.wrapping_shl(u32::from(kind as u8));
    }

    /// Returns true if the set has the kind.
    pub fn contains(self, kind: GlobalUseKind) -> bool {
        self.0 & 1_u16.wrapping_shl(u32::from(kind as u8)) != 0
    }

    /// Iterates over the kinds in the set, in the order of [`GlobalUseKind::ALL`].
    pub fn iter(self) -> impl Iterator<Item = GlobalUseKind> {
        GlobalUseKind::ALL.into_iter().filter(move |kind| self.contains(*kind))
    }

    /// Returns true if the set has no kind.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// What a pickle does with a global.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UseRisk {
    pub(crate) kinds: GlobalUseKinds,
    /// Uses that are not known to be harmless.
    pub(crate) findings: GlobalUseKinds,
    /// Risk of the uses; `None` if they are all known to be harmless.
    pub(crate) risk: Option<Risk>,
}
