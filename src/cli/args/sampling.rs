//! Arguments that choose tokens, of `run` and `chat`.

use std::num::NonZeroU32;

use clap::Args;
use generate::TokenChoice;

#[derive(Args, Debug)]
pub(crate) struct SamplingArgs {
    /// Choose tokens at random; below 1 favours probable ones, and 0 is the most probable one
    #[arg(long, value_name = "T")]
    pub(crate) temperature: Option<f64>,
    /// Choose only from the K most probable tokens
    #[arg(long, value_name = "K", requires = "temperature", value_parser = parse_top_k)]
    pub(crate) top_k: Option<NonZeroU32>,
    /// Choose only from the most probable tokens whose probabilities add up to P
    #[arg(long, value_name = "P", requires = "temperature")]
    pub(crate) top_p: Option<f64>,
    /// Where the random numbers start [default: a new seed each time, which is printed]
    #[arg(long, value_name = "N", requires = "temperature")]
    pub(crate) seed: Option<u64>,
}

fn parse_top_k(text: &str) -> Result<NonZeroU32, String> {
    text.parse().map_err(|_| "expected a whole number above 0".to_owned())
}

impl SamplingArgs {
    /// Returns the sampling of tokens; `new_seed` is called if no seed was given.
    pub(crate) fn token_choice(&self, new_seed: impl FnOnce() -> u64) -> TokenChoice {
        match self.temperature {
            None | Some(0.0) => TokenChoice::Greedy,
            Some(temperature) => TokenChoice::Random {
                temperature,
                top_k: self.top_k,
                top_p: self.top_p.unwrap_or(1.0),
                seed: self.seed.unwrap_or_else(new_seed),
            },
        }
    }
}
