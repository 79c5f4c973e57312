//! Table of the pickle opcodes: byte, name, argument, stack effect, protocol and description of each.
//!
//! Source: `opcodes` in CPython's `Lib/pickletools.py`; names, order and descriptions (first lines) are the same.

use std::fmt;

/// Encoding of an opcode's argument in the pickle; the names are those of pickletools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArgKind {
    None,
    /// One-byte unsigned integer, 0 to 255.
    Uint1,
    /// Two-byte unsigned integer, little-endian.
    Uint2,
    /// Four-byte signed integer, little-endian.
    Int4,
    /// Four-byte unsigned integer, little-endian.
    Uint4,
    /// Eight-byte unsigned integer, little-endian.
    Uint8,
    /// A quoted, backslash-escaped string up to a newline.
    StringNl,
    /// A plain string up to a newline.
    StringNlNoEscape,
    /// Two plain strings, each up to a newline.
    StringNlNoEscapePair,
    /// A byte string after a one-byte unsigned length.
    String1,
    /// A byte string after a four-byte signed length.
    String4,
    /// Bytes after a one-byte unsigned length.
    Bytes1,
    /// Bytes after a four-byte unsigned length.
    Bytes4,
    /// Bytes after an eight-byte unsigned length.
    Bytes8,
    /// A bytearray after an eight-byte unsigned length.
    ByteArray8,
    /// Raw-unicode-escaped text up to a newline.
    UnicodeStringNl,
    /// UTF-8 text after a one-byte unsigned length.
    UnicodeString1,
    /// UTF-8 text after a four-byte unsigned length.
    UnicodeString4,
    /// UTF-8 text after an eight-byte unsigned length.
    UnicodeString8,
    /// A decimal integer up to a newline; `00` and `01` are the booleans.
    DecimalNlShort,
    /// A decimal integer up to a newline, with an optional trailing `L`.
    DecimalNlLong,
    /// A decimal floating-point literal up to a newline.
    FloatNl,
    /// An eight-byte IEEE 754 double, big-endian.
    Float8,
    /// A signed little-endian integer after a one-byte unsigned length.
    Long1,
    /// A signed little-endian integer after a four-byte signed length.
    Long4,
}

/// Type of a stack item before or after an opcode; the names are those of pickletools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StackItem {
    Any,
    Mark,
    /// All objects above the topmost mark.
    StackSlice,
    Int,
    IntOrBool,
    Bool,
    Float,
    /// A Python 2 `str`, which is bytes or text in Python 3.
    BytesOrStr,
    Bytes,
    ByteArray,
    /// Data stored outside the pickle (PEP 574).
    Buffer,
    Str,
    None,
    Tuple,
    List,
    Dict,
    Set,
    FrozenSet,
}

/// Properties of one opcode: a row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpcodeInfo {
    pub opcode: Opcode,
    /// Byte of the opcode in the pickle.
    pub code: u8,
    /// Name of the opcode, as in pickletools.
    pub name: &'static str,
    /// Encoding of the opcode's argument.
    pub arg: ArgKind,
    /// Items that the opcode pops, topmost last.
    pub before: &'static [StackItem],
    /// Items that the opcode pushes, topmost last.
    pub after: &'static [StackItem],
    /// First protocol that has the opcode.
    pub proto: u8,
    /// Description of the opcode, in one sentence.
    pub doc: &'static str,
}

macro_rules! opcodes {
    ($($variant:ident $code:literal $name:ident $arg:ident [$($before:ident)* => $($after:ident)*] $proto:literal $doc:literal;)*) => {
        /// An instruction of the pickle machine.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Opcode {
            $(#[doc = concat!($doc, " (`", stringify!($name), "`)")] $variant = $code,)*
        }

        impl Opcode {
            /// All opcodes, in the order of pickletools.
            pub const ALL: &'static [Opcode] = &[$(Opcode::$variant),*];

            /// Returns the opcode with this byte.
            #[inline]
            pub fn from_byte(byte: u8) -> Option<Opcode> {
                Self::info_of_byte(byte).map(|info| info.opcode)
            }

            /// Returns the row of the opcode with this byte. It is looked up: a match for each instruction would take longer.
            #[inline]
            pub(crate) fn info_of_byte(byte: u8) -> Option<&'static OpcodeInfo> {
                #[expect(clippy::indexing_slicing, reason = "this is computed by the compiler")]
                static BY_BYTE: [Option<&OpcodeInfo>; 256] = {
                    let mut rows = [None; 256];
                    $(rows[$code as usize] = Some(Opcode::$variant.info());)*
                    rows
                };
                *BY_BYTE.get(usize::from(byte))?
            }

            /// Returns the opcode's row of the table.
            #[inline]
            pub const fn info(self) -> &'static OpcodeInfo {
                match self {
                    $(Opcode::$variant => &OpcodeInfo {
                        opcode: Opcode::$variant,
                        code: $code,
                        name: stringify!($name),
                        arg: ArgKind::$arg,
                        before: &[$(StackItem::$before),*],
                        after: &[$(StackItem::$after),*],
                        proto: $proto,
                        doc: $doc,
                    },)*
                }
            }
        }
    };
}

opcodes! {
    // Encodings of integers.
    Int             b'I'  INT              DecimalNlShort       [=> IntOrBool]                 0 "Push an integer or bool.";
    BinInt          b'J'  BININT           Int4                 [=> Int]                       1 "Push a four-byte signed integer.";
    BinInt1         b'K'  BININT1          Uint1                [=> Int]                       1 "Push a one-byte unsigned integer.";
    BinInt2         b'M'  BININT2          Uint2                [=> Int]                       1 "Push a two-byte unsigned integer.";
    Long            b'L'  LONG             DecimalNlLong        [=> Int]                       0 "Push a long integer.";
    Long1           0x8a  LONG1            Long1                [=> Int]                       2 "Long integer using one-byte length.";
    Long4           0x8b  LONG4            Long4                [=> Int]                       2 "Long integer using found-byte length.";
    // Encodings of strings (Python 2's `str`).
    String          b'S'  STRING           StringNl             [=> BytesOrStr]                0 "Push a Python string object.";
    BinString       b'T'  BINSTRING        String4              [=> BytesOrStr]                1 "Push a Python string object.";
    ShortBinString  b'U'  SHORT_BINSTRING  String1              [=> BytesOrStr]                1 "Push a Python string object.";
    // Bytes, and buffers stored outside the pickle.
    BinBytes        b'B'  BINBYTES         Bytes4               [=> Bytes]                     3 "Push a Python bytes object.";
    ShortBinBytes   b'C'  SHORT_BINBYTES   Bytes1               [=> Bytes]                     3 "Push a Python bytes object.";
    BinBytes8       0x8e  BINBYTES8        Bytes8               [=> Bytes]                     4 "Push a Python bytes object.";
    ByteArray8      0x96  BYTEARRAY8       ByteArray8           [=> ByteArray]                 5 "Push a Python bytearray object.";
    NextBuffer      0x97  NEXT_BUFFER      None                 [=> Buffer]                    5 "Push an out-of-band buffer object.";
    ReadonlyBuffer  0x98  READONLY_BUFFER  None                 [Buffer => Buffer]             5 "Make an out-of-band buffer object read-only.";
    // None and the booleans.
    None            b'N'  NONE             None                 [=> None]                      0 "Push None on the stack.";
    NewTrue         0x88  NEWTRUE          None                 [=> Bool]                      2 "Push True onto the stack.";
    NewFalse        0x89  NEWFALSE         None                 [=> Bool]                      2 "Push False onto the stack.";
    // Text.
    Unicode         b'V'  UNICODE          UnicodeStringNl      [=> Str]                       0 "Push a Python Unicode string object.";
    ShortBinUnicode 0x8c  SHORT_BINUNICODE UnicodeString1       [=> Str]                       4 "Push a Python Unicode string object.";
    BinUnicode      b'X'  BINUNICODE       UnicodeString4       [=> Str]                       1 "Push a Python Unicode string object.";
    BinUnicode8     0x8d  BINUNICODE8      UnicodeString8       [=> Str]                       4 "Push a Python Unicode string object.";
    // Floats.
    Float           b'F'  FLOAT            FloatNl              [=> Float]                     0 "Newline-terminated decimal float literal.";
    BinFloat        b'G'  BINFLOAT         Float8               [=> Float]                     1 "Float stored in binary form, with 8 bytes of data.";
    // Lists.
    EmptyList       b']'  EMPTY_LIST       None                 [=> List]                      1 "Push an empty list.";
    Append          b'a'  APPEND           None                 [List Any => List]             0 "Append an object to a list.";
    Appends         b'e'  APPENDS          None                 [List Mark StackSlice => List] 1 "Extend a list by a slice of stack objects.";
    List            b'l'  LIST             None                 [Mark StackSlice => List]      0 "Build a list out of the topmost stack slice, after markobject.";
    // Tuples.
    EmptyTuple      b')'  EMPTY_TUPLE      None                 [=> Tuple]                     1 "Push an empty tuple.";
    Tuple           b't'  TUPLE            None                 [Mark StackSlice => Tuple]     0 "Build a tuple out of the topmost stack slice, after markobject.";
    Tuple1          0x85  TUPLE1           None                 [Any => Tuple]                 2 "Build a one-tuple out of the topmost item on the stack.";
    Tuple2          0x86  TUPLE2           None                 [Any Any => Tuple]             2 "Build a two-tuple out of the top two items on the stack.";
    Tuple3          0x87  TUPLE3           None                 [Any Any Any => Tuple]         2 "Build a three-tuple out of the top three items on the stack.";
    // Dicts.
    EmptyDict       b'}'  EMPTY_DICT       None                 [=> Dict]                      1 "Push an empty dict.";
    Dict            b'd'  DICT             None                 [Mark StackSlice => Dict]      0 "Build a dict out of the topmost stack slice, after markobject.";
    SetItem         b's'  SETITEM          None                 [Dict Any Any => Dict]         0 "Add a key+value pair to an existing dict.";
    SetItems        b'u'  SETITEMS         None                 [Dict Mark StackSlice => Dict] 1 "Add an arbitrary number of key+value pairs to an existing dict.";
    // Sets.
    EmptySet        0x8f  EMPTY_SET        None                 [=> Set]                       4 "Push an empty set.";
    AddItems        0x90  ADDITEMS         None                 [Set Mark StackSlice => Set]   4 "Add an arbitrary number of items to an existing set.";
    FrozenSet       0x91  FROZENSET        None                 [Mark StackSlice => FrozenSet] 4 "Build a frozenset out of the topmost slice, after markobject.";
    // Stack manipulation.
    Pop             b'0'  POP              None                 [Any =>]                       0 "Discard the top stack item, shrinking the stack by one item.";
    Dup             b'2'  DUP              None                 [Any => Any Any]               0 "Push the top stack item onto the stack again, duplicating it.";
    Mark            b'('  MARK             None                 [=> Mark]                      0 "Push markobject onto the stack.";
    PopMark         b'1'  POP_MARK         None                 [Mark StackSlice =>]           1 "Pop all the stack objects at and above the topmost markobject.";
    // Memo manipulation.
    Get             b'g'  GET              DecimalNlShort       [=> Any]                       0 "Read an object from the memo and push it on the stack.";
    BinGet          b'h'  BINGET           Uint1                [=> Any]                       1 "Read an object from the memo and push it on the stack.";
    LongBinGet      b'j'  LONG_BINGET      Uint4                [=> Any]                       1 "Read an object from the memo and push it on the stack.";
    Put             b'p'  PUT              DecimalNlShort       [=>]                           0 "Store the stack top into the memo.  The stack is not popped.";
    BinPut          b'q'  BINPUT           Uint1                [=>]                           1 "Store the stack top into the memo.  The stack is not popped.";
    LongBinPut      b'r'  LONG_BINPUT      Uint4                [=>]                           1 "Store the stack top into the memo.  The stack is not popped.";
    Memoize         0x94  MEMOIZE          None                 [Any => Any]                   4 "Store the stack top into the memo.  The stack is not popped.";
    // Extension registry codes.
    Ext1            0x82  EXT1             Uint1                [=> Any]                       2 "Extension code.";
    Ext2            0x83  EXT2             Uint2                [=> Any]                       2 "Extension code.";
    Ext4            0x84  EXT4             Int4                 [=> Any]                       2 "Extension code.";
    // Classes, functions, and instances.
    Global          b'c'  GLOBAL           StringNlNoEscapePair [=> Any]                       0 "Push a global object (module.attr) on the stack.";
    StackGlobal     0x93  STACK_GLOBAL     None                 [Str Str => Any]               4 "Push a global object (module.attr) on the stack.";
    Reduce          b'R'  REDUCE           None                 [Any Any => Any]               0 "Push an object built from a callable and an argument tuple.";
    Build           b'b'  BUILD            None                 [Any Any => Any]               0 "Finish building an object, via __setstate__ or dict update.";
    Inst            b'i'  INST             StringNlNoEscapePair [Mark StackSlice => Any]       0 "Build a class instance.";
    Obj             b'o'  OBJ              None                 [Mark Any StackSlice => Any]   1 "Build a class instance.";
    NewObj          0x81  NEWOBJ           None                 [Any Any => Any]               2 "Build an object instance.";
    NewObjEx        0x92  NEWOBJ_EX        None                 [Any Any Any => Any]           4 "Build an object instance.";
    // Machine control.
    Proto           0x80  PROTO            Uint1                [=>]                           2 "Protocol version indicator.";
    Stop            b'.'  STOP             None                 [Any =>]                       0 "Stop the unpickling machine.";
    Frame           0x95  FRAME            Uint8                [=>]                           4 "Indicate the beginning of a new frame.";
    // Persistent ids.
    PersId          b'P'  PERSID           StringNlNoEscape     [=> Any]                       0 "Push an object identified by a persistent ID.";
    BinPersId       b'Q'  BINPERSID        None                 [Any => Any]                   1 "Push an object identified by a persistent ID.";
}

impl Opcode {
    /// Returns the opcode's byte in the pickle.
    #[inline]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the opcode's name, as in pickletools.
    pub const fn name(self) -> &'static str {
        self.info().name
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::Opcode;

    #[test]
    fn from_byte_finds_all_sixty_eight_opcodes() {
        assert_eq!(Opcode::ALL.len(), 68);
        for &opcode in Opcode::ALL {
            assert_eq!(Opcode::from_byte(opcode.code()), Some(opcode));
            assert_eq!(opcode.info().opcode, opcode);
            assert_eq!(opcode.info().code, opcode.code());
        }
        let known = (0..=255).filter(|&byte| Opcode::from_byte(byte).is_some());
        assert_eq!(known.count(), 68);
    }
}
