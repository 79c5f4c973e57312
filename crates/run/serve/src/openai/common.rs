//! Members that the routes share: the choice of tokens, stops, and the form of the answer.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::RangeInclusive;
use std::time::{SystemTime, UNIX_EPOCH};

use generate::{LogitChanges, TokenChoice};
use serde::Deserialize;

use super::fields::{Texts, fields};
use crate::reject::Reject;

/// Most choices for one prompt.
const CHOICES_MAX: u64 = 128;
/// Most stop texts, and most bytes of one.
const STOPS_MAX: usize = 4;
const STOP_BYTES_MAX: usize = 1024;
/// Most biases of a request.
const BIASES_MAX: usize = 1024;
/// Largest number of most probable tokens that are returned with each token.
pub(super) const TOP_MAX: u64 = 20;

fields! {
    /// Members that completions and chats share.
    CommonFields {
        model: String,
        stream: bool,
        stream_options: StreamOptions,
        temperature: f64,
        top_p: f64,
        seed: i64,
        stop: Texts,
        n: u64,
        frequency_penalty: f64,
        presence_penalty: f64,
        logit_bias: BTreeMap<String, f64>,
        user: String,
    }
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StreamOptions {
    #[serde(default)]
    include_usage: Option<bool>,
}

/// Choice of the tokens of an answer, and the way in which it is sent.
#[derive(Debug)]
pub(super) struct Sampling {
    pub(super) temperature: f64,
    pub(super) top_p: f64,
    pub(super) seed: u64,
    /// Number of choices for each prompt.
    pub(super) choices: usize,
    pub(super) changes: LogitChanges,
    pub(super) stops: Vec<String>,
    pub(super) is_stream: bool,
    pub(super) includes_usage: bool,
}

impl CommonFields {
    /// Returns the name of the model.
    ///
    /// # Errors
    /// Returns an error if the request names no model.
    pub(super) fn model_name(&self) -> Result<&str, Reject> {
        self.model.as_deref().ok_or_else(|| missing("model"))
    }

    /// Checks the members, for a model with this many tokens in its vocabulary.
    ///
    /// # Errors
    /// Returns an error that names a member that is out of range.
    pub(super) fn sampling(&mut self, vocab: usize) -> Result<Sampling, Reject> {
        let is_stream = self.stream.unwrap_or(false);
        if self.stream_options.is_some() && !is_stream {
            return Err(Reject::param("stream_options", "`stream_options` is allowed only with `stream`"));
        }
        let choices = self.n.unwrap_or(1);
        if !(1..=CHOICES_MAX).contains(&choices) {
            return Err(out_of_range("n", choices, &format!("1 to {CHOICES_MAX}")));
        }
        let frequency = number("frequency_penalty", self.frequency_penalty, 0.0, -2.0..=2.0)?;
        let presence = number("presence_penalty", self.presence_penalty, 0.0, -2.0..=2.0)?;
        let bias = biases(self.logit_bias.take().unwrap_or_default(), vocab)?;
        Ok(Sampling {
            temperature: number("temperature", self.temperature, 1.0, 0.0..=2.0)?,
            top_p: number("top_p", self.top_p, 1.0, 0.0..=1.0)?,
            seed: self.seed.map_or_else(random_number, i64::cast_unsigned),
            choices: usize::try_from(choices).unwrap_or(usize::MAX),
            changes: LogitChanges::new(as_f32(frequency), as_f32(presence), bias),
            stops: stops(self.stop.take())?,
            is_stream,
            includes_usage: self.stream_options.and_then(|options| options.include_usage).unwrap_or(false),
        })
    }
}

impl Sampling {
    /// Returns how choice `number` of a request chooses its tokens. Choices differ, and a seed repeats each of them.
    pub(super) fn choice(&self, number: usize) -> TokenChoice {
        if self.temperature <= 0.0 {
            return TokenChoice::Greedy;
        }
        TokenChoice::Random {
            temperature: self.temperature,
            top_k: None,
            // The most probable token alone also reaches a sum of 0.
            top_p: self.top_p.max(f64::MIN_POSITIVE),
            seed: self.seed.wrapping_add((number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        }
    }
}

/// Returns the error for a member that a request needs.
pub(super) fn missing(name: &str) -> Reject {
    Reject::param(name, format!("`{name}` is missing"))
}

/// Returns the error for a number that is out of range.
pub(super) fn out_of_range(name: &str, found: impl std::fmt::Display, expected: &str) -> Reject {
    Reject::param(name, format!("`{name}` is {found}, expected {expected}"))
}

fn number(
    name: &str,
    found: Option<f64>,
    default: f64,
    expected: RangeInclusive<f64>,
) -> Result<f64, Reject> {
    let number = found.unwrap_or(default);
    if expected.contains(&number) {
        return Ok(number);
    }
    Err(out_of_range(name, number, &format!("{} to {}", expected.start(), expected.end())))
}

#[expect(clippy::cast_possible_truncation, reason = "a change of a logit is rounded as the logit is")]
fn as_f32(number: f64) -> f32 {
    number as f32
}

fn stops(given: Option<Texts>) -> Result<Vec<String>, Reject> {
    let Texts(stops) = given.unwrap_or(Texts(Vec::new()));
    if stops.len() > STOPS_MAX {
        return Err(out_of_range(
            "stop",
            format_args!("{} texts", stops.len()),
            &format!("at most {STOPS_MAX}"),
        ));
    }
    if stops.iter().any(|stop| stop.len() > STOP_BYTES_MAX) {
        return Err(Reject::param("stop", format!("a text of `stop` has more than {STOP_BYTES_MAX} bytes")));
    }
    Ok(stops)
}

fn biases(given: BTreeMap<String, f64>, vocab: usize) -> Result<Vec<(u32, f32)>, Reject> {
    if given.len() > BIASES_MAX {
        return Err(out_of_range(
            "logit_bias",
            format_args!("{} tokens", given.len()),
            &format!("at most {BIASES_MAX}"),
        ));
    }
    let parse = |(token, bias): (String, f64)| {
        let id = token.parse::<u32>().ok();
        let id = id.filter(|id| usize::try_from(*id).is_ok_and(|id| id < vocab)).ok_or_else(|| {
            let token = token.chars().take(64).flat_map(char::escape_debug).collect::<String>();
            Reject::param(
                "logit_bias",
                format!("`logit_bias` has the token `{token}`, expected an id below {vocab}"),
            )
        })?;
        let bias = number("logit_bias", Some(bias), 0.0, -100.0..=100.0)?;
        Ok((id, as_f32(bias)))
    };
    given.into_iter().map(parse).collect()
}

/// Returns a number that differs from call to call.
pub(super) fn random_number() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Returns the seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// Returns an id that no other answer has.
pub(super) fn new_id(prefix: &str) -> String {
    format!("{prefix}-{:016x}{:016x}", random_number(), random_number())
}
