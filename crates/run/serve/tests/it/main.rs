//! The server over real sockets: what hostile, slow and vanishing clients get, and what is left of them.
//!
//! Nothing here measures time: times that run out are short, those that must not are long, and tests wait for events.

#![expect(clippy::indexing_slicing, reason = "a missing member is a failed test")]

mod cartons;
mod channels;
mod chats;
mod client;
mod drain;
mod harness;
mod hosts;
mod inference;
mod keys;
mod limits;
mod overview;
mod repository;
mod texts;
mod tools;
mod transport;
