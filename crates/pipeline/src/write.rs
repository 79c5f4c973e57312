//! The back end that writes an output, and the report about what it wrote.

use std::time::Instant;

use sources::Companion;
use torch_import::LeftOut;

use crate::back::{Job, carton, safetensors, torch, triton};
use crate::destination::Destination;
use crate::{ConvertReport, Made, Note, OutputKind, Result, Totals};

/// Version of the members of [`ConvertReport`].
const SCHEMA_VERSION: u32 = 1;

/// Has the back end write its output, and reports what was made since `start`. `omitted` is what the files hold besides.
pub(crate) fn write(
    job: Job<'_>,
    (destination, start): (&Destination, Instant),
    misc: &[Companion],
    omitted: LeftOut,
    mut notes: Vec<Note>,
) -> Result<ConvertReport> {
    let Job { options, sources, target, tensors, casts, observer, .. } = job;
    let is_folder = destination.is_folder;
    let (nbytes, made) = match destination.kind {
        OutputKind::Carton => {
            let made = carton::write(job, misc, &mut notes)?;
            (made.nbytes, Made::Carton(made.report))
        }
        OutputKind::Safetensors => {
            let made = safetensors::write(&job, is_folder, &mut notes)?;
            (made.nbytes, Made::Safetensors(made.report))
        }
        OutputKind::Torch => {
            let made = torch::write(&job, is_folder, &mut notes)?;
            (made.nbytes, Made::Torch(made.report))
        }
        OutputKind::Triton => {
            let made = triton::write(&job, &mut notes)?;
            (made.nbytes, Made::Triton(made.report))
        }
    };
    for note in casts.notes() {
        observer.note(&note);
        notes.push(note);
    }
    Ok(ConvertReport {
        schema_version: SCHEMA_VERSION,
        file: match options.inputs.as_slice() {
            [input] => input.display().to_string(),
            _ => sources.root().display().to_string(),
        },
        output: target.display().to_string(),
        to: destination.kind,
        written: !options.dry_run,
        nbytes,
        made,
        tensors: tensors.len(),
        totals: Totals::from_tensors(tensors.iter().map(|(_, tensor)| tensor)),
        casts: casts.reports(),
        left_out_count: omitted.count(),
        left_out: omitted.listed,
        notes,
        seconds: start.elapsed().as_secs_f64(),
    })
}
