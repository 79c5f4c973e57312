//! First line of a file's scan: the finding that matters most.

use inspect::{GlobalUse, Risk, ScannedFile, Verdict, globals_of_risk};
use torch_import::{Global, GlobalCall};

const NAMES_MAX: usize = 3;

/// Parts of the names of globals that run a program or a text as code. A call of one of them says more than a lookup.
const RUNNERS: &[&str] = &[
    "os",
    "posix",
    "nt",
    "subprocess",
    "pty",
    "commands",
    "runpy",
    "socket",
    "ctypes",
    "shutil",
    "exec",
    "eval",
    "execfile",
    "system",
    "popen",
    "Popen",
];

/// Returns what matters most about a file that is not clean.
pub(super) fn headline(verdict: Verdict, scan: &ScannedFile) -> String {
    match verdict {
        Verdict::Unsafe => unsafe_headline(scan),
        Verdict::Unknown => {
            format!("names {}, which nobody has judged", names_of_risk(scan, Risk::Unknown))
        }
        _ => match unread_rows(scan).first() {
            Some(reason) => format!("not scanned to the end: {reason}"),
            None => "not scanned to the end".to_owned(),
        },
    }
}

fn unsafe_headline(scan: &ScannedFile) -> String {
    let dangerous: Vec<&GlobalUse> =
        scan.uses().map(|(_, found)| found).filter(|found| found.risk == Risk::Dangerous).collect();
    if let Some((found, call)) = worst_call(&dangerous) {
        return format!("{} {}", verb(call), call_text(&found.global, call));
    }
    if let Some(found) = dangerous.first() {
        let name = found.global.familiar_name().unwrap_or_else(|| found.global.to_string());
        let when = if found.after_error { " after the error that ends the pickle" } else { "" };
        return format!("names {name}{when}");
    }
    match scan.findings.first() {
        Some(finding) => finding.text.clone(),
        None => format!("uses {} in a way that nobody has judged", names_of_risk(scan, Risk::Unreviewed)),
    }
}

fn verb(call: &GlobalCall) -> &'static str {
    match call.opcode {
        // A line of TorchScript code.
        "code" => "has the code",
        "BUILD" => "sets the state of",
        _ => "calls",
    }
}

/// Returns the call that says most: of a function that runs programs or code, if there is one, and with what surrounds it.
fn worst_call<'s>(dangerous: &[&'s GlobalUse]) -> Option<(&'s GlobalUse, &'s GlobalCall)> {
    let calls = || dangerous.iter().flat_map(|found| found.calls.iter().map(move |call| (*found, call)));
    let rank =
        |(found, call): &(&GlobalUse, &GlobalCall)| match (call.has_arguments, is_runner(&found.global)) {
            (true, true) => 0,
            (true, false) => 1,
            (false, _) => 2,
        };
    let first = calls().min_by_key(rank)?;
    // `getattr(__import__('os'), 'system')` is a part of the call of what it returns.
    let around = calls().filter(|(_, call)| call.text.contains(&first.1.text));
    Some(around.fold(first, |best, next| if next.1.text.len() > best.1.text.len() { next } else { best }))
}

fn is_runner(global: &Global) -> bool {
    [&global.module, &global.name].iter().any(|name| name.split('.').any(|part| RUNNERS.contains(&part)))
}

/// Returns the text of a call, with the familiar name of an alias: `os.system('ls')` for `posix.system('ls')`.
pub(super) fn call_text(global: &Global, call: &GlobalCall) -> String {
    let name = global.to_string();
    match (global.familiar_name(), call.text.strip_prefix(name.as_str())) {
        (Some(familiar), Some(rest)) => format!("{familiar}{rest}"),
        _ => call.text.clone(),
    }
}

fn names_of_risk(scan: &ScannedFile, risk: Risk) -> String {
    let names = globals_of_risk(scan, risk);
    let names: Vec<String> = names.iter().map(|(module, name)| format!("{module}.{name}")).collect();
    list_of_names(&names)
}

/// Joins the first names, and counts the others.
pub(super) fn list_of_names(names: &[String]) -> String {
    let first = names.iter().take(NAMES_MAX).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMES_MAX) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// Returns a line for each part of the file that was not read.
pub(super) fn unread_rows(scan: &ScannedFile) -> Vec<String> {
    let pickles = scan.pickles.iter().filter_map(|pickle| Some((&pickle.place, pickle.error.as_ref()?)));
    let pickles = pickles.map(|(place, error)| format!("{place}: {error}"));
    pickles.chain(scan.missed.iter().cloned()).collect()
}
