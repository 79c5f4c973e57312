//! Programs of arbitrary opcodes with suitable arguments: they decode to the same instructions, and execute or fail.

#![no_main]

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::{Corpus, fuzz_target};
use pickle_vm::{ArgKind, Opcode, Reader};

fuzz_target!(|bytes: &[u8]| -> Corpus {
    let Ok((opcodes, program)) = program(&mut Unstructured::new(bytes)) else { return Corpus::Reject };
    let mut reader = Reader::new(&program);
    for (expected, instruction) in opcodes.iter().zip(reader.by_ref()) {
        match instruction {
            Ok(instruction) => assert_eq!(instruction.opcode, *expected),
            // Texts are arbitrary bytes, so some are not valid literals.
            Err(error) => assert_eq!(error.opcode, Some(*expected)),
        }
    }
    torch2carton_fuzz::pickles::check(&program);
    Corpus::Keep
});

/// Opcodes, and their bytes with arguments; STOP comes last.
fn program(u: &mut Unstructured<'_>) -> Result<(Vec<Opcode>, Vec<u8>)> {
    let mut opcodes = Vec::new();
    let mut program = Vec::new();
    while !u.is_empty() {
        let opcode = *u.choose(Opcode::ALL)?;
        if opcode == Opcode::Stop {
            continue;
        }
        opcodes.push(opcode);
        program.push(opcode.code());
        argument(u, opcode.info().arg, &mut program)?;
    }
    opcodes.push(Opcode::Stop);
    program.push(Opcode::Stop.code());
    Ok((opcodes, program))
}

fn argument(u: &mut Unstructured<'_>, kind: ArgKind, out: &mut Vec<u8>) -> Result<()> {
    // Small, so that memo keys meet and text stays short.
    let small: u8 = u.int_in_range(0..=5)?;
    let counted = |width: usize, u: &mut Unstructured<'_>, out: &mut Vec<u8>| -> Result<()> {
        out.push(small);
        out.extend_from_slice(&[0; 8][..width - 1]);
        out.extend_from_slice(u.bytes(small.into())?);
        Ok(())
    };
    let line = |u: &mut Unstructured<'_>, out: &mut Vec<u8>| -> Result<()> {
        out.extend(u.bytes(small.into())?.iter().filter(|&&byte| byte != b'\n'));
        out.push(b'\n');
        Ok(())
    };
    match kind {
        ArgKind::None => {}
        ArgKind::Uint1 => out.push(small),
        ArgKind::Uint2 => out.extend_from_slice(&[small, 0]),
        ArgKind::Int4 | ArgKind::Uint4 => out.extend_from_slice(&[small, 0, 0, 0]),
        ArgKind::Uint8 | ArgKind::Float8 => out.extend_from_slice(u.bytes(8)?),
        ArgKind::String1 | ArgKind::Bytes1 | ArgKind::UnicodeString1 | ArgKind::Long1 => counted(1, u, out)?,
        ArgKind::String4 | ArgKind::Bytes4 | ArgKind::UnicodeString4 | ArgKind::Long4 => counted(4, u, out)?,
        ArgKind::Bytes8 | ArgKind::ByteArray8 | ArgKind::UnicodeString8 => counted(8, u, out)?,
        ArgKind::StringNlNoEscape | ArgKind::UnicodeStringNl => line(u, out)?,
        ArgKind::StringNlNoEscapePair => {
            line(u, out)?;
            line(u, out)?;
        }
        ArgKind::StringNl => {
            out.push(b'\'');
            out.extend(u.bytes(small.into())?.iter().filter(|&&byte| byte != b'\n'));
            out.extend_from_slice(b"'\n");
        }
        ArgKind::DecimalNlShort => out.extend_from_slice(&[b'0' + small, b'\n']),
        ArgKind::DecimalNlLong => out.extend_from_slice(&[b'0' + small, b'L', b'\n']),
        ArgKind::FloatNl => out.extend_from_slice(&[b'1', b'e', b'0' + small, b'\n']),
    }
    Ok(())
}
