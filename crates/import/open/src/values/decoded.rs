//! Values that pickles create by calls of well-known classes: NumPy scalars, dates and times, paths, sizes, devices.
//!
//! Facts: `__reduce__` of these classes; `datetime_getstate` in CPython's `Modules/_datetimemodule.c`; `scalar` in NumPy's
//! `multiarraymodule.c`.

use std::borrow::Cow;

use byte_source::hex;
use pickle_vm::{Heap, Instance, Object, ObjectId};
use serde_json::{Value as Json, json};
use tensor::Dtype;
use torch_import::EncodedBytes;

/// A value that was created by a call.
pub(crate) struct DecodedValue {
    /// Name of the type in Python, if it is not the called class.
    pub(crate) type_name: Option<&'static str>,
    pub(crate) value: Json,
}

/// Longest text or byte string that is decoded.
const DECODED_BYTES_MAX: usize = 64 << 10;
/// Largest number of parts of a path, or of dimensions of a size.
const PARTS_MAX: usize = 1 << 10;

/// Decodes the value that a recorded call creates; `None` if the pickle changes the value afterwards, or the class is not
/// one of those that this file knows.
pub(crate) fn decode_call(heap: &Heap<'_>, id: ObjectId, instance: &Instance) -> Option<DecodedValue> {
    if !(instance.state().is_empty() && instance.items().is_empty() && instance.appends().is_empty()) {
        return decode_dtype(heap, id).map(plain);
    }
    let args = heap.items(instance.args)?;
    let (module, name) = heap.global(instance.callable)?;
    match (module, name) {
        ("numpy.core.multiarray" | "numpy._core.multiarray", "scalar") => decode_numpy_scalar(heap, args),
        ("numpy", "dtype") => decode_dtype(heap, id).map(plain),
        ("datetime", _) => decode_time(heap, name, args).map(|text| plain(text.into())),
        ("pathlib" | "pathlib._local", _) => decode_path(heap, name, args).map(|text| plain(text.into())),
        ("torch", "Size") => {
            let sizes = heap.items(*args.first()?)?.iter().take(PARTS_MAX.saturating_add(1));
            let sizes: Option<Vec<i64>> = sizes.map(|size| heap.int(*size)).collect();
            sizes.filter(|sizes| sizes.len() <= PARTS_MAX).map(|sizes| plain(json!(sizes)))
        }
        ("torch", "device") => {
            let kind = short_text(heap, *args.first()?)?;
            Some(plain(match args.get(1).and_then(|index| heap.int(*index)) {
                Some(index) => format!("{kind}:{index}").into(),
                None => kind.into(),
            }))
        }
        ("torch.serialization", "_get_layout") => {
            let text = short_text(heap, *args.first()?)?;
            Some(DecodedValue { type_name: Some("torch.layout"), value: text.into() })
        }
        ("decimal", "Decimal") => Some(plain(short_text(heap, *args.first()?)?.into())),
        ("builtins" | "__builtin__", "complex") => match args {
            [re, im] => Some(plain(complex(heap.float(*re)?, heap.float(*im)?))),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the name of a global that is a value of its own, a dtype of PyTorch.
pub(crate) fn decode_global(module: &str, name: &str) -> Option<DecodedValue> {
    let is_dtype = module == "torch" && Dtype::from_name(name).is_some();
    is_dtype.then(|| DecodedValue { type_name: Some("torch.dtype"), value: format!("torch.{name}").into() })
}

fn plain(value: Json) -> DecodedValue {
    DecodedValue { type_name: None, value }
}

/// Returns a float as JSON; a number that is not finite as an object.
pub fn float(number: f64) -> Json {
    match serde_json::Number::from_f64(number) {
        Some(number) => Json::Number(number),
        None => json!({ "$float": number.to_string().to_lowercase() }),
    }
}

/// Returns a complex number as JSON: an object with its two parts.
pub fn complex(re: f64, im: f64) -> Json {
    json!({ "$complex": [float(re), float(im)] })
}

fn short_text(heap: &Heap<'_>, id: ObjectId) -> Option<String> {
    let text = heap.text(id)?;
    (text.len() <= DECODED_BYTES_MAX).then(|| text.into_owned())
}

/// Returns the bytes of a byte string in any protocol's encoding.
fn short_bytes<'h>(heap: &'h Heap<'_>, id: ObjectId) -> Option<Cow<'h, [u8]>> {
    if let Some(bytes) = heap.bytes(id) {
        return (bytes.len() <= DECODED_BYTES_MAX).then_some(Cow::Borrowed(bytes));
    }
    let encoded = EncodedBytes::find(heap, id)?;
    if encoded.encoded_len() > DECODED_BYTES_MAX.saturating_mul(2) {
        return None;
    }
    Some(Cow::Owned(encoded.decode()?.into_owned()))
}

/// Kind, size in bytes and byte order of a NumPy dtype.
struct NumpyDtype {
    kind: char,
    size: usize,
    is_big_endian: bool,
}

impl NumpyDtype {
    /// Reads `numpy.dtype('f8', False, True)` and the byte order in its state.
    fn read(heap: &Heap<'_>, id: ObjectId) -> Option<Self> {
        let instance = heap.instance(id)?;
        let ("numpy", "dtype") = heap.global(instance.callable)? else { return None };
        let code = short_text(heap, *heap.items(instance.args)?.first()?)?;
        let mut characters = code.chars();
        let kind = characters.next()?;
        let size = characters.as_str().parse().ok()?;
        let state = instance.state().first().and_then(|state| heap.items(*state));
        let order = state.and_then(|state| heap.text(*state.get(1)?));
        Some(Self { kind, size, is_big_endian: order.as_deref() == Some(">") })
    }

    fn name(&self) -> Option<&'static str> {
        Some(match (self.kind, self.size) {
            ('f', 2) => "numpy.float16",
            ('f', 4) => "numpy.float32",
            ('f', 8) => "numpy.float64",
            ('i', 1) => "numpy.int8",
            ('i', 2) => "numpy.int16",
            ('i', 4) => "numpy.int32",
            ('i', 8) => "numpy.int64",
            ('u', 1) => "numpy.uint8",
            ('u', 2) => "numpy.uint16",
            ('u', 4) => "numpy.uint32",
            ('u', 8) => "numpy.uint64",
            ('b', 1) => "numpy.bool",
            ('c', 8) => "numpy.complex64",
            ('c', 16) => "numpy.complex128",
            ('U', _) => "numpy.str_",
            ('S', _) => "numpy.bytes_",
            ('M', 8) => "numpy.datetime64",
            ('m', 8) => "numpy.timedelta64",
            _ => return None,
        })
    }
}

/// Decodes a NumPy dtype to its name.
fn decode_dtype(heap: &Heap<'_>, id: ObjectId) -> Option<Json> {
    let dtype = NumpyDtype::read(heap, id)?;
    let name = dtype.name()?.trim_start_matches("numpy.").trim_end_matches('_');
    let order = if dtype.is_big_endian { ">" } else { "" };
    Some(match dtype.kind {
        'U' | 'S' => format!("{order}{}{}", dtype.kind, dtype.size).into(),
        'M' | 'm' => return None,
        _ => format!("{order}{name}").into(),
    })
}

/// Decodes `numpy.core.multiarray.scalar(dtype, bytes)`.
fn decode_numpy_scalar(heap: &Heap<'_>, args: &[ObjectId]) -> Option<DecodedValue> {
    let &[dtype, bytes] = args else { return None };
    let dtype_id = dtype;
    let dtype = NumpyDtype::read(heap, dtype)?;
    let mut bytes = short_bytes(heap, bytes)?.into_owned();
    if dtype.is_big_endian {
        let component = match dtype.kind {
            'c' => dtype.size / 2,
            'U' => 4,
            'S' => 1,
            _ => dtype.size,
        };
        bytes.chunks_mut(component.max(1)).for_each(<[u8]>::reverse);
    }
    let value = match (dtype.kind, bytes.as_slice()) {
        ('f' | 'c', _) => {
            let width = if dtype.kind == 'c' { dtype.size / 2 } else { dtype.size };
            let parts: Option<Vec<f64>> = bytes.chunks(width.max(1)).map(float_from_bytes).collect();
            match (dtype.kind, parts?.as_slice()) {
                ('f', &[number]) => float(number),
                ('c', &[re, im]) => complex(re, im),
                _ => return None,
            }
        }
        ('b', &[byte]) => json!(byte != 0),
        ('i', bytes) => json!(signed_from_bytes(bytes)?),
        ('u', bytes) => json!(unsigned_from_bytes(bytes)?),
        ('U', bytes) => {
            let code_points =
                bytes.as_chunks().0.iter().map(|code| char::from_u32(u32::from_le_bytes(*code)));
            code_points.collect::<Option<String>>()?.trim_end_matches('\0').into()
        }
        ('S', bytes) => json!({ "$bytes": hex(bytes) }),
        ('M' | 'm', bytes) => {
            decode_time_scalar(heap, dtype_id, dtype.kind, signed_from_bytes(bytes)?)?.into()
        }
        _ => return None,
    };
    Some(DecodedValue { type_name: dtype.name(), value })
}

fn float_from_bytes(bytes: &[u8]) -> Option<f64> {
    Some(match *bytes {
        [a, b] => super::array_text::half(u16::from_le_bytes([a, b])),
        // Through its shortest digits, so that 0.1 stays 0.1.
        [a, b, c, d] => f32::from_le_bytes([a, b, c, d]).to_string().parse().ok()?,
        _ => f64::from_le_bytes(bytes.try_into().ok()?),
    })
}

fn signed_from_bytes(bytes: &[u8]) -> Option<i64> {
    Some(match bytes.len() {
        1 => i8::from_le_bytes(bytes.try_into().ok()?).into(),
        2 => i16::from_le_bytes(bytes.try_into().ok()?).into(),
        4 => i32::from_le_bytes(bytes.try_into().ok()?).into(),
        _ => i64::from_le_bytes(bytes.try_into().ok()?),
    })
}

fn unsigned_from_bytes(bytes: &[u8]) -> Option<u64> {
    let mut wide = [0; 8];
    wide.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(u64::from_le_bytes(wide))
}

/// Decodes a datetime64 or timedelta64, whose unit is in the state of its dtype.
fn decode_time_scalar(heap: &Heap<'_>, dtype: ObjectId, kind: char, number: i64) -> Option<String> {
    let state = heap.items(*heap.instance(dtype)?.state().first()?)?;
    let metadata = heap.items(*state.get(8)?)?;
    let unit = heap.items(*metadata.get(1)?)?;
    let name = String::from_utf8(short_bytes(heap, *unit.first()?)?.into_owned()).ok()?;
    if number == i64::MIN {
        return Some("NaT".to_owned());
    }
    let count = heap.int(*unit.get(1)?)?;
    let number = number.checked_mul(count)?;
    if kind == 'm' {
        return Some(format!("{number} {name}"));
    }
    let units_per_day = match name.as_str() {
        "D" => 1_i64,
        "h" => 24,
        "m" => 1440,
        "s" => 86_400,
        "ms" => 86_400_000,
        "us" => 86_400_000_000,
        "ns" => 86_400_000_000_000,
        _ => return Some(format!("{number} {name}")),
    };
    let (year, month, day) = civil_date(number.checked_div_euclid(units_per_day)?)?;
    let date = format!("{year:04}-{month:02}-{day:02}");
    let rest = number.checked_rem_euclid(units_per_day)?;
    if units_per_day < 86_400 {
        let hours = rest.checked_mul(24)?.checked_div(units_per_day)?;
        let minutes = rest.checked_mul(1440)?.checked_div(units_per_day)?.checked_rem(60)?;
        return Some(match name.as_str() {
            "D" => date,
            "h" => format!("{date}T{hours:02}"),
            _ => format!("{date}T{hours:02}:{minutes:02}"),
        });
    }
    let per_second = units_per_day.checked_div(86_400)?;
    let (seconds, fraction) = (rest.checked_div(per_second)?, rest.checked_rem(per_second)?);
    let digits = usize::try_from(per_second.checked_ilog10()?).ok()?;
    let fraction = if digits == 0 { String::new() } else { format!(".{fraction:0digits$}") };
    Some(format!("{date}T{}{fraction}", clock(seconds)))
}

/// Returns `HH:MM:SS` for seconds since midnight.
fn clock(seconds: i64) -> String {
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// Returns year, month and day of a number of days since 1970-01-01. Source: Howard Hinnant, `civil_from_days`.
fn civil_date(days: i64) -> Option<(i64, i64, i64)> {
    let days = days.checked_add(719_468)?;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era
        .checked_sub(day_of_era / 1460)?
        .checked_add(day_of_era / 36_524)?
        .checked_sub(day_of_era / 146_096)?)
        / 365;
    let leap_days = (year_of_era / 4).checked_sub(year_of_era / 100)?;
    let day_of_year = day_of_era.checked_sub(year_of_era.checked_mul(365)?.checked_add(leap_days)?)?;
    let shifted_month = day_of_year.checked_mul(5)?.checked_add(2)? / 153;
    let month_start = shifted_month.checked_mul(153)?.checked_add(2)? / 5;
    let day = day_of_year.checked_sub(month_start)?.checked_add(1)?;
    let month =
        if shifted_month < 10 { shifted_month.checked_add(3)? } else { shifted_month.checked_sub(9)? };
    let year = year_of_era.checked_add(era.checked_mul(400)?)?;
    Some((if month <= 2 { year.checked_add(1)? } else { year }, month, day))
}

/// Decodes the objects of the module `datetime` to the texts that `str` returns, with ISO's `T` in a datetime.
fn decode_time(heap: &Heap<'_>, class: &str, args: &[ObjectId]) -> Option<String> {
    let zone = || args.get(1).map_or(Some(String::new()), |zone| zone_offset(heap, *zone));
    match class {
        "date" | "datetime" | "time" => {
            let bytes = short_bytes(heap, *args.first()?)?;
            match (class, bytes.as_ref()) {
                ("date", &[high, low, month, day]) => Some(date_text(high, low, month, day)),
                ("datetime", &[high, low, month, day, hour, minute, second, a, b, c]) => {
                    let (date, time) = (
                        date_text(high, low, month & 0x7f, day),
                        time_text([hour, minute, second], [a, b, c]),
                    );
                    Some(format!("{date}T{time}{}", zone()?))
                }
                ("time", &[hour, minute, second, a, b, c]) => {
                    Some(format!("{}{}", time_text([hour & 0x7f, minute, second], [a, b, c]), zone()?))
                }
                _ => None,
            }
        }
        "timedelta" => {
            let (days, seconds, micros) = timedelta(heap, args)?;
            let days = match days {
                0 => String::new(),
                1 | -1 => format!("{days} day, "),
                days => format!("{days} days, "),
            };
            let fraction = if micros == 0 { String::new() } else { format!(".{micros:06}") };
            Some(format!("{days}{}:{:02}:{:02}{fraction}", seconds / 3600, seconds / 60 % 60, seconds % 60))
        }
        "timezone" => {
            let (days, seconds, _) = timedelta_object(heap, *args.first()?)?;
            let offset = offset_text(days, seconds)?;
            Some(if offset == "+00:00" { "UTC".to_owned() } else { format!("UTC{offset}") })
        }
        _ => None,
    }
}

fn timedelta(heap: &Heap<'_>, args: &[ObjectId]) -> Option<(i64, i64, i64)> {
    let &[days, seconds, micros] = args else { return None };
    let (days, seconds, micros) = (heap.int(days)?, heap.int(seconds)?, heap.int(micros)?);
    ((0..86_400).contains(&seconds) && (0..1_000_000).contains(&micros)).then_some((days, seconds, micros))
}

fn timedelta_object(heap: &Heap<'_>, id: ObjectId) -> Option<(i64, i64, i64)> {
    let instance = heap.instance(id)?;
    let ("datetime", "timedelta") = heap.global(instance.callable)? else { return None };
    timedelta(heap, heap.items(instance.args)?)
}

/// Returns the offset of a `datetime.timezone` as `+01:00`.
fn zone_offset(heap: &Heap<'_>, id: ObjectId) -> Option<String> {
    let instance = heap.instance(id)?;
    let ("datetime", "timezone") = heap.global(instance.callable)? else { return None };
    let (days, seconds, _) = timedelta_object(heap, *heap.items(instance.args)?.first()?)?;
    offset_text(days, seconds)
}

fn offset_text(days: i64, seconds: i64) -> Option<String> {
    let total = days.checked_mul(86_400)?.checked_add(seconds)?;
    let (sign, total) = if total < 0 { ('-', total.checked_neg()?) } else { ('+', total) };
    Some(format!("{sign}{:02}:{:02}", total / 3600, total / 60 % 60))
}

fn date_text(high: u8, low: u8, month: u8, day: u8) -> String {
    format!("{:04}-{month:02}-{day:02}", u16::from_be_bytes([high, low]))
}

fn time_text([hour, minute, second]: [u8; 3], [a, b, c]: [u8; 3]) -> String {
    let micros = u32::from_be_bytes([0, a, b, c]);
    let fraction = if micros == 0 { String::new() } else { format!(".{micros:06}") };
    format!("{hour:02}:{minute:02}:{second:02}{fraction}")
}

/// Joins the parts of a path.
fn decode_path(heap: &Heap<'_>, class: &str, args: &[ObjectId]) -> Option<String> {
    if args.len() > PARTS_MAX {
        return None;
    }
    let separator = if class.contains("Windows") { '\\' } else { '/' };
    let mut path = String::new();
    for part in args {
        let (Object::Text(_) | Object::String(_)) = heap.get(*part) else { return None };
        let part = short_text(heap, *part)?;
        if !path.is_empty() && !path.ends_with(separator) {
            path.push(separator);
        }
        path.push_str(&part);
        if path.len() > DECODED_BYTES_MAX {
            return None;
        }
    }
    Some(if path.is_empty() { ".".to_owned() } else { path })
}
