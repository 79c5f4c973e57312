//! Dict keys as parts of tensor names, and as Python subscripts in messages.

use std::borrow::Cow;

use pickle_vm::{Heap, Object, ObjectId};

use crate::encoded;

/// A dict key for comparison. Two keys are equal if they are the same key of a Python dict, as `1`, `1.0` and `True`
/// are.
#[derive(PartialEq, Eq, Hash)]
pub(crate) enum ComparisonKey<'h> {
    None,
    /// UTF-8 bytes, which may encode surrogates.
    Text(&'h [u8]),
    Bytes(Cow<'h, [u8]>),
    /// Bool, int or float whose value is an integer of 64 bits.
    Int(i64),
    /// Any other integer, in two's complement, little-endian, in as few bytes as possible.
    Long(Cow<'h, [u8]>),
    /// Bit pattern of a float that is not an integer.
    Float(u64),
    /// Module and name of a class or a function.
    Global(&'h str, &'h str),
    /// Serialized keys of a tuple, one after the other.
    Tuple(Vec<u8>),
    /// Any other object, or a NaN, equals only itself: two objects that look alike may differ, and two tensors must not
    /// become one.
    Object(ObjectId),
}

/// Maximum length of a serialized tuple, in bytes. A few bytes of a pickle can encode large tuples of shared tuples.
const TUPLE_BYTES: usize = 4096;

impl<'h> ComparisonKey<'h> {
    pub(crate) fn new(heap: &'h Heap<'h>, id: ObjectId) -> Self {
        match heap.get(id) {
            Object::Tuple(_) => serialize_tuple(heap, id).map_or(Self::Object(id), Self::Tuple),
            _ => Self::from_non_tuple(heap, id),
        }
    }

    fn from_non_tuple(heap: &'h Heap<'h>, id: ObjectId) -> Self {
        match heap.get(id) {
            Object::None => Self::None,
            Object::Text(text) => Self::Text(text.bytes()),
            // Strings of Python 2 are text if they can be decoded.
            Object::String(bytes) if std::str::from_utf8(bytes).is_ok() => Self::Text(bytes),
            Object::Bytes(bytes) => Self::Bytes(Cow::Borrowed(bytes)),
            Object::Bool(value) => Self::Int(i64::from(*value)),
            Object::Int(value) => Self::Int(*value),
            Object::Long(value) => Self::Long(Cow::Borrowed(value.bytes())),
            Object::Float(value) => float_key(*value).unwrap_or(Self::Object(id)),
            Object::Global(_) => {
                heap.global(id).map_or(Self::Object(id), |(module, name)| Self::Global(module, name))
            }
            // Bytes that protocol 2 writes as a call.
            Object::Instance(_) if heap.last_change(id).is_none() => {
                encoded::decode_latin1(heap, id).map_or(Self::Object(id), Self::Bytes)
            }
            _ => Self::Object(id),
        }
    }

    /// Appends the key to the serialized keys of a tuple.
    fn serialize_into(&self, out: &mut Vec<u8>) {
        let mut sized = |tag: u8, parts: &[&[u8]]| {
            out.push(tag);
            for part in parts {
                out.extend((part.len() as u64).to_le_bytes());
                out.extend(*part);
            }
        };
        match self {
            Self::None => sized(0, &[]),
            Self::Text(text) => sized(1, &[text]),
            Self::Bytes(bytes) => sized(2, &[bytes]),
            Self::Int(value) => sized(3, &[&value.to_le_bytes()]),
            Self::Long(bytes) => sized(4, &[bytes]),
            Self::Float(bits) => sized(5, &[&bits.to_le_bytes()]),
            Self::Global(module, name) => sized(6, &[module.as_bytes(), name.as_bytes()]),
            Self::Tuple(items) => sized(7, &[items]),
            Self::Object(id) => sized(8, &[&id.index().to_le_bytes()]),
        }
    }
}

/// Serializes the items of a tuple, including nested tuples; `None` if they are too long.
fn serialize_tuple<'h>(heap: &'h Heap<'h>, id: ObjectId) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut open = vec![id];
    while let Some(id) = open.pop() {
        match heap.get(id) {
            Object::Tuple(_) => {
                let items = heap.items(id).unwrap_or_default();
                if items.len() > TUPLE_BYTES {
                    return None;
                }
                out.push(9);
                out.extend((items.len() as u64).to_le_bytes());
                open.extend(items.iter().rev());
            }
            Object::Text(text) if text.bytes().len() > TUPLE_BYTES => return None,
            Object::Bytes(bytes) if bytes.len() > TUPLE_BYTES => return None,
            _ => ComparisonKey::from_non_tuple(heap, id).serialize_into(&mut out),
        }
        if out.len() > TUPLE_BYTES {
            return None;
        }
    }
    Some(out)
}

/// Returns the key of a float, which is that of an integer if the two are equal. Returns `None` for a NaN, which equals
/// nothing.
fn float_key<'h>(value: f64) -> Option<ComparisonKey<'h>> {
    if value.is_nan() {
        return None;
    }
    if value.is_infinite() || value.fract() != 0.0 {
        return Some(ComparisonKey::Float(value.to_bits()));
    }
    // The value is an integer below 2⁵³ times a power of two.
    let bits = value.to_bits();
    let (fraction, exponent) = (bits & ((1 << 52) - 1), bits >> 52 & 0x7ff);
    if value.abs() < 9_223_372_036_854_775_808.0 {
        #[expect(clippy::cast_possible_truncation, reason = "it is an integer that fits")]
        return Some(ComparisonKey::Int(value as i64));
    }
    let shift = usize::try_from(exponent.saturating_sub(1075)).unwrap_or_default();
    let mut magnitude = vec![0; shift / 8];
    magnitude.extend((u128::from(fraction | 1 << 52) << (shift % 8)).to_le_bytes());
    if value < 0.0 {
        let mut carry = true;
        for byte in &mut magnitude {
            let (sum, overflow) = (!*byte).overflowing_add(u8::from(carry));
            (*byte, carry) = (sum, overflow);
        }
    }
    // Removes the top bytes that only repeat the sign.
    while let [.., below, top] = magnitude.as_slice() {
        let sign = if below & 0x80 == 0 { 0 } else { 0xff };
        if *top != sign {
            break;
        }
        magnitude.pop();
    }
    // -2⁶³ is the only 64-bit integer whose absolute value is not below 2⁶³.
    match <[u8; 8]>::try_from(magnitude.as_slice()) {
        Ok(bytes) => Some(ComparisonKey::Int(i64::from_le_bytes(bytes))),
        Err(_) => Some(ComparisonKey::Long(Cow::Owned(magnitude))),
    }
}

/// Returns true if a key is a NaN. Python compares NaN keys by identity, so a dict can have several.
pub(crate) fn is_nan(heap: &Heap<'_>, id: ObjectId) -> bool {
    matches!(heap.get(id), Object::Float(value) if value.is_nan())
}

/// Returns the name part for a NaN key that is number `number` among the NaN keys of its dict.
pub(crate) fn nan_name_part(heap: &Heap<'_>, id: ObjectId, number: usize) -> String {
    format!("{}#{number}", repr(heap, id))
}

/// Returns the name part for a key: the text of a string, Python's `repr` of any other object.
pub(crate) fn name_part<'h>(heap: &'h Heap<'_>, id: ObjectId) -> Cow<'h, str> {
    let text = match heap.get(id) {
        Object::Text(_) | Object::String(_) => heap.text(id),
        _ => None,
    };
    text.unwrap_or_else(|| Cow::Owned(repr(heap, id)))
}

/// Returns the key as Python's `repr` prints it. An instance of a class is shown as the call that creates it, because
/// the pickle records nothing else.
pub(crate) fn repr(heap: &Heap<'_>, id: ObjectId) -> String {
    // Bytes that protocol 2 writes as a call.
    let bytes = |heap: &Heap<'_>, id| Some(bytes_repr(&encoded::decode_bytes(heap, id)?));
    heap.display(id).long().annotated(&bytes).to_string()
}

fn bytes_repr(bytes: &[u8]) -> String {
    let escaped = bytes.escape_ascii().to_string();
    let double = bytes.contains(&b'\'') && !bytes.contains(&b'"');
    if double {
        format!("b\"{}\"", escaped.replace("\\'", "'"))
    } else {
        format!("b'{}'", escaped.replace("\\\"", "\""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_equal_where_python_has_one() {
        // `len({a, b})` in CPython 3.11 for each pair, protocol 4.
        let one = |bytes: &[u8]| {
            let pickle = pickle_vm::load(bytes).expect("CPython's machine can build this");
            let &[first, second] = pickle.heap.items(pickle.root).unwrap_or_default() else { panic!("two") };
            ComparisonKey::new(&pickle.heap, first) == ComparisonKey::new(&pickle.heap, second)
        };
        let float = |value: f64| [b"G".as_slice(), &value.to_be_bytes()].concat();
        let pair = |first: &[u8], second: &[u8]| one(&[first, second, b"\x86."].concat());
        let long = |bytes: &[u8]| [&[0x8a, u8::try_from(bytes.len()).unwrap_or(0)], bytes].concat();
        let power = |bit: usize, sign: u8| {
            let mut bytes = vec![0; bit / 8];
            bytes.extend([sign << (bit % 8), if sign == 1 { 0 } else { 0xff }]);
            bytes
        };
        assert!(pair(b"K\x01", b"\x88"), "1 == True");
        assert!(pair(b"K\x00", b"\x89"), "0 == False");
        assert!(pair(b"K\x01", &float(1.0)), "1 == 1.0");
        assert!(pair(&float(0.0), &float(-0.0)), "0.0 == -0.0");
        assert!(pair(b"K\x00", &float(-0.0)), "0 == -0.0");
        assert!(!pair(b"K\x00", b"N"), "0 != None");
        assert!(!pair(b"K\x01", b"\x8c\x011"), "1 != '1'");
        assert!(!pair(b"C\x01a", b"\x8c\x01a"), "b'a' != 'a'");
        assert!(!pair(&float(0.5), &float(0.25)));
        assert!(pair(&float(0.5), &float(0.5)));
        assert!(pair(&float(f64::INFINITY), &float(f64::INFINITY)));
        assert!(!pair(&float(f64::NAN), &float(f64::NAN)), "two NaN are two keys");
        assert!(one(&[&float(f64::NAN)[..], b"2\x86."].concat()), "the same NaN is one");
        // 2**64, -2**64, 2**100, 2**1000, and 2**63 and -2**63 at the limits of 64 bits.
        assert!(pair(&long(&power(64, 1)), &float(2_f64.powi(64))));
        assert!(pair(&long(&power(64, 0xff)), &float(-(2_f64.powi(64)))));
        assert!(!pair(&long(&power(64, 0xff)), &float(2_f64.powi(64))));
        assert!(pair(&long(&power(100, 1)), &float(2_f64.powi(100))));
        assert!(pair(&long(&power(1000, 1)), &float(2_f64.powi(1000))));
        assert!(pair(&long(&power(63, 1)), &float(2_f64.powi(63))));
        assert!(pair(&long(b"\0\0\0\0\0\0\0\x80"), &float(-(2_f64.powi(63)))));
        assert!(!pair(&long(&power(100, 1)), &float(2_f64.powi(101))));
        // 10**23 is not the float 1e23.
        assert!(!pair(b"I100000000000000000000000\n", &float(1e23)));
        assert!(pair(b"I99999999999999991611392\n", &float(1e23)));
        // Tuples are equal if all their items are.
        assert!(pair(b"K\x01\x88\x86", &[&float(1.0)[..], b"K\x01\x86"].concat()), "(1, True) == (1.0, 1)");
        assert!(pair(b"K\x01\x85\x85", b"\x88\x85\x85"), "((1,),) == ((True,),)");
        assert!(!pair(b"K\x01\x85\x85", b"K\x01\x85"), "((1,),) != (1,)");
        assert!(!pair(b"K\x01K\x02\x86", b"K\x01K\x02\x85\x86"), "(1, 2) != (1, (2,))");
        assert!(!pair(&[&float(f64::NAN)[..], b"\x85"].concat(), &[&float(f64::NAN)[..], b"\x85"].concat()));
        // A class that is named twice is one object.
        assert!(pair(b"ctorch\nfloat32\n", b"ctorch\nfloat32\n"));
        assert!(!pair(b"ctorch\nfloat32\n", b"ctorch\nfloat16\n"));
        // `b'a'` in protocol 2, twice.
        let bytes = b"c_codecs\nencode\nX\x01\0\0\0aX\x06\0\0\0latin1\x86R";
        assert!(pair(bytes, bytes));
        assert!(!pair(b"]", b"]"));
    }

    #[test]
    fn keys_are_printed_as_python_prints_them() {
        // CPython 3.11's pickle (protocol 2) and printed form of `[1e300, b"raw\x00", b"it's", 2**70, ("it's", "\n",
        // "ü"), (), (2.5,), inf]`.
        let bytes = b"\x80\x02](G~7\xe4<\x88\x00u\x9cc_codecs\nencode\nq\x01X\x04\x00\x00\x00raw\x00X\x06\x00\x00\x00\
            latin1q\x03\x86Rh\x01X\x04\x00\x00\x00it'sh\x03\x86R\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00@X\x04\x00\x00\
            \x00it'sX\x01\x00\x00\x00\nX\x02\x00\x00\x00\xc3\xbc\x87)G@\x04\x00\x00\x00\x00\x00\x00\x85G\x7f\xf0\x00\
            \x00\x00\x00\x00\x00e.";
        let pickle = pickle_vm::load(bytes).expect("CPython wrote it");
        let keys = pickle.heap.items(pickle.root).unwrap_or_default();
        let spelled: Vec<String> = keys.iter().map(|key| repr(&pickle.heap, *key)).collect();
        assert_eq!(
            spelled,
            [
                "1e+300",
                r"b'raw\x00'",
                r#"b"it's""#,
                "1180591620717411303424",
                r#"("it's", '\n', 'ü')"#,
                "()",
                "(2.5,)",
                "inf"
            ]
        );
    }
}
