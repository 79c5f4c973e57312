//! An archive of `torch.export` with arbitrary records and entries of its documents: an error, or tensors inside their storages.

#![no_main]

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::{Corpus, fuzz_target};
use torch2carton_fuzz::{archive, checkpoints};

const RECORDS: &[&str] = &[
    "m/data/weights/weight_0",
    "m/data/weights/weight_1",
    "m/data/constants/tensor_0",
    "m/data/constants/custom_obj_0",
    "m/data/weights/model.pt",
    "m/data/weights/a_weights_config.json",
    "m/data/aotinductor/model/weights_config.json",
    "m/models/model.json",
    "m/byteorder",
    "serialized_exported_program.json",
    "serialized_state_dict.pt",
    "m/data.pkl",
];

fuzz_target!(|bytes: &[u8]| -> Corpus {
    let Ok(bytes) = archive(&mut Unstructured::new(bytes)) else { return Corpus::Reject };
    checkpoints::check(&bytes);
    Corpus::Keep
});

fn archive(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut entries = Vec::new();
    for number in 0..u.int_in_range(0..=4)? {
        let name = if u.ratio(1, 8)? { 0 } else { number };
        entries.push(format!("\"w{name}\": {}", payload(u)?));
    }
    let config = format!("{{\"config\": {{{}}}}}", entries.join(", "));
    let pickle = u.int_in_range(0..=64)?;
    let pickle = u.bytes(pickle)?;
    let saved = archive::zip(&[("archive/data.pkl", pickle), ("archive/data/0", &[0; 16])]);
    let mut records: Vec<(&str, &[u8])> = vec![
        ("m/archive_format", b"pt2"),
        ("m/data/weights/model_weights_config.json", config.as_bytes()),
        ("m/data/constants/model_constants_config.json", config.as_bytes()),
        ("m/data/weights/weight_2", &saved),
    ];
    for _ in 0..u.int_in_range(0..=4)? {
        let name = *u.choose(RECORDS)?;
        if records.iter().any(|(known, _)| *known == name) {
            continue;
        }
        let len = u.int_in_range(0..=40)?;
        records.push((name, if u.ratio(1, 4)? { &saved } else { u.bytes(len)? }));
    }
    Ok(archive::zip(&records))
}

fn payload(u: &mut Unstructured<'_>) -> Result<String> {
    let mut sizes = || -> Result<String> {
        let mut texts = Vec::new();
        for _ in 0..u.int_in_range(0..=2)? {
            texts.push(match u.int_in_range(0..=9)? {
                0 => "{\"as_expr\": {\"expr_str\": \"s0\"}}".to_owned(),
                1 => format!("{{\"as_int\": {}}}", u.arbitrary::<i64>()?),
                _ => format!("{{\"as_int\": {}}}", u.int_in_range(0..=5)?),
            });
        }
        Ok(texts.join(", "))
    };
    let (shape, stride) = (sizes()?, sizes()?);
    let (record, dtype) = (u.int_in_range(0..=3)?, u.int_in_range(0..=36)?);
    let offset = u.int_in_range(-1..=4)?;
    let (is_pickled, kind) = (u.ratio(1, 4)?, *u.choose(&["weight", "tensor", "custom_obj", "../weights/weight"])?);
    Ok(format!(
        "{{\"path_name\": \"{kind}_{record}\", \"use_pickle\": {is_pickled}, \"tensor_meta\": {{\"dtype\": {dtype}, \"sizes\": [{shape}], \
         \"strides\": [{stride}], \"storage_offset\": {{\"as_int\": {offset}}}, \"layout\": 7}}}}"
    ))
}
