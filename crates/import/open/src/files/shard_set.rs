//! Sets of files that hold one checkpoint together: listed by an index, or numbered.

use std::path::PathBuf;

use byte_source::Location;
use output::{file_name, parent_folder};
use torch_import::WeightMapIndex;

use crate::files::folder_names::whole_of_index;
use crate::files::numbering::NumberedFileName;
use crate::files::sources::SourcesKind;
use crate::files::{CheckpointSources, DOCUMENT_MAX, Problem, Result, read_document};

/// Reads an index, and returns the files in its folder that it names.
pub(crate) fn read_indexed_set(index: &Location) -> Result<CheckpointSources> {
    let path = index.path();
    let name = file_name(path);
    let text = read_document(index, DOCUMENT_MAX)?;
    let map = WeightMapIndex::from_json(&name, &text).map_err(|error| error.in_file(parent_folder(path)))?;
    let files: Vec<PathBuf> = map.files().iter().map(|file| path.with_file_name(file)).collect();
    if let Some(missing) = files.iter().find(|file| !index.at(*file).is_file()) {
        return Err(Problem::NotInFolder { index: path.to_owned(), file: file_name(missing) }.into());
    }
    let whole = path.with_file_name(whole_of_index(&name).unwrap_or(name));
    let kind = SourcesKind::Indexed { path: path.to_owned(), index: map };
    Ok(CheckpointSources::new(files, &index.at(whole), kind))
}

/// Returns the set of numbered files, after checking that each number occurs exactly once.
pub(crate) fn check_numbered_set(members: Vec<(NumberedFileName, Location)>) -> Result<CheckpointSources> {
    let Some(one) = members.first().map(|(_, file)| file.clone()) else {
        return Err(Problem::NoPaths.into());
    };
    let mut members: Vec<(NumberedFileName, PathBuf)> =
        members.into_iter().map(|(numbering, file)| (numbering, file.path().to_owned())).collect();
    members.sort_by(|a, b| (a.0.number, &a.1).cmp(&(b.0.number, &b.1)));
    let Some((first, path)) = members.first().cloned() else { return Err(Problem::NoPaths.into()) };
    for pair in members.windows(2) {
        if let [(a, first), (b, second)] = pair
            && a.number == b.number
        {
            return Err(Problem::SameNumber {
                first: first.clone(),
                second: second.clone(),
                number: a.number,
            }
            .into());
        }
    }
    let last = members.last().map_or(0, |(numbering, _)| numbering.number);
    let start = first.first_number(members.iter().any(|(numbering, _)| numbering.number == 0));
    let end = first.files_in_set.map_or(last, |of| start.saturating_add(of).saturating_sub(1));
    for number in start..=end {
        if !members.iter().any(|(numbering, _)| numbering.number == number) {
            let path = path.with_file_name(first.name_of_shard(number));
            return Err(Problem::MissingShard { path, found: members.len() }.into());
        }
    }
    if let Some((_, extra)) = members.iter().find(|(numbering, _)| numbering.number > end) {
        return Err(Problem::ExtraShard { path: extra.clone(), of: first.files_in_set.unwrap_or(0) }.into());
    }
    let kind = if first.files_in_set.is_some() { SourcesKind::Numbered } else { SourcesKind::ModelParallel };
    let whole = one.at(path.with_file_name(first.single_file_name()));
    Ok(CheckpointSources::new(members.into_iter().map(|(_, path)| path).collect(), &whole, kind))
}
