//! Builder of safetensors files in memory.

/// Returns a safetensors file of these tensors: names without special characters, dtypes as the format names them, shapes and
/// bytes.
pub fn safetensors<'d, N: AsRef<str>, S: AsRef<[usize]>, B: AsRef<[u8]>>(
    tensors: impl IntoIterator<Item = (N, &'d str, S, B)>,
) -> Vec<u8> {
    let (mut rows, mut data) = (Vec::new(), Vec::new());
    for (name, dtype, shape, bytes) in tensors {
        let start = data.len();
        data.extend_from_slice(bytes.as_ref());
        let (name, end) = (name.as_ref(), data.len());
        let shape: Vec<String> = shape.as_ref().iter().map(usize::to_string).collect();
        let shape = shape.join(",");
        rows.push(format!(
            r#""{name}":{{"dtype":"{dtype}","shape":[{shape}],"data_offsets":[{start},{end}]}}"#
        ));
    }
    let header = format!("{{{}}}", rows.join(","));
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &data].concat()
}
