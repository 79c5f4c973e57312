//! Adds what was found to the report of a scan, within the limits of its lists.

use super::documents::DocumentKind;
use super::scanner::Scanner;
use super::unread::{is_foreign_model, unread_kind};
use super::{Finding, GlobalUse, PicklePlace, PlaceStep, ScannedPickle};
use crate::Risk;

/// Maximum number of listed globals of each risk, pickles, findings and missed parts of a file.
const LISTED_MAX: usize = 1 << 10;

/// Returns the name of a record of an archive; empty for other places.
fn record_name(record: &PicklePlace) -> &str {
    match record.0.last() {
        Some(PlaceStep::Record(name)) => name,
        _ => "",
    }
}

impl Scanner<'_, '_> {
    pub(super) fn add_finding(&mut self, kind: &'static str, text: impl FnOnce() -> String) {
        let has_room = self.scan.findings.len() < LISTED_MAX;
        match has_room.then(|| self.budget.spend_text(text)).flatten() {
            Some(text) => self.scan.findings.push(Finding { kind, text }),
            None if self.scan.findings.is_empty() => {
                let text = "the report has no room for what is irregular".to_owned();
                self.scan.findings.push(Finding { kind, text });
            }
            None => self.scan.omitted.findings = self.scan.omitted.findings.saturating_add(1),
        }
    }

    pub(super) fn add_missed(&mut self, text: impl FnOnce() -> String) {
        let has_room = self.scan.missed.len() < LISTED_MAX;
        match has_room.then(|| self.budget.spend_text(text)).flatten() {
            Some(text) => self.scan.missed.push(text),
            None => self.scan.omitted.missed = self.scan.omitted.missed.saturating_add(1),
        }
    }

    pub(super) fn add_note(&mut self, text: impl FnOnce() -> String) {
        let has_room = self.scan.notes.len() < LISTED_MAX;
        self.scan.notes.extend(has_room.then(|| self.budget.spend_text(text)).flatten());
    }

    /// Reports a record that no reader here recognises, unless it is a text in which nothing is found or of a kind of which no reader runs
    /// anything.
    pub(super) fn report_unread(&mut self, record: &PicklePlace, bytes: &[u8]) {
        let name = record_name(record);
        if is_foreign_model(name) {
            self.report_foreign(record);
        } else if let Some(kind) = unread_kind(name, bytes) {
            self.add_missed(|| format!("{record}: {kind}, which nothing here reads"));
        } else if let Some(kind) = DocumentKind::of_text(name, bytes) {
            self.scan_document(record, kind, bytes, 0, &|_| false);
        }
    }

    /// Reports a record that has the name of another program's model, whatever reader here accepts it.
    pub(super) fn report_foreign(&mut self, record: &PicklePlace) {
        if is_foreign_model(record_name(record)) {
            self.add_missed(|| format!("{record}: another program may run it, and nothing here reads it"));
        }
    }

    /// Adds a pickle to the report, with as many of its globals as the limit allows.
    pub(super) fn add_pickle(
        &mut self,
        place: &PicklePlace,
        offset: u64,
        uses: Vec<GlobalUse>,
        error: Option<pickle_vm::Error>,
    ) {
        let all = uses.len();
        let mut kept: Vec<GlobalUse> = Vec::new();
        let archive = place.0.split_last().map(|(_, archive)| PicklePlace(archive.to_vec()));
        let modules = archive.and_then(|archive| self.script_modules.get(&archive));
        let is_in_package = !self.packages.is_empty()
            && (0..=place.0.len())
                .filter_map(|len| place.0.get(..len))
                .any(|archive| self.packages.contains(&PicklePlace(archive.to_vec())));
        for mut used in uses {
            if is_in_package && used.risk == Risk::Known {
                used.global.distrust();
                used.risk = used.global.risk();
            }
            if let Some(modules) = modules
                && used.risk == Risk::Unknown
            {
                used.global.recognise_script_class(modules);
                used.risk = used.global.risk();
                if used.risk == Risk::Known {
                    used.calls.clear();
                    used.unlisted_calls = 0;
                }
            }
            let [known, unknown, unreviewed, dangerous] = &mut self.listed_by_risk;
            let listed = match used.risk {
                Risk::Known => known,
                Risk::Unknown => unknown,
                Risk::Unreviewed => unreviewed,
                Risk::Dangerous => dangerous,
            };
            if *listed < LISTED_MAX {
                *listed = listed.saturating_add(1);
                kept.push(used);
            }
        }
        let omitted = &mut self.scan.omitted;
        omitted.globals = omitted.globals.saturating_add(all.saturating_sub(kept.len()));
        if kept.is_empty() && error.is_none() {
            return;
        }
        if kept.is_empty() && self.scan.pickles.len() >= LISTED_MAX {
            omitted.pickles = omitted.pickles.saturating_add(1);
            return;
        }
        self.scan.pickles.push(ScannedPickle { place: place.clone(), offset, uses: kept, error });
    }
}
