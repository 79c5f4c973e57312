//! The layouts of all trainers: a file for each, and a row of [`LAYOUTS`].

use crate::TrainerLayout;
use crate::dcp::Dcp;
use crate::hf_shards::HfShards;
use crate::megatron::MegatronRanks;
use crate::rank_files::RankFiles;
use crate::universal::Universal;
use crate::zero::Zero;

/// All layouts, in the order in which a folder is compared with them.
pub const LAYOUTS: &[&dyn TrainerLayout] = &[&Dcp, &RankFiles, &HfShards, &Universal, &Zero, &MegatronRanks];
