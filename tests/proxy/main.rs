//! The whole proxy in front of the simulator, over real sockets; one file for each capability.
//!
//! No test sleeps for luck: tests wait for conditions, and fail when a condition does not become
//! true in time.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "this is a test")]

mod adaptive_limits;
mod admin;
mod aggregated;
mod audit;
mod away;
mod budget;
mod client;
mod clusters;
mod cold;
mod collector;
mod consistent_lists;
mod costs;
mod crds;
mod details;
mod doctor;
mod documents;
mod failover;
mod fair_queueing;
mod filtered;
mod flow_rules;
mod forward;
mod found_servers;
mod gateway;
mod harness;
mod herds;
mod identity;
mod informer;
mod listeners;
mod managed_fields;
mod odd;
mod older_watches;
mod open_watches;
mod paging;
#[path = "../support/raw_h2.rs"]
mod raw_h2;
mod readers;
mod reflector;
mod refusals;
mod reloads;
mod reviews;
mod rewinds;
mod scope;
mod servers;
mod settings;
mod shadow;
mod shards;
mod sharing;
mod shutdown;
mod starts;
mod targets;
mod trace_context;
mod tracing;
mod unreadable;
mod upgrades;
mod users;
mod verification;
#[path = "../support/wait.rs"]
mod wait;
mod watches;
