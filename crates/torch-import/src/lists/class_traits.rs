//! What a pickle can do with the instances of a class without running code that was not judged.

/// Uses for which a class was judged, in every version that has it.
///
/// In `lists/instances.txt` and `lists/reviewed.txt` each trait is a letter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClassTraits(u32);

impl ClassTraits {
    /// `n`: `__new__` makes an instance of arguments that are data.
    pub(crate) const CREATED: Self = Self(1);
    /// `N`: `__new__` only stores its arguments.
    pub(crate) const CREATED_WITH_ANY: Self = Self(1 << 1);
    /// `d`: there is no `__setstate__`, so that a dict becomes the attributes of the instance.
    pub(crate) const STATE_DICT: Self = Self(1 << 2);
    /// `s`: setting an attribute only stores it.
    pub(crate) const STATE_SLOTS: Self = Self(1 << 3);
    /// `h`: `__setstate__` reads a state that is data.
    pub(crate) const HOOK_FOR_DATA: Self = Self(1 << 4);
    /// `H`: `__setstate__` stores what is in a plain dict, and reads a tuple or list.
    pub(crate) const HOOK_FOR_ANY: Self = Self(1 << 5);
    /// `m`: as `H`, and looks into a module's dicts, or iterates over a list of names.
    pub(crate) const HOOK_OF_MODULE: Self = Self(1 << 6);
    /// `a`: `append`, `extend` and `add` only store.
    pub(crate) const APPENDED: Self = Self(1 << 7);
    /// `i`: `__setitem__` only stores.
    pub(crate) const ITEMS_SET: Self = Self(1 << 8);
    /// `k`: `__hash__` and `__eq__` do not look at other objects.
    pub(crate) const HASHED: Self = Self(1 << 9);
    /// `K`: `__hash__` and `__eq__` look at what the instance contains.
    pub(crate) const HASHED_BY_CONTENT: Self = Self(1 << 10);
    /// `p`: functions read an instance as plain data, made of what it contains.
    pub(crate) const DATA: Self = Self(1 << 11);
    /// `e`: an enumeration; a call with a value looks a member up.
    pub(crate) const ENUMERATION: Self = Self(1 << 12);
    /// `x`: an exception; a call stores its arguments.
    pub(crate) const EXCEPTION: Self = Self(1 << 13);
    /// `r`: `__setstate__` makes weak references to a dict and to those of a tuple.
    pub(crate) const HOOK_OF_HANDLE: Self = Self(1 << 14);
    /// `j`: `__setitem__` reads a value that is data.
    pub(crate) const DATA_ITEMS_SET: Self = Self(1 << 15);
    /// `c`: functions make instances without the class's own `__new__`.
    pub(crate) const MADE_BY_FUNCTIONS: Self = Self(1 << 16);
    /// `b`: `__setstate__` of arrays stores the objects of a list, and reads the rest.
    pub(crate) const HOOK_OF_ARRAY: Self = Self(1 << 17);
    /// `t`: `__setstate__` of a dtype, whose flags must fit its fields.
    pub(crate) const HOOK_OF_DTYPE: Self = Self(1 << 18);

    /// `l`: `__setstate__` stores what is in a tuple or list.
    pub(crate) const HOOK_FOR_ITEMS: Self = Self(1 << 19);

    /// `g`: `__setstate__` of a generator of torch, which believes that its state is a tuple of two numbers and a tensor.
    pub(crate) const HOOK_OF_GENERATOR: Self = Self(1 << 20);

    /// `y`: judged only in the form in which the package of the class or function writes its calls.
    pub(crate) const AS_WRITTEN: Self = Self(1 << 21);

    const LETTERS: [(char, Self); 22] = [
        ('n', Self::CREATED),
        ('N', Self::CREATED_WITH_ANY),
        ('d', Self::STATE_DICT),
        ('s', Self::STATE_SLOTS),
        ('h', Self::HOOK_FOR_DATA),
        ('H', Self::HOOK_FOR_ANY),
        ('m', Self::HOOK_OF_MODULE),
        ('a', Self::APPENDED),
        ('i', Self::ITEMS_SET),
        ('k', Self::HASHED),
        ('K', Self::HASHED_BY_CONTENT),
        ('p', Self::DATA),
        ('e', Self::ENUMERATION),
        ('x', Self::EXCEPTION),
        ('r', Self::HOOK_OF_HANDLE),
        ('j', Self::DATA_ITEMS_SET),
        ('c', Self::MADE_BY_FUNCTIONS),
        ('b', Self::HOOK_OF_ARRAY),
        ('t', Self::HOOK_OF_DTYPE),
        ('l', Self::HOOK_FOR_ITEMS),
        ('g', Self::HOOK_OF_GENERATOR),
        ('y', Self::AS_WRITTEN),
    ];

    /// Returns the traits of the letters; letters without a trait are ignored.
    pub(crate) fn from_letters(letters: &str) -> Self {
        let known = Self::LETTERS.iter().filter(|(letter, _)| letters.contains(*letter));
        Self(known.fold(0, |bits, (_, found)| bits | found.0))
    }

    /// Returns true if the traits include `other`.
    pub(crate) fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns true if the class was judged for no use.
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_traits() {
        let traits = ClassTraits::from_letters("nH");
        assert!(traits.has(ClassTraits::CREATED) && traits.has(ClassTraits::HOOK_FOR_ANY));
        assert!(!traits.has(ClassTraits::HOOK_FOR_DATA) && !traits.has(ClassTraits::CREATED_WITH_ANY));
        assert!(ClassTraits::from_letters("-").is_empty());
    }
}
