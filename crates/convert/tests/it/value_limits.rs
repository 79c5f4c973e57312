//! Values that are too large are not shown, and values up to the limits are shown whole.

use std::fmt::Write;

use carton_format::Carton;
use convert::{CartonOptions, ConvertOptions, convert};
use inspect::{InspectOptions, inspect};
use open::ValueRow;
use serde_json::{Value, json};

use crate::checkpoints::{TENSOR, torch_file};

fn pickle(value: &[u8]) -> Vec<u8> {
    [b"\x80\x03}(X\x01\0\0\0v", value, b"u."].concat()
}

fn shown(value: &[u8]) -> ValueRow {
    let file = tempfile::NamedTempFile::new().expect("the temporary folder is writable");
    std::fs::write(file.path(), pickle(value)).expect("the temporary folder is writable");
    let mut options = InspectOptions::new(file.path());
    options.values = true;
    let report = inspect(&options, &()).expect("it is a checkpoint");
    let rows: Vec<ValueRow> = report.values.iter().flat_map(open::ValueRows::rows).collect();
    let [row] = <[ValueRow; 1]>::try_from(rows).expect("one value");
    row
}

#[test]
fn a_path_has_at_most_1024_parts() {
    let path =
        |parts: usize| shown(["cpathlib\nPosixPath\n(", &"Va\n".repeat(parts), "tR"].concat().as_bytes());
    let expected = vec!["a"; 1024].join("/");
    assert_eq!(path(1024).value, expected);
    assert!(path(1025).value.get("$call").is_some(), "its arguments are shown");
}

#[test]
fn bytes_of_a_scalar_are_shown_up_to_64_kibibytes() {
    let scalar = |len: usize, bytes: Vec<u8>| {
        let dtype = format!("cnumpy\ndtype\n(VS{len}\nI00\nI01\ntR(I3\nV|\nNNNI{len}\nI1\nI0\ntb");
        let head = format!("cnumpy.core.multiarray\nscalar\n({dtype}");
        shown(&[head.as_bytes(), &bytes, b"tR"].concat())
    };
    let sized = |opcode: u8, bytes: &[u8]| {
        let len = u32::try_from(bytes.len()).expect("short");
        [&[opcode], &len.to_le_bytes()[..], bytes].concat()
    };
    let third = |len: usize| sized(b'B', &vec![0xff; len]);
    // Protocol 2 writes bytes as the text whose Latin-1 encoding they are: these take two bytes each there.
    let second = |len: usize| {
        [b"c_codecs\nencode\n(", &sized(b'X', "\u{ff}".repeat(len).as_bytes())[..], b"Vlatin1\ntR"].concat()
    };
    for bytes in [&third as &dyn Fn(usize) -> Vec<u8>, &second] {
        let most = scalar(65_536, bytes(65_536));
        assert_eq!(most.type_name, "numpy.bytes_");
        assert_eq!(most.value, json!({ "$bytes": "ff".repeat(65_536) }));
        let more = scalar(65_537, bytes(65_537));
        assert_eq!(more.type_name, "numpy.core.multiarray.scalar");
    }
}

#[test]
fn a_number_of_hundreds_of_digits_is_shown_whole() {
    let digits = format!("1{}", "0".repeat(600));
    assert_eq!(shown(format!("L{digits}L\n").as_bytes()).value, json!({ "$int": digits }));
}

/// A call shows at most 10,000 objects. A dict that has no chance is left out at once, and one that has some uses them up.
#[test]
fn a_dict_that_nearly_fits_leaves_nothing_for_what_follows() {
    let after = |pairs: usize| {
        let mut dict = String::from("(d(");
        for key in 0..pairs {
            write!(dict, "I{key}\nN").expect("a String takes everything");
        }
        let row = shown(["cnumpy\nrecord\n(", &dict, "uI7\ntR"].concat().as_bytes());
        let args = row.value.get("args").and_then(Value::as_array).expect("two arguments").clone();
        assert_eq!(args.len(), 2);
        args
    };
    let left_out = json!({ "$more": "dict" });
    // The call and the dict are objects too.
    assert_eq!(after(9_998), [left_out.clone(), json!({ "$more": "int" })]);
    assert_eq!(after(9_999), [left_out, json!(7)]);
}

#[test]
fn values_in_a_carton_have_at_most_16_mebibytes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (input, output) = (folder.path().join("x.pth"), folder.path().join("x.carton"));
    // One value with 140 names, each of which has 128 KiB of hexadecimal digits.
    let bytes = [b"B\xff\xff\0\0".as_slice(), &vec![7; 0xffff], b"q\x05"].concat();
    let mut pickle = [b"\x80\x03}(X\x01\0\0\0w".as_slice(), TENSOR.as_bytes()].concat();
    for name in 0..140 {
        pickle.extend(format!("V{name:03}\n").as_bytes());
        pickle.extend(if name == 0 { bytes.as_slice() } else { b"h\x05" });
    }
    pickle.extend(b"u.");
    std::fs::write(&input, torch_file(&pickle)).expect("a temporary folder");
    let mut options = ConvertOptions::new(&input);
    options.target = CartonOptions::default().into();
    options.output = Some(output.clone());
    convert(&options, &()).expect("it can be converted");
    let carton = Carton::open(&output).expect("a carton");
    let mut text = String::new();
    let mut entry = carton.read("misc/checkpoint.json").expect("values are kept");
    std::io::Read::read_to_string(&mut entry, &mut text).expect("it is intact");
    assert!(text.len() < 17 << 20, "{}", text.len());
    let kept: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(kept["values"].as_array().map(Vec::len), Some(127));
    assert_eq!(kept["values_left_out"], 13);
}
