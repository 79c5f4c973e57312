//! What the name of a model says: its basename, size, version, and what it was tuned for.
//!
//! Facts: `get_model_id_components` and `id_to_title` in `metadata.py` of `gguf` 0.19.0, and `utility.py` for sizes.

use crate::parameters::Parameters;

/// Parts of the name of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ModelId {
    pub(crate) name: Option<String>,
    pub(crate) organization: Option<String>,
    pub(crate) basename: Option<String>,
    pub(crate) finetune: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) size_label: Option<String>,
}

/// Kind of a part of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartKind {
    Basename,
    Size,
    Finetune,
    Version,
    Type,
}

/// A part of a name between hyphens, and what it is.
#[derive(Debug)]
struct NamePart {
    text: String,
    kinds: Vec<PartKind>,
}

impl NamePart {
    fn new(text: impl Into<String>, kind: Option<PartKind>) -> Self {
        Self { text: text.into(), kinds: kind.into_iter().collect() }
    }

    fn is(&self, kind: PartKind) -> bool {
        self.kinds.contains(&kind)
    }
}

impl ModelId {
    /// Splits a name, which may begin with an organization. A size that is far from the number of parameters is none.
    pub(crate) fn new(id: &str, parameters: Parameters) -> Self {
        if id.contains(' ') {
            return Self { name: Some(id.to_owned()), ..Self::default() };
        }
        let (organization, name) = match id.split_once('/') {
            Some((organization, name)) => (Some(organization).filter(|it| !it.starts_with('.')), name),
            None => (None, id),
        };
        let texts: Vec<&str> = name.split('-').filter(|part| !part.is_empty()).collect();
        let mut parts: Vec<NamePart> =
            texts.iter().enumerate().map(|(place, text)| classify(text, place, parameters)).collect();
        // Words say less than a number.
        if parts
            .iter()
            .any(|part| part.is(PartKind::Size) && part.text.contains(|c: char| c.is_ascii_digit()))
        {
            for part in parts.iter_mut().filter(|part| part.text.chars().all(char::is_alphabetic)) {
                part.kinds.retain(|kind| *kind != PartKind::Size);
            }
        }
        let mut at_start = true;
        for part in &mut parts {
            let is_word = part.kinds.is_empty() && part.text.starts_with(char::is_alphabetic);
            at_start &= is_word || part.is(PartKind::Version);
            if at_start {
                part.kinds.push(PartKind::Basename);
            } else if part.kinds.is_empty() {
                part.kinds.push(PartKind::Finetune);
            }
        }
        for part in parts.iter_mut().rev() {
            if !(part.is(PartKind::Basename) && part.kinds.len() > 1) {
                break;
            }
            part.kinds.retain(|kind| *kind != PartKind::Basename);
        }
        let join = |is_it: fn(&NamePart) -> bool| {
            let texts: Vec<&str> =
                parts.iter().filter(|part| is_it(part)).map(|part| part.text.as_str()).collect();
            (!texts.is_empty()).then(|| texts.join("-"))
        };
        let mut sizes: Vec<&str> = Vec::new();
        for part in parts.iter().filter(|part| part.is(PartKind::Size)) {
            if !sizes.contains(&part.text.as_str()) {
                sizes.push(&part.text);
            }
        }
        let size_label = (!sizes.is_empty()).then(|| sizes.join("-"));
        let finetune = join(|part| part.is(PartKind::Finetune));
        let version = join(|part| part.is(PartKind::Version) && !part.is(PartKind::Basename));
        let is_clear = size_label.is_some() || finetune.is_some() || version.is_some();
        Self {
            name: Some(name.to_owned()),
            organization: organization.map(str::to_owned),
            basename: join(|part| part.is(PartKind::Basename)).filter(|_| is_clear),
            finetune,
            version,
            size_label,
        }
    }
}

fn classify(text: &str, place: usize, parameters: Parameters) -> NamePart {
    let tuned = ["chat", "instruct", "vision", "lora"];
    if is_version(text) {
        NamePart::new(text, Some(PartKind::Version))
    } else if is_type(text) {
        NamePart::new(text.to_uppercase(), Some(PartKind::Type))
    } else if place > 0 && is_size(text) {
        size_part(text, parameters)
    } else {
        let is_tuned = place > 0 && tuned.iter().any(|word| text.eq_ignore_ascii_case(word));
        NamePart::new(text, is_tuned.then_some(PartKind::Finetune))
    }
}

/// Returns true for a number with dots, which may follow a word.
fn is_version(text: &str) -> bool {
    let lower = text.to_lowercase();
    let rest = ["v", "iter"].iter().find_map(|word| lower.strip_prefix(word)).unwrap_or(&lower);
    rest.split('.').all(|number| !number.is_empty() && number.chars().all(|c| c.is_ascii_digit()))
}

/// Returns true for the name of a type, such as `Q4_K` or `bf16`.
fn is_type(text: &str) -> bool {
    let lower = text.to_lowercase();
    let rest = lower.strip_prefix('i').unwrap_or(&lower);
    if let Some(bits) = rest.strip_prefix('q') {
        let mut words = bits.split('_');
        let is_digit = |word: &str| word.len() == 1 && word.chars().all(|c| c.is_ascii_digit());
        let is_letter = |word: &str| word.chars().count() == 1 && word.chars().all(char::is_alphanumeric);
        return words.next().is_some_and(is_digit) && words.all(is_letter);
    }
    let rest = lower.strip_prefix('b').unwrap_or(&lower);
    let rest = rest.strip_prefix('f').map(|rest| rest.strip_prefix('p').unwrap_or(rest));
    matches!(rest, Some("16" | "32"))
}

/// Splits the digits from the start of a text.
fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// Returns true for a size: `8x7B`, `0.5B`, `A3B`, `7b1`, or a word.
fn is_size(text: &str) -> bool {
    let lower = text.to_lowercase();
    if ["small", "mini", "medium", "large", "xl", "xxl"].contains(&lower.as_str()) {
        return true;
    }
    let is_amount = |text: &str| {
        let (whole, rest) = digits(text);
        let fraction = rest.strip_prefix(['.', '_']).map(digits);
        let rest = match fraction {
            Some(("", _)) => return false,
            Some((_, rest)) => rest,
            None => rest,
        };
        let mut rest = rest.chars();
        let ends = match (rest.next(), rest.next(), rest.next()) {
            (Some(unit), digit, None) => {
                "kmbt".contains(unit) && digit.is_none_or(|digit| digit.is_ascii_digit())
            }
            _ => false,
        };
        ends && (!whole.is_empty())
    };
    let (count, rest) = digits(&lower);
    let times = rest.strip_prefix('x').filter(|_| !count.is_empty());
    [Some(lower.as_str()), lower.strip_prefix('a'), times].into_iter().flatten().any(is_amount)
}

fn size_part(text: &str, parameters: Parameters) -> NamePart {
    let mut chars: Vec<char> = text.replace('_', ".").chars().collect();
    // 7b1 is 7.1b.
    if let [.., unit, digit] = chars.as_mut_slice()
        && digit.is_ascii_digit()
    {
        std::mem::swap(unit, digit);
        chars.insert(chars.len().saturating_sub(2), '.');
    }
    if let [.., before, unit] = chars.as_mut_slice()
        && before.is_ascii_digit()
    {
        unit.make_ascii_uppercase();
    }
    let mut text: String = chars.iter().collect();
    let unit = chars.last().copied().unwrap_or_default();
    let number: String = chars.iter().take(chars.len().saturating_sub(1)).collect();
    let power =
        " KMBT".find(unit).map_or(1.0 / 1000.0, |power| 1000_f64.powi(i32::try_from(power).unwrap_or(0)));
    if let (Ok(number), true) = (number.parse::<f64>(), parameters.total > 0) {
        let (labelled, total) = (number * power, parameters.total);
        #[expect(clippy::cast_precision_loss, reason = "a size is a rough number")]
        let is_far = (labelled - total as f64).abs() > (total.saturating_mul(7) / 8) as f64;
        if is_far {
            let unit = text.pop().unwrap_or_default().to_ascii_lowercase();
            return NamePart::new(format!("{text}{unit}"), Some(PartKind::Finetune));
        }
    }
    NamePart::new(text, Some(PartKind::Size))
}

/// Returns the name with capitals, and spaces in place of hyphens.
pub(crate) fn title(name: &str) -> String {
    let word = |word: &str| {
        let is_lower = word.chars().any(char::is_lowercase) && !word.chars().any(char::is_uppercase);
        let starts_with_digit = word.starts_with(|c: char| c.is_ascii_digit());
        let is_version = word.starts_with('v') && is_version(word);
        if !is_lower || starts_with_digit || is_version {
            return word.to_owned();
        }
        // Each letter after something else is a capital.
        let mut after_letter = false;
        let mut out = String::new();
        for c in word.chars() {
            if after_letter {
                out.push(c);
            } else {
                out.extend(c.to_uppercase());
            }
            after_letter = c.is_alphabetic();
        }
        out
    };
    name.trim().replace('-', " ").split_whitespace().map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(id: &str, total: u64) -> [String; 5] {
        let ModelId { organization, basename, finetune, version, size_label, .. } =
            ModelId::new(id, Parameters { total, ..Parameters::default() });
        [organization, basename, finetune, version, size_label].map(Option::unwrap_or_default)
    }

    #[test]
    fn names_are_split_as_the_package_does() {
        // From `Metadata.get_model_id_components` of gguf 0.19.0.
        for (id, total, expected) in [
            ("Llama-3.2-1B-Instruct", 1_235_814_400, ["", "Llama-3.2", "Instruct", "", "1B"]),
            ("meta-llama/Llama-2-7b-hf", 6_738_415_616, ["meta-llama", "Llama-2", "hf", "", "7B"]),
            ("Mixtral-8x7B-v0.1", 46_702_792_704, ["", "Mixtral", "", "v0.1", "8x7B"]),
            ("bloom-7b1-petals", 0, ["", "bloom", "petals", "", "7.1B"]),
            ("Phi-3-mini-4k-instruct", 3_821_079_552, ["", "Phi-3", "4k-instruct", "", "mini"]),
            ("Qwen3-30B-A3B", 30_532_122_624, ["", "Qwen3", "", "", "30B-A3B"]),
            ("tiny", 0, ["", "", "", "", ""]),
            ("model-Q4_K-bf16", 0, ["", "", "", "", ""]),
            ("a b-7B", 0, ["", "", "", "", ""]),
        ] {
            assert_eq!(split(id, total), expected.map(str::to_owned), "{id}");
        }
    }

    #[test]
    fn titles_have_capitals() {
        assert_eq!(title("llama-3.2-1B-instruct"), "Llama 3.2 1B Instruct");
        assert_eq!(title("qwen2.5-v2-x"), "Qwen2.5 v2 X");
    }
}
