//! The layouts of all trainers: a file for each, and a row of [`LAYOUTS`].

use crate::trainers::TrainerLayout;
use crate::trainers::dcp::Dcp;
use crate::trainers::hf_shards::HfShards;
use crate::trainers::megatron::MegatronRanks;
use crate::trainers::rank_files::RankFiles;
use crate::trainers::universal::Universal;
use crate::trainers::zero::Zero;

/// All layouts, in the order in which a folder is compared with them.
pub const LAYOUTS: &[&dyn TrainerLayout] = &[&Dcp, &RankFiles, &HfShards, &Universal, &Zero, &MegatronRanks];
